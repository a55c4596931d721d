# SPDX-License-Identifier: Apache-2.0
"""How often to sample, and where to count: decisions that follow what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning import EBPF, INTERVAL
from tierd.sources.ebpf.table import Mode


@dataclass(frozen=True, slots=True)
class Interval:
    """What happened since the last step.

    Attributes:
        seconds: its length.
        samples: that programs took of watched processes.
        lost: of these, lost.
        runs: of the programs, foreign processes included (they cost as well).
        throttled: times that the kernel stopped an event.
        kernel_ns_per_run: what one run costs, the interrupt included.
        user_ns: CPU time that reading and decoding took.
    """

    seconds: float
    samples: int
    lost: int = 0
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
            wanted = self.period * min(
                EBPF.max_period_step_factor, max(1 / EBPF.max_period_step_factor, factor)
            )
            self.period = int(min(self._most, max(self._floor, round(wanted))))
        return self.period != before


class ModeControl:
    """Where samples are counted: in the kernel's table or by heat, from raw samples.

    The table costs a look over all of its slots whatever was sampled; a raw sample costs
    its way through the ring buffer. So raw samples are cheaper at low rates, the table
    at high ones, and where the working set is larger than the table only raw samples are
    complete, as long as the ring buffer holds them. Both costs are measured.

    Args:
        mode: to begin with.
        scan_ns, sample_ns: first guesses of the costs of one drain and of one raw sample.
        ring_samples: that the ring buffers hold.
        allowed: False keeps the mode as it is.
    """

    LOSS_SHARE: Final = 0.01
    GAIN: Final = 2.0
    """The other way must be cheaper by this factor, three times in a row."""
    PATIENCE: Final = 3
    HOLD: Final = 30
    """Steps for which a switch because of loss is not taken back; doubled each time."""
    MAX_HOLD: Final = 960

    def __init__(
        self,
        mode: int = Mode.COUNT,
        *,
        scan_ns: float,
        sample_ns: float,
        ring_samples: int,
        allowed: bool = True,
    ) -> None:
        self.mode = mode
        self.scan_ns, self.sample_ns = scan_ns, sample_ns
        self._space = ring_samples
        self._allowed = allowed
        self._better = 0
        self._held = 0
        self._hold = self.HOLD

    def step(self, seen: Interval) -> bool:
        """Take an interval in; true when the mode has changed."""
        if not self._allowed:
            return False
        self._learn(seen)
        self._held = max(0, self._held - 1)
        if seen.lost > self.LOSS_SHARE * max(1, seen.samples):
            return self._flee_loss(seen)
        if self._held:
            return False
        count_ns, pass_ns = self.scan_ns, seen.samples * self.sample_ns
        now, other = (count_ns, pass_ns) if self.mode == Mode.COUNT else (pass_ns, count_ns)
        fits = self.mode == Mode.PASS or 2 * seen.samples < self._space
        self._better = self._better + 1 if fits and other * self.GAIN < now else 0
        if self._better < self.PATIENCE:
            return False
        return self._switch()

    def _learn(self, seen: Interval) -> None:
        if not seen.user_ns:
            return
        if self.mode == Mode.COUNT:
            self.scan_ns += (seen.user_ns - self.scan_ns) / 8
        elif seen.samples >= 64:
            self.sample_ns += (seen.user_ns / seen.samples - self.sample_ns) / 8

    def _flee_loss(self, seen: Interval) -> bool:
        """Go where the loss is not; from the table only if the rings hold the samples."""
        if self._held or (self.mode == Mode.COUNT and 2 * seen.samples >= self._space):
            return False
        self._held, self._hold = self._hold, min(self.MAX_HOLD, 2 * self._hold)
        return self._switch()

    def _switch(self) -> bool:
        self.mode = Mode.PASS if self.mode == Mode.COUNT else Mode.COUNT
        self._better = 0
        return True
