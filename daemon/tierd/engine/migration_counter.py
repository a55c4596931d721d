# SPDX-License-Identifier: Apache-2.0
"""`MigrationCounter`: counts page migrations by all movers (kernel, tierd, others), and ping-pong.

A page that moves again within a minute counts as ping-pong, whichever mover moved it. Pages are
distinguished by their virtual page number alone, because the kernel names the process only when a
process moves its own pages. So pages of two processes that have the same number count as one.
"""

from __future__ import annotations

import logging
from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core import bounds
from tierd.core.errors import UnavailableError
from tierd.core.logfmt import logfmt
from tierd.core.pagekey import VPN_MASK, U64Array
from tierd.core.tuning import PACING
from tierd.observe.tick_record import TickRecord
from tierd.observe.totals import MigrationTotals
from tierd.sources.migrations import Migrations, MigrationWatch

log = logging.getLogger(__name__)

WITHIN_NODE: Final = frozenset(
    ("compaction", "memory_failure", "memory_hotplug", "contig_range", "longterm_pin")
)
"""Reasons (trace/events/migrate.h) for which a page changes its frame and not its tier."""


class MigrationCounter:
    """An `Observer` of ticks and a `BackgroundService` of the loop, which starts the `watch`."""

    name = "migrations"

    def __init__(self, watch: MigrationWatch, totals: MigrationTotals | None = None) -> None:
        self.totals = totals or MigrationTotals()
        self._watch = watch
        self._recent = Recent()
        self._due_ns = 0
        self._reported = False
        self.running = False

    def start(self) -> None:
        """Begin to load the BPF program; counting begins once it is attached.

        Raises:
            UnavailableError: the program cannot be loaded here.
        """
        state = self._watch.available()
        if not state.ok:
            raise UnavailableError(state.reason, hint=state.hint)
        self._watch.start()
        self.running = True

    def on_tick(self, tick: TickRecord) -> None:
        """Take in the migrations since the last call, about once a second."""
        if not self.running or tick.end_ns < self._due_ns:
            return
        self._due_ns = tick.end_ns + PACING.upkeep_interval_ns
        try:
            found = self._watch.poll()
        except UnavailableError as error:
            log.warning(
                logfmt(event="migrations_unavailable", reason=error.message, hint=error.hint)
            )
            self.close()
            return
        if found is not None:
            self.totals.watched = True
            self._add(found, tick.end_ns)

    def _add(self, found: Migrations, now_ns: int) -> None:
        totals = self.totals
        for reason, moved in found.by_reason.items():
            totals.failed += moved.failed
            if reason in WITHIN_NODE:
                totals.within_node += moved.succeeded
            else:
                totals.by_tierd += moved.own
                totals.by_others += moved.succeeded - moved.own
        totals.by_kernel += found.by_kernel
        # The kernel never moves on its own behalf in tierd's process, so this is no less than 0.
        totals.by_others -= found.by_kernel
        totals.demoted_by_kernel += sum(found.demoted_from.values())
        totals.tasks_moved += found.tasks_moved
        totals.lost += found.lost
        totals.unseen += found.unseen
        if found.by_reason.keys() & WITHIN_NODE:
            # The event does not say which of the pages changed their tier.
            totals.unclear += len(found.page)
        else:
            again, forgotten = self._recent.add(found.page, found.moves, now_ns)
            totals.ping_pong += again
            totals.forgotten += forgotten
        if found.by_kernel and not self._reported:
            self._reported = True
            log.warning(
                logfmt(
                    event="kernel_moves_pages_too",
                    pages=found.by_kernel,
                    reasons={r: m.succeeded for r, m in found.by_reason.items() if m.succeeded},
                    hint="tierd doctor tells which of the kernel's mechanisms are on",
                )
            )

    def close(self) -> None:
        """Detach, and end a process that still loads the program."""
        self.running = False
        self._watch.close()


class Recent:
    """Pages that moved in the last window, in two halves; the older half is dropped.

    Args:
        window_ns: a page is remembered for half of it to the whole; None for
            `bounds.PING_PONG_WINDOW_NS`.
        most: pages in each half; None for `bounds.COUNTED_PAGES`.
    """

    def __init__(self, window_ns: int | None = None, most: int | None = None) -> None:
        self._half_ns = (bounds.PING_PONG_WINDOW_NS if window_ns is None else window_ns) // 2
        self._most = bounds.COUNTED_PAGES if most is None else most
        self._since_ns: int | None = None
        self._old = self._new = np.empty(0, np.uint64)

    def add(self, keys: U64Array, moves: npt.NDArray[np.uint32], now_ns: int) -> tuple[int, int]:
        """(pages among `keys` that moved before or twice now, pages not remembered)."""
        self._turn(now_ns)
        page, where = np.unique(keys & np.uint64(VPN_MASK), return_inverse=True)
        times = np.zeros(len(page), np.int64)
        np.add.at(times, where, moves)
        known = np.isin(page, self._new, assume_unique=True)
        before = known | np.isin(page, self._old, assume_unique=True)
        fresh = page[~known]
        space = max(0, self._most - len(self._new))
        self._new = np.concatenate([self._new, fresh[:space]])
        return int(np.count_nonzero(before | (times > 1))), max(0, len(fresh) - space)

    def _turn(self, now_ns: int) -> None:
        if self._since_ns is None:
            self._since_ns = now_ns
        passed = (now_ns - self._since_ns) // self._half_ns
        if passed >= 1:
            self._old = self._new if passed == 1 else np.empty(0, np.uint64)
            self._new = np.empty(0, np.uint64)
            self._since_ns += passed * self._half_ns
