# SPDX-License-Identifier: Apache-2.0
"""DAMON as an access source: sampled regions on a stock kernel.

DAMON checks one page a region each sampling interval and counts in how many intervals
it was accessed. `nr_accesses` out of `n` checks estimates the rate of accesses by
-ln(1 - nr/n) (the chance that a Poisson stream leaves an interval empty), so counts
keep their meaning, accesses per page, whatever the interval. Where nearly all memory is found
accessed in nearly all checks, nothing is known of any page but that, and nothing is told.

A small hot area is not lost in a giant region for three reasons: only ranges with pages
that can be moved are watched (no gaps, no libraries), they are cut where the pages' node
changes, and DAMON starts with the minimum number of regions, evenly cut, instead of one
region that has to be split at random (which took 6 s to reach 600 regions in the lab).

The sampling interval follows the CPU time that the kdamond takes: it is stretched at once as far
as its budget asks, and halved again while less than a quarter of that is taken.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from itertools import compress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tierd.config.watching import DamonConfig
from tierd.core import bounds
from tierd.core.access import AccessBatch, AccessSource, Availability, WatchedTarget, join_ranges
from tierd.core.errors import UnavailableError
from tierd.core.pagekey import PAGE_SHIFT, VPN_BITS
from tierd.core.tuning import DAMON, PACING
from tierd.sources.damon_kernel import Attributes, DamonTrace, DamonTree, TargetRegions

log = logging.getLogger(__name__)

BLIND_EVENT = {True: "reports_saturated", False: "tells_pages_apart"}


def cut_ranges(ranges: Sequence[tuple[int, int]], cell: int) -> list[tuple[int, int]]:
    """The same ranges, none longer than `cell` (a multiple of the page size)."""
    return [
        (start, min(start + cell, end))
        for first, end in ranges
        for start in range(first, end, cell)
    ]


def expand(
    table: npt.NDArray[np.uint64], targets: Sequence[int], checks: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float32]]:
    """Page keys, uint64[n], and counts, float32[n], of regions with accesses.

    Args:
        table: uint64[m, 4] regions as `damon_kernel.Regions` has them.
        targets: tierd's target numbers by DAMON's target index.
        checks: checks in one aggregation interval.
    """
    table = table[(table[:, 3] > 0) & (table[:, 0] < len(targets))]
    numbers = np.array(targets, np.uint64)[table[:, 0].astype(np.int64)]
    first = table[:, 1] >> np.uint64(PAGE_SHIFT)
    size = ((table[:, 2] >> np.uint64(PAGE_SHIFT)) - first).astype(np.int64)
    share = np.minimum(table[:, 3].astype(np.float64), checks - 0.5) / checks
    counts = (-checks * np.log1p(-share)).astype(np.float32)
    base = (numbers << np.uint64(VPN_BITS)) | first
    # A region's pages follow those of all regions before it (in turn: unsigned numbers wrap).
    before = (np.cumsum(size) - size).astype(np.uint64)
    pages = np.repeat(base - before, size)
    pages += np.arange(len(pages), dtype=np.uint64)
    return pages, np.repeat(counts, size)


def latest(
    table: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.uint64], int]:
    """The last whole one of the reports that follow each other in a table, and how many there are.

    Args:
        table: uint64[m, 4] regions as `damon_kernel.Regions` has them. A report's regions ascend by
            target and address.

    Returns:
        Its rows, and the number of reports. The last one counts as whole if it has half as many
        regions as the one before: it may have been read while the kernel wrote it.
    """
    if len(table) < 2:
        return table, len(table)
    target, start = table[:, 0], table[:, 1]
    again = (target[1:] < target[:-1]) | ((target[1:] == target[:-1]) & (start[1:] <= start[:-1]))
    begins = [0, *(np.flatnonzero(again) + 1).tolist()]
    ends = [*begins[1:], len(table)]
    if len(begins) > 1 and 2 * (ends[-1] - begins[-1]) < ends[-2] - begins[-2]:
        return table[begins[-2] : ends[-2]], len(begins)
    return table[begins[-1] : ends[-1]], len(begins)


def blind(table: npt.NDArray[np.uint64], checks: int) -> bool:
    """Whether nearly all memory of a report is used more often than it is checked.

    Args:
        table: uint64[m, 4] regions as `damon_kernel.Regions` has them.
    """
    size = table[:, 2] - table[:, 1]
    busy = table[:, 3] >= DAMON.saturated_fraction * checks
    return int(size[busy].sum()) > DAMON.saturated_fraction * int(size.sum())


def thread_cpu_ns(pid: int) -> int | None:
    """CPU time, ns, of a kernel thread; None when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/schedstat").read_text().split()
        return int(fields[0])
    except (OSError, ValueError, IndexError):
        return None


