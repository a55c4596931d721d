# SPDX-License-Identifier: Apache-2.0
"""`CpuBudget`: a share of one CPU for a thread, of which some may be saved up."""

from __future__ import annotations


class CpuBudget:
    """CPU time as a token bucket: it comes in at a rate, and is taken for what a thread used.

    Args:
        now_ns, cpu_ns: the time, and what the thread has used, at the beginning.
        credit_ns: what comes in during so long may be saved up.
        full: begin with that, not with nothing.
    """

    def __init__(self, now_ns: int, cpu_ns: int, credit_ns: int, *, full: bool = False) -> None:
        self._seen_ns, self._cpu_ns = now_ns, cpu_ns
        self._credit_ns = credit_ns
        self._tokens_ns: float | None = None if full else 0.0

    def wait_ns(self, now_ns: int, cpu_ns: int, share: float) -> int:
        """How long to sleep until what was used is paid for; 0 if it is.

        Args:
            share: of one CPU, above 0.
        """
        most = self._credit_ns * share
        tokens = most if self._tokens_ns is None else self._tokens_ns
        tokens = min(tokens + (now_ns - self._seen_ns) * share, most) - (cpu_ns - self._cpu_ns)
        self._tokens_ns = tokens
        self._seen_ns, self._cpu_ns = now_ns, cpu_ns
        return 0 if tokens >= 0 else int(-tokens / share)
