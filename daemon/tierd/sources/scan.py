# SPDX-License-Identifier: Apache-2.0
"""The kernel module's accessed bits as an access source: every page, not regions.

The module scans each page once a period and keeps the last eight answers. What its records say of
accesses is in `scan_records`, how often it scans in `scan_controller`, and which processes in
`scan_module`.

The module goes away in two steps: it asks its readers to close the device (parameter
`closing`), then it can be removed. `poll` closes at once and raises, so that the selector
takes the next source.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tierd.config.watching import ScanConfig
from tierd.core.access import (
    AccessBatch,
    Availability,
    EventDrivenSource,
    Seen,
    WatchedTarget,
)
from tierd.core.errors import UnavailableError
from tierd.core.pagekey import BoolArray
from tierd.core.tuning import SCAN
from tierd.sources.kmod.netlink import Control, ScanState
from tierd.sources.kmod.ring import RecordArray, Ring
from tierd.sources.kmod.uapi import HISTORY, MAX_NODES, PARAMETERS, ScanFlags
from tierd.sources.scan_controller import ScanController
from tierd.sources.scan_module import (
    ScannerControl,
    ScanTargets,
    module_availability,
    parameter,
)
from tierd.sources.scan_records import ScanRecords, summaries


class ScanSource(EventDrivenSource):
    """An `AccessSource`; see the module's text.

    Args:
        nodes: nodes whose pages are reported; none named: all.
        alone: no other source finds pages that become hot.
        report_scans: a page that stays hot is reported in one scan of so many (in turns).
        keep: which page records to count, bool[n] for records[n]; None counts all.
    """

    name = "scan"

    def __init__(
        self,
        settings: ScanConfig | None = None,
        *,
        nodes: Sequence[int] = (),
        alone: bool = True,
        report_scans: int = 3,
        root: Path = Path("/"),
        clock: Callable[[], int] = time.monotonic_ns,
        open_control: Callable[[], ScannerControl] = Control.open,
        open_ring: Callable[[Path], Ring] = Ring.open,
        keep: Callable[[RecordArray], BoolArray] | None = None,
    ) -> None:
        self._keep = keep
        self._settings = settings or ScanConfig()
        self._nodes, self._alone, self._report_scans = nodes, alone, report_scans
        self._root = root
        self._clock = clock
        self._open_control = open_control
        self._open_ring = open_ring
        self._control: ScannerControl | None = None
        self._ring: Ring | None = None
        self._targets = ScanTargets()
        self._dropped = 0
        self._records = ScanRecords(self.name, report_scans, writes=self._settings.track_writes)
        self._hot_scans = self._settings.hot_threshold
        self._heard = 0
        self._check_ns = 0
        self.decide_with(ScanController)

    def decide_with(self, make: Callable[..., ScanController]) -> None:
        """Let what `make` returns, called as `ScanController` is, decide; before `watch`.

        Where the module cannot flush the TLB it refuses any sampling interval: none is long enough.
        """
        period_us = self._settings.interval_ns // 1000
        least_us = self._settings.min_sampling_interval_ns // 1000
        self._make, self._samples = make, self._can_sample()
        least_us = least_us if self._samples else sys.maxsize
        self._scan_controller = make(period_us, least_us, self._clock(), alone=self._alone)

    def available(self) -> Availability:
        """Whether the module is loaded and lets us in."""
        if self._ring is not None and not self._ring.closing:
            return Availability(True, "the tierd kernel module scans")
        return module_availability(self._root)

    def _can_sample(self) -> bool:
        """Whether the scanner can have a sampling interval."""
        return parameter(self._root, "can_flush", default=True)

    def _gone(self) -> UnavailableError:
        """Why the scanner asks to be let go of."""
        return UnavailableError(
            "the tierd kernel module is about to be removed", hint="another source takes over"
        )

    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        """Scan these ranges from now on; histories of what stays are kept.

        Raises:
            UnavailableError: the module refused, or is about to be removed.
        """
        if self._control is None:
            if not any(target.ranges for target in targets):
                return
            self._start()
        assert self._control is not None
        with self.closed_on_failure():
            if self._targets.apply(self._control, targets):
                self._check_ns = 0

    def _start(self) -> None:
        ring = self._open_ring(self._root)
        try:
            control = self._open_control()
        except UnavailableError:
            ring.close()
            raise
        self._ring, self._control = ring, control
        self._dropped, self._heard = ring.dropped, 0
        settings = self._settings
        self._hot_scans = settings.hot_threshold
        if self._samples != self._can_sample():
            self.decide_with(self._make)  # The module was not loaded when this was made.
        self._scan_controller.start(self._clock())
        # Nobody asks whose pages are shared, or of which order, before they move.
        flags = ScanFlags.BRIEF
        flags |= ScanFlags.DIRTY if settings.track_writes else ScanFlags(0)
        flags |= ScanFlags.FLUSH if settings.flush_tlb else ScanFlags(0)
        with self.closed_on_failure():
            control.scan_set(
                period_us=self._scan_controller.period_us,
                budget_ppm=round(settings.cpu_limit * 1e6),
                hot_scans=settings.hot_threshold,
                cold_scans=settings.cold_threshold,
                report_scans=self._report_scans,
                sampling_interval_us=self._scan_controller.sampling_interval_us,
                flags=flags,
                hot_nodes=self._nodes or range(MAX_NODES),
            )

    def poll(self) -> list[AccessBatch]:
        """Counts of the pages that were reported since the last call.

        Raises:
            UnavailableError: the module is about to be removed; we have let go of it.
        """
        if self._ring is None:
            return []
        if self._ring.closing:
            why = self._gone()
            self.close()
            raise why
        now = self._clock()
        if now >= self._check_ns:
            self.progress()
        dropped = self._ring.dropped
        dropped_before = self._dropped
        lost, self._dropped = dropped - dropped_before, dropped
        batches, count = self._take(self._ring, now, lost)
        self._adapt(count, self._dropped - dropped_before)
        if not count and lost:
            empty = np.empty(0, np.uint64)
            batches.append(AccessBatch(empty, empty.astype(np.float32), now, self.name, lost=lost))
        return batches

    def _take(self, ring: Ring, now: int, lost: int) -> tuple[list[AccessBatch], int]:
        """Batches of all unread records, and their number; no view outlives this call."""
        batches: list[AccessBatch] = []
        count = 0
        for view in ring.views():
            for summary in summaries(view):
                if self._scan_controller.on_phase_change(summary, now):
                    self._set_scan()
            fresh, told = self._scan_controller.fresh, 0 if batches else lost
            batches.append(self._records.batch(view, now, lost=told, keep=self._keep, fresh=fresh))
            count += len(view)
        if count:
            ring.consume(count)
        self._heard = 0
        return batches, count

    def _adapt(self, count: int, lost: int) -> None:
        """Ask for hotter pages while the ring overflows, and for all again when it is calm.

        Where scans are far apart many cold pages have been touched in two of eight, and
        what does not fit into the ring would be lost by its place, not by its heat.
        """
        assert self._control is not None
        assert self._ring is not None
        wanted = self._hot_scans
        if lost:
            wanted = min(HISTORY, wanted + 1)
        elif 0 < count < self._ring.capacity // 4:
            wanted = max(self._settings.hot_threshold, wanted - 1)
        if wanted == self._hot_scans:
            return
        self._hot_scans = wanted
        raised = wanted > self._settings.hot_threshold
        cold = wanted - 1 if raised else self._settings.cold_threshold
        with self.closed_on_failure():
            self._control.scan_set(hot_scans=wanted, cold_scans=cold)

    def pace(self, period_us: int) -> None:
        """Scan no more often than this from now on.

        Raises:
            UnavailableError: the module refused, or is about to be removed.
        """
        self._settings = replace(self._settings, interval_ns=period_us * 1000)
        self._scan_controller.pace(period_us)
        self._set_scan()

    def _set_scan(self) -> None:
        if self._control is not None:
            chosen = self._scan_controller
            self._control.scan_set(
                period_us=chosen.period_us, sampling_interval_us=chosen.sampling_interval_us
            )

    @property
    def aim(self) -> float | None:
        """Share of the targets' pages that fast memory has room for; None: not known."""
        return self._scan_controller.aim

    @aim.setter
    def aim(self, share: float | None) -> None:
        self._scan_controller.aim = share

    @property
    def longest_us(self) -> int | None:
        """No sampling interval is longer, in us; None: none is too long."""
        return self._scan_controller.longest_us

    @longest_us.setter
    def longest_us(self, longest_us: int | None) -> None:
        if longest_us != self._scan_controller.longest_us and self._scan_controller.bound(
            longest_us
        ):
            self._set_scan()

    @property
    def lag_us(self) -> int:
        """A phase change may go undetected for so long, in us."""
        return self._scan_controller.lag_us

    @lag_us.setter
    def lag_us(self, lag_us: int) -> None:
        if self._scan_controller.rest(lag_us):
            self._set_scan()

    def wake(self) -> None:
        """The targets' programs run, as another source has seen: pages not accessed are cold."""
        self._scan_controller.awake = True

    @property
    def backlog(self) -> float:
        """The share of its ring that is not read yet, in [0, 1]."""
        return 0.0 if self._ring is None else self._ring.filled

    def progress(self) -> tuple[int, float]:
        """Least number of whole scans over any target, and the mean time between two, in s.

        (0, the configured time) before the first, and when the source is not in use.
        """
        period_ns = self._scan_controller.period_us * 1000
        self._check_ns = self._clock() + max(SCAN.check_interval_ns, period_ns)
        if self._control is None:
            return 0, self._settings.interval_ns / 1e9
        states = [each for each in self._control.targets() if each.target in self._targets]
        self._targets.keep({each.target for each in states})
        # What a scanner cannot read for now does not keep the others waiting.
        stats = {each.target: each.stats for each in states if not each.stats.get("passed_over")}
        if not stats:
            return 0, self._scan_controller.seen.period_s
        if self._scan_controller.take(stats, self._clock()):
            self._set_scan()
        return self._scan_controller.rounds, self._scan_controller.seen.period_s

    @property
    def seen(self) -> Seen | None:
        """What the last whole scans of all targets found; None when it is not in use."""
        return None if self._control is None else self._scan_controller.seen

    @property
    def unwatched(self) -> int | None:
        """Page tables that the module passed over: it had no memory for their histories."""
        try:
            return int((self._root / PARAMETERS / "history_full").read_text())
        except OSError:
            return None

    @property
    def unseen(self) -> frozenset[int]:
        """Targets whose memory a second MMU uses; its accesses set no bits that are scanned."""
        return frozenset(self._targets.unseen)

    @property
    def dilution(self) -> float:
        """The share of time whose accesses scans see, in (0, 1]: what heat counts."""
        return self._scan_controller.dilution

    @property
    def phase_change_fd(self) -> int:
        """Readable when a scan has ended, until `poll`; -1 when the source is not in use."""
        return -1 if self._ring is None else self._ring.fileno()

    def phase_changed(self) -> bool:
        """Whether to poll: programs began to use other memory, or the module is about to go."""
        ring, controller = self._ring, self._scan_controller
        if ring is None:
            return False
        if ring.closing:
            return True  # The module waits to be let go of, which `poll` does.
        if ring.waiting == self._heard:
            return False
        count = 0
        for view in ring.views():
            # What was there at the last call was no phase change.
            fresh = view[max(0, self._heard - count) :]
            if any(map(controller.is_phase_change, summaries(fresh))):
                return True
            count += len(view)
        self._heard = count
        return False

    @property
    def phase_change_ns(self) -> int:
        """When programs were seen to begin to use other memory, CLOCK_MONOTONIC; 0: not yet."""
        return self._scan_controller.phase_detector.last_ns

    @property
    def learning_ns(self) -> int:
        """Time of two scans while they teach something, 0 after that: to poll sooner is in vain."""
        return 0 if self._control is None else self._scan_controller.learning_ns

    @property
    def taught_s(self) -> float:
        """For how long scans of programs that run have gone to heat."""
        return self._scan_controller.taught_s(self._clock())

    def state(self) -> ScanState | None:
        """The scanner's settings and counters, None when it is not in use."""
        return None if self._control is None else self._control.scan_get()

    def close(self) -> None:
        """Let go of the module; it forgets our targets."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        self._targets = ScanTargets()