class DamonSource(AccessSource):
    """An `AccessSource`; see the module's text.

    Args:
        run_dir: where the mark is kept that tells our kdamond from another user's.
    """

    name = "damon"

    def __init__(
        self,
        settings: DamonConfig,
        *,
        root: Path = Path("/"),
        run_dir: Path = Path("/run/tierd"),
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._settings = settings
        self._tree = DamonTree(root, run_dir / "kdamond")
        self._trace = DamonTrace(root)
        self._alive: Callable[[int], bool] = lambda pid: (root / "proc" / str(pid)).exists()
        self._clock = clock
        self._stretch = 1
        self._targets: list[int] = []
        self._asked: list[TargetRegions] = []
        self._wanted: list[WatchedTarget] = []
        """What `_asked` was made of, while DAMON has taken all of it."""
        self._cpu_mark: tuple[int, int, int] | None = None
        self.cpu_share = 0.0
        self._blind = False
        self._left_out = 0

    def available(self) -> Availability:
        """Whether DAMON and its tracepoint can be used here."""
        if os.geteuid() != 0:
            return Availability(False, "DAMON's sysfs files belong to root", "run tierd as root")
        for part in (self._tree.available(), self._trace.available()):
            if not part.ok:
                return part
        return Availability(True, "DAMON through sysfs and damon:damon_aggregated")

    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        """Watch these ranges from now on; DAMON keeps what it learnt of unchanged ones."""
        if targets == self._wanted and self._tree.running():
            return
        pages = sum(r.end - r.start for target in targets for r in target.ranges)
        cell = max(1, pages // self._settings.min_regions) << PAGE_SHIFT
        asked = []
        for target in targets:
            ranges = [(r.start << PAGE_SHIFT, r.end << PAGE_SHIFT) for r in target.ranges]
            if ranges:
                joined = join_ranges(ranges, bounds.DAMON_RANGES)
                asked.append(TargetRegions(target.pid, tuple(cut_ranges(joined, cell))))
        numbers = [target.target for target in targets if target.ranges]
        # (A process that executed a program is another target; its ranges may be as before.)
        same = asked == self._asked and numbers == self._targets
        if not same or (asked and not self._tree.running()):
            self._wanted = []
            # Reports of the old numbering must not be read with the new one.
            self._trace.open()
            self._trace.read()
            self._targets, self._asked = numbers, asked
            self._start()
        if asked == self._asked:
            self._wanted = list(targets)

    def _start(self) -> None:
        """Let DAMON watch what is asked; targets that die under our hands are dropped.

        Raises:
            UnavailableError: DAMON refused although all targets live.
        """
        while self._asked:
            try:
                self._tree.start(self._attributes(), self._asked)
            except UnavailableError:
                self._wanted = []
                alive = [self._alive(target.pid) for target in self._asked]
                if all(alive):
                    # Nobody knows what DAMON watches now.
                    self._targets, self._asked = [], []
                    raise
                self._targets = list(compress(self._targets, alive))
                self._asked = list(compress(self._asked, alive))
            else:
                return
        self._tree.stop()

    def _attributes(self) -> Attributes:
        regions = max(10, self._settings.min_regions)
        return Attributes(
            sample_us=self._settings.sampling_interval_ns // 1000 * self._stretch,
            aggregation_us=self._settings.aggregation_interval_ns // 1000 * self._stretch,
            min_regions=regions,
            max_regions=max(regions + 1, self._settings.max_regions),
        )

    def poll(self) -> list[AccessBatch]:
        """Page counts of the aggregations that ended since the last call."""
        if not self._targets:
            return []
        regions = self._trace.read()
        now = self._clock()
        self._adapt(now)
        checks = max(
            1, self._settings.aggregation_interval_ns // self._settings.sampling_interval_ns
        )
        # Those between two passes say much the same: one of them stands for all.
        table, reports = latest(regions.table)
        if is_blind := blind(table, checks):
            self._left_out += reports
            table = table[:0]
        if is_blind != self._blind and reports:
            self._blind = is_blind
            log.info("source=damon event=%s left_out=%d", BLIND_EVENT[is_blind], self._left_out)
        pages, counts = expand(table, self._targets, checks)
        if reports > 1:
            counts *= np.float32(reports)
        if not len(pages) and not regions.lost:
            return []
        return [AccessBatch(pages, counts, now, source=self.name, lost=regions.lost)]

    @property
    def report_ns(self) -> int:
        """Time between two aggregations; 0 while nothing is watched."""
        return self._settings.aggregation_interval_ns * self._stretch if self._targets else 0

    @property
    def left_out(self) -> int:
        """Reports that were discarded, as nearly all regions were found in use."""
        return self._left_out

    def _adapt(self, now: int) -> None:
        """Stretch or shorten the intervals by the CPU share that the kdamond took."""
        if self._cpu_mark is not None and now - self._cpu_mark[1] < PACING.upkeep_interval_ns:
            return
        pid = self._tree.kdamond_pid()
        spent = thread_cpu_ns(pid) if pid else None
        if pid is None or spent is None:
            self._cpu_mark = None
            return
        if self._cpu_mark is None or self._cpu_mark[0] != pid:
            self._cpu_mark = (pid, now, spent)
            return
        _, then, before = self._cpu_mark
        self._cpu_mark = (pid, now, spent)
        self.cpu_share = (spent - before) / (now - then)
        wanted = self._stretch
        if self.cpu_share > self._settings.cpu_limit:
            # At once as far as it takes: each step would cost its time above the budget.
            wanted *= 2 ** math.ceil(math.log2(self.cpu_share / self._settings.cpu_limit))
            wanted = min(DAMON.max_interval_factor, wanted)
        elif self.cpu_share < self._settings.cpu_limit / 4:
            wanted = max(1, wanted // 2)
        if wanted != self._stretch:
            self._stretch = wanted
            self._start()

    def close(self) -> None:
        """Stop the kdamond and remove the trace instance."""
        self._tree.stop()
        self._trace.close()
        self._targets, self._asked, self._wanted = [], [], []
