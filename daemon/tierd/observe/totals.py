# SPDX-License-Identifier: Apache-2.0
"""Running totals of the loop, as log lines and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from tierd.core import migration
from tierd.core.migration import Fate, MigrationPlan, MigrationResult, SplitFate
from tierd.core.pagekey import I64Array
from tierd.core.quantiles import Quantiles

_FATES: Final = tuple(fate.name.lower() for fate in Fate)


@dataclass
class MigrationTotals:
    """Page migrations since the start, whoever made them; pages are of 4 KiB.

    Attributes:
        watched: whether anything was counted at all.
        by_kernel: moved by the kernel's own balancing or demotion; of these,
            demoted_by_kernel: by its reclaim.
        by_tierd: moved by this process. by_others: by other programs and DAMON.
        within_node: got another frame on their node (compaction and such).
        ping_pong_pages: moved again within a minute of an earlier move (ping-pong).
        unclear: moved while pages moved within nodes as well, so not looked at for bounces.
        tasks_moved: tasks that the scheduler moved to another node.
        lost: moves whose page was not kept; forgotten: pages for which memory was too short.
        unseen: moves that /proc/vmstat has and the program did not see.
    """

    watched: bool = False
    by_kernel: int = 0
    demoted_by_kernel: int = 0
    by_tierd: int = 0
    by_others: int = 0
    within_node: int = 0
    failed: int = 0
    ping_pong: int = 0
    unclear: int = 0
    tasks_moved: int = 0
    lost: int = 0
    forgotten: int = 0
    unseen: int = 0


@dataclass
class Totals:
    """Counts since the start; pages are of 4 KiB."""

    ticks: int = 0
    samples: int = 0
    lost_samples: int = 0
    planned_promotions: int = 0
    planned_demotions: int = 0
    promoted_pages: int = 0
    demoted_pages: int = 0
    moved_bytes: int = 0
    move_ns: int = 0
    move_cpu_ns: int = 0
    retries: int = 0
    move_page_ns: Quantiles = field(default_factory=Quantiles)
    """Time of a move_pages call for each 4 KiB page that it was made for, ns; one value a page."""
    move_calls_dropped: int = 0
    """Calls that are missing there."""
    tick_ns: Quantiles = field(default_factory=Quantiles)
    """Time that a tick took, ns."""
    fates: Counter[str] = field(default_factory=Counter)
    errors: Counter[int] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    splits: Counter[str] = field(default_factory=Counter)
    """2 MiB folios that were to be split, by what became of them."""
    migrations: MigrationTotals = field(default_factory=MigrationTotals)
    ping_pong_pages: int = 0
    """Promoted again within 5 s of a demotion."""
    ping_pong_prevented: int = 0
    """... that would have been, but for the least residency."""
    scan_phase_changes: int = 0
    """Phase changes that scans found."""
    epoch_restarts: int = 0
    """... that bursts of misses showed."""
    tell_native: Callable[[], dict[str, Any]] = dict
    """Counters of the fast path (struct tierd_promoter_stats) at the end of the last tick."""
    tell_account: Callable[[], dict[str, Any]] = dict
    """Tells the standing account."""
    tell_refusals: Callable[[], dict[str, Any]] = dict
    """Tells what is left alone."""
    part_ns: Counter[str] = field(default_factory=Counter)
    """Time that the parts of ticks took, by name."""
    part_cpu_ns: Counter[str] = field(default_factory=Counter)
    """... CPU time of the loop's thread: without the moves, which are the worker's."""

    def add_parts(self, ns: Mapping[str, int], cpu_ns: Mapping[str, int]) -> None:
        """Add time that parts of a tick took, and CPU time, by name."""
        # Not Counter.update, which first finds out what it was given.
        for total, spent in ((self.part_ns, ns), (self.part_cpu_ns, cpu_ns)):
            for part, own in spent.items():
                total[part] += own

    def add_plan(self, plan: MigrationPlan) -> None:
        """Count what was planned and what was held back."""
        if plan.notes:
            self.notes.update(plan.notes)
        if not len(plan):
            return
        up, order = plan.direction == migration.PROMOTE, plan.order
        if np.count_nonzero(order):
            size = np.int64(1) << order.astype(np.int64)
            promotions, pages = int(size[up].sum()), int(size.sum())
        else:
            promotions, pages = int(np.count_nonzero(up)), len(plan)
        self.planned_promotions += promotions
        self.planned_demotions += pages - promotions

    def add_report(self, report: MigrationResult) -> None:
        """Count what became of a plan."""
        if len(report.plan):
            pages = report.counts()
            moved = pages[migration.MOVED]
            self.promoted_pages += moved[migration.PROMOTE]
            self.demoted_pages += moved[migration.DEMOTE]
            for name, counts in zip(_FATES, pages, strict=True):
                if any(counts):
                    self.fates[name] += sum(counts)
        self.moved_bytes += report.moved_bytes
        self.move_ns += report.duration_ns
        self.move_cpu_ns += report.cpu_ns
        self.retries += report.retries
        if report.errors:
            self.errors.update(report.errors)
        if len(report.split_fate):
            for split, count in zip(*np.unique(report.split_fate, return_counts=True), strict=True):
                self.splits[SplitFate(split).name.lower()] += int(count)

    def add_calls(self, calls: I64Array, dropped: int) -> None:
        """Take in move_pages calls (`NativeMover.take_calls`)."""
        self.move_calls_dropped = dropped
        if len(calls):
            self.move_page_ns.add(calls[:, 0] / calls[:, 1], calls[:, 1])

    def as_json(self) -> dict[str, Any]:
        """All counts, JSON types only."""
        return {
            "ticks": self.ticks,
            "samples": self.samples,
            "lost_samples": self.lost_samples,
            "planned_promotions": self.planned_promotions,
            "planned_demotions": self.planned_demotions,
            "promoted_pages": self.promoted_pages,
            "demoted_pages": self.demoted_pages,
            "moved_bytes": self.moved_bytes,
            "move_seconds": self.move_ns / 1e9,
            "move_cpu_seconds": self.move_cpu_ns / 1e9,
            "move_page_ns": self.move_page_ns.as_json(),
            "move_calls_dropped": self.move_calls_dropped,
            "tick_ns": self.tick_ns.as_json(),
            "busy_retries": self.retries,
            "migration_results": dict(self.fates),
            "errors": {str(number): count for number, count in self.errors.items()},
            "splits": dict(self.splits),
            "rejected": dict(self.notes),
            "migrations": asdict(self.migrations) if self.migrations.watched else None,
            "ping_pong_pages": self.ping_pong_pages,
            "ping_pong_prevented": self.ping_pong_prevented,
            "scan_phase_changes": self.scan_phase_changes,
            "fast_path": self.tell_native(),
            "account": self.tell_account(),
            "left_alone": self.tell_refusals(),
            "part_cpu_seconds": {p: spent / 1e9 for p, spent in self.part_cpu_ns.items()},
            "part_seconds": {part: spent / 1e9 for part, spent in self.part_ns.items()},
        }
