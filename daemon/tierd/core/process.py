# SPDX-License-Identifier: Apache-2.0
"""`ProcessFacts`: what a matcher may ask of a process."""

from __future__ import annotations

from typing import Protocol


class ProcessFacts(Protocol):
    """Facts of one process.

    Each may raise `TargetGoneError` when the process has ended.
    """

    @property
    def pid(self) -> int:
        """The process number."""
        ...

    @property
    def exe(self) -> str:
        """The path of the program, as /proc/PID/exe has it."""
        ...

    @property
    def cmdline(self) -> str:
        """The arguments, separated by spaces."""
        ...

    @property
    def cgroup(self) -> str:
        """The path of the control group below the mount point of cgroup v2."""
        ...

    @property
    def uid(self) -> int:
        """The effective user number."""
        ...

    @property
    def rss_bytes(self) -> int:
        """Resident memory."""
        ...
