# SPDX-License-Identifier: Apache-2.0
"""How often to sample: a decision that follows what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from tierd.core.tuning import EBPF, INTERVAL


@dataclass(frozen=True, slots=True)
class Interval:
    """What happened since the last step.

    Attributes:
        seconds: its length.
        samples: that programs took of watched processes.
        runs: of the programs, foreign processes included (they cost as well).
        throttled: times that the kernel stopped an event.
        kernel_ns_per_run: what one run costs, the interrupt included.
        user_ns: CPU time that reading and decoding took.
    """

    seconds: float
    samples: int
    runs: int = 0
    throttled: int = 0
    kernel_ns_per_run: float = 0.0
    user_ns: float = 0.0

    @property
    def cpu_share(self) -> float:
        """Share of one CPU that sampling took."""
        return (self.runs * self.kernel_ns_per_run + self.user_ns) / (self.seconds * 1e9)


class PeriodControl:
    """The period of sampling, within a rate and a CPU budget.

    Args:
        start, least, most: periods, in events.
        samples_per_s: wanted rate.
        cpu_share: most of one CPU that sampling may take.
    """

    def __init__(
        self, *, start: int, least: int, most: int, samples_per_s: float, cpu_share: float
    ) -> None:
        self.period = start
        self._least, self._most = least, most
        self._wanted = samples_per_s
        self._cpu_share = cpu_share
        self._floor = least
        self._calm = 0

    def step(self, seen: Interval) -> bool:
        """Take an interval in; true when the period has changed."""
        before = self.period
        if seen.throttled:
            # The kernel stopped the event for the rest of a tick: samples are missing and
            # nobody can say how many. Never come back to this period soon.
            self._floor = min(self._most, 2 * self.period)
            self._calm = 0
            self.period = self._floor
            return self.period != before
        self._calm += 1
        if self._calm >= EBPF.calm_steps:
            self._floor = max(self._least, self._floor // 2)
            self._calm = 0
        factor = max(seen.samples / seen.seconds / self._wanted, seen.cpu_share / self._cpu_share)
        if not 1 / INTERVAL.close_factor <= factor <= INTERVAL.close_factor:
            wanted = self.period * min(INTERVAL.step_factor, max(1 / INTERVAL.step_factor, factor))
            self.period = int(min(self._most, max(self._floor, round(wanted))))
        return self.period != before
