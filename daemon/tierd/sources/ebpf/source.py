# SPDX-License-Identifier: Apache-2.0
"""`SampledSource`: an access source made of a `Sampler`, whose period follows what was measured."""

from __future__ import annotations

import contextlib
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tierd.core import bounds
from tierd.core.access import AccessBatch, AccessSource, Availability, WatchedTarget
from tierd.core.errors import UnavailableError
from tierd.core.tuning import INTERVAL, PACING
from tierd.sources.ebpf import syscalls
from tierd.sources.ebpf.sampler import Sampler
from tierd.sources.ebpf.table import Mode, Watched


@dataclass(frozen=True, slots=True)
class Budget:
    """What sampling may cost.

    Attributes:
        samples_per_s: wanted rate. cpu_share: most of one CPU.
        interrupt_ns: what a sample costs the kernel before the program runs.
        least_period, most_period: bounds of the period, in events.
    """

    samples_per_s: float
    cpu_share: float
    interrupt_ns: float
    least_period: int
    most_period: int
    mode: str = "table"


@dataclass(frozen=True, slots=True)
class Interval:
    """What happened since the last step.

    Attributes:
        samples: that programs took of watched processes.
        runs: of the programs, foreign processes included (they cost as well).
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
        if self._calm >= bounds.BPF_CALM_STEPS:
            self._floor = max(self._least, self._floor // 2)
            self._calm = 0
        factor = max(seen.samples / seen.seconds / self._wanted, seen.cpu_share / self._cpu_share)
        if not 1 / INTERVAL.close_factor <= factor <= INTERVAL.close_factor:
            wanted = self.period * min(INTERVAL.step_factor, max(1 / INTERVAL.step_factor, factor))
            self.period = int(min(self._most, max(self._floor, round(wanted))))
        return self.period != before


@dataclass(slots=True)
class Totals:
    """Counters since the source was made, for metrics.

    Attributes:
        samples: of watched processes; of these, outside: not in watched ranges, and
        lost: given way or without room. throttled: times.
        period: now. mode: "table" or "raw". period_changes: times.
        cpu_share: of one CPU, in the last interval.
    """

    samples: int = 0
    outside: int = 0
    lost: int = 0
    throttled: int = 0
    period: int = 0
    mode: str = "table"
    period_changes: int = 0
    cpu_share: float = 0.0


class SampledSource(AccessSource):
    """Base of the sources that run a program on perf events; see `AccessSource`."""

    def __init__(
        self, name: str, budget: Budget, *, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.name = name
        self.totals = Totals()
        self._budget = budget
        self._clock = clock
        self._sampler: Sampler | None = None
        self._watched = Watched(())
        self._period: PeriodControl | None = None
        self._failed: tuple[int, str] | None = None
        self._statistics_fd = -1
        self._first_period = 1
        self._reset()

    def _reset(self) -> None:
        self._mark_ns = self._clock()
        self._mark = replace(self.totals)
        self._user_ns = 0
        self._runs = (0, 0)
        self._seen = 0
        self._run_ns = 0.0
        self._steps = 0

    @abstractmethod
    def probe(self) -> Availability:
        """Whether the host has what this source needs; each source defines it."""

    @abstractmethod
    def make_sampler(self) -> Sampler:
        """Make the sampler, not started; each source defines it."""

    def first_period(self) -> int:
        """The period to begin with, which a count of one stands for."""
        return 1

    def mode(self) -> str:
        """Where samples are counted: "table" or "raw"."""
        return self._budget.mode

    def started(self, sampler: Sampler) -> None:
        """Called when samples begin to be taken."""

    def available(self) -> Availability:
        """Whether this host can run the source, with the reason of a failed attempt."""
        if self._failed is not None and self._clock() - self._failed[0] < bounds.BPF_LOAD_RETRY_NS:
            return Availability(False, self._failed[1], "tierd doctor says what to install")
        if self._sampler is not None and self._sampler.loaded is not None:
            return Availability(True, f"in use, loaded by {self._sampler.loaded.way}")
        return self.probe()

    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        """Sample these targets; loading goes on in the background at first.

        Raises:
            UnavailableError: the program cannot be loaded or attached here.
        """
        self._watched = Watched(targets)
        if not targets and self._sampler is None:
            return
        with self.closed_on_failure():
            if self._sampler is None:
                self._sampler = self.make_sampler()
                self._sampler.start()
            self.ready()
        if self._sampler is not None and self._sampler.table is not None:
            self._sampler.set_targets(self._watched.targets)

    @contextlib.contextmanager
    def closed_on_failure(self) -> Iterator[None]:
        """Remember the reason for `available` as well."""
        try:
            with super().closed_on_failure():
                yield
        except UnavailableError as error:
            self._failed = (self._clock(), str(error))
            raise

    def ready(self, *, wait: bool = False) -> bool:
        """Whether samples are taken; with `wait`, until they are.

        Raises:
            UnavailableError: the program cannot be loaded or attached here.
        """
        sampler = self._sampler
        if sampler is None:
            return False
        before = sampler.loaded
        if not sampler.ready(wait=wait):
            return False
        if before is None:
            self._begin(sampler)
        return True

    def _begin(self, sampler: Sampler) -> None:
        self._reset()
        budget = self._budget
        self._first_period = self.first_period()
        self._period = PeriodControl(
            start=self._first_period,
            least=budget.least_period,
            most=budget.most_period,
            samples_per_s=budget.samples_per_s,
            cpu_share=budget.cpu_share,
        )
        self.totals.mode = self.mode()
        sampler.set_mode(Mode.PASS if self.totals.mode == "raw" else Mode.COUNT)
        sampler.set_targets(self._watched.targets)
        self.totals.period = self._period.period
        self.started(sampler)

    def poll(self) -> list[AccessBatch]:
        """What was sampled since the last call; nothing while the program is loading.

        Raises:
            UnavailableError: the program could not be loaded; another source is needed.
        """
        with self.closed_on_failure():
            if not self.ready():
                return []
        sampler = self._sampler
        assert sampler is not None
        begin = time.thread_time_ns()
        with contextlib.suppress(UnavailableError):
            sampler.follow_cpus()
        drained = sampler.drain(self._watched)
        now = self._clock()
        self._user_ns += time.thread_time_ns() - begin
        self.totals.samples += drained.samples
        self.totals.outside += drained.outside
        self.totals.lost += drained.lost
        self.totals.throttled += drained.throttled
        period = self._period.period if self._period else 1
        self._adapt(sampler, now)
        if not len(drained.key) and not drained.lost:
            return []
        # A count of one stands for as many events as at the beginning, whatever the period.
        count = drained.count * (period / self._first_period)
        return [
            AccessBatch(
                drained.key,
                count.astype(drained.count.dtype),
                now,
                source=self.name,
                is_write=drained.is_write,
                lost=drained.lost,
                ordered=drained.ordered,
            )
        ]

    @property
    def lines_per_count(self) -> float:
        """Events, each a line from memory, that a count of one stands for; 0: not known."""
        return float(self._first_period) if self._counts_lines() else 0.0

    def _counts_lines(self) -> bool:
        return False

    def _adapt(self, sampler: Sampler, now: int) -> None:
        if now - self._mark_ns < PACING.upkeep_interval_ns or self._period is None:
            return
        assert sampler.table is not None
        seen = sampler.table.stat("seen")
        self._measure_runs(sampler)
        interval = Interval(
            seconds=(now - self._mark_ns) / 1e9,
            samples=self.totals.samples - self._mark.samples,
            runs=seen - self._seen,
            throttled=self.totals.throttled - self._mark.throttled,
            kernel_ns_per_run=self._budget.interrupt_ns + self._run_ns,
            user_ns=self._user_ns,
        )
        self.totals.cpu_share = interval.cpu_share
        self._seen, self._mark_ns, self._mark = seen, now, replace(self.totals)
        self._user_ns = 0
        if self._period.step(interval):
            sampler.set_period(self._period.period)
            self.totals.period = self._period.period
            self.totals.period_changes += 1

    def _measure_runs(self, sampler: Sampler) -> None:
        """Let the kernel time the programs in one interval of many."""
        self._steps += 1
        if self._statistics_fd >= 0:
            spent, runs = sampler.program_runs()
            if runs > self._runs[1]:
                self._run_ns = (spent - self._runs[0]) / (runs - self._runs[1])
            os.close(self._statistics_fd)
            self._statistics_fd = -1
        elif self._steps % bounds.BPF_STATISTICS_EVERY == 1:
            with contextlib.suppress(OSError):
                self._runs = sampler.program_runs()
                self._statistics_fd = syscalls.enable_run_statistics()

    def close(self) -> None:
        """Detach and release everything; the source can be watched with again."""
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None
        if self._statistics_fd >= 0:
            os.close(self._statistics_fd)
            self._statistics_fd = -1
        self._reset()
