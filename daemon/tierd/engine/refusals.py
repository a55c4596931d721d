# SPDX-License-Identifier: Apache-2.0
"""`Refusals`: memory that the kernel does not move is left alone, and tried again ever later.

What move_pages(2) answers (mm/migrate.c, do_pages_move), and what is made of it:

| answer | meaning | here |
|---|---|---|
| EACCES of a page | other processes map it, too | `REFUSED`: it lasts |
| EACCES of the call | the node is not in the process's cpuset | `REFUSED` |
| EPERM, ENODEV | a security module forbids it, or there is no such node | `REFUSED` |
| EBUSY, EAGAIN | pinned (io_uring, RDMA, a device), or in use just now | `BUSY`: it may pass |
| others | unknown | `FAILED`: it may pass |
| ENOMEM | the node has no free page, which is not the page's affair | not remembered |
| ENOENT, EFAULT, ESRCH, EINVAL | there is no such page, or no such process | not remembered |

A memory policy is no answer of move_pages: `tierd.workloads.mappings` leaves bound mappings out.

What lasts is tried again after `bounds.REREAD_NS`, what may pass after `PACING.upkeep_interval_ns`,
and after each refusal for twice as long as before. A mapping of which `PACING.few_pages` of 4 KiB
were refused, and none moved meanwhile, is left alone as a whole: one huge folio is enough, because
its refusal takes as long as its move. What failures leave a target of its budget is the account of
`tierd.policy.limits.RateLimiter`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd.core import bounds
from tierd.core.migration import MOVED, Fate, MigrationResult, U8Array
from tierd.core.pagekey import HUGE_PAGES, VPN_BITS, BoolArray, I64Array, U64Array, target_of
from tierd.core.tuning import PACING
from tierd.hotness.table import HeatTable

ROW: Final = np.dtype(
    [
        ("start", "u8"),
        ("end", "u8"),
        ("until_ns", "i8"),
        ("wait_ns", "i8"),
        ("probe", "u8"),
        ("probing", "?"),
        ("fate", "u1"),
    ]
)
"""Page keys [start, end); when it is tried again, 0: from now on; for how long it was left alone;
of a mapping: the page with which the retry begins, and whether it has begun; how it was refused."""
KEPT: Final = (Fate.REFUSED, Fate.BUSY, Fate.FAILED)
WORDS: Final[Mapping[int, str]] = {
    Fate.REFUSED: "other processes map it, too, or the node is not in its process's cpuset",
    Fate.BUSY: "it is pinned (by io_uring, RDMA or a device), or was in use at each try",
    Fate.FAILED: "the kernel gave an error that tierd_move_errors_total counts",
}
RowArray = npt.NDArray[np.void]


class _Rows:
    """Rows in the order of `start`, which differ in it."""

    def __init__(self) -> None:
        self.rows: RowArray = np.empty(0, ROW)

    def known(self, start: U64Array) -> tuple[npt.NDArray[np.intp], BoolArray]:
        """Places of those rows that begin with one of `start`, and which of `start` these are."""
        at = np.searchsorted(self.rows["start"], start)
        there = at < len(self.rows)
        there[there] = self.rows["start"][at[there]] == start[there]
        return at[there], there

    def refuse(
        self, start: U64Array, end: U64Array, fate: U8Array, now_ns: int, waited_ns: int = 0
    ) -> RowArray:
        """New rows, ascending, which wait for twice as long as known ones, and as `waited_ns`."""
        start, first = np.unique(start, return_index=True)
        new = np.zeros(len(start), ROW)
        new["start"], new["end"], new["fate"] = start, end[first], fate[first]
        lasts = new["fate"] == Fate.REFUSED
        new["wait_ns"] = np.where(lasts, bounds.REREAD_NS, PACING.upkeep_interval_ns)
        known, which = self.known(start)
        new["wait_ns"][which] = np.maximum(2 * self.rows["wait_ns"][known], new["wait_ns"][which])
        new["wait_ns"] = np.maximum(new["wait_ns"], 2 * waited_ns)
        new["wait_ns"] = np.minimum(new["wait_ns"], bounds.MAX_LEFT_ALONE_NS)
        new["until_ns"] = now_ns + new["wait_ns"]
        rest = np.delete(self.rows, known)
        self.rows = np.insert(rest, np.searchsorted(rest["start"], start), new)
        return new

    def take(self, chosen: BoolArray) -> RowArray:
        """Rows that are forgotten."""
        gone, self.rows = self.rows[chosen], self.rows[~chosen]
        return gone

    def probes(self, now_ns: int) -> RowArray:
        """Rows whose wait is over and whose retry begins now; it has as long again to end."""
        due = (self.rows["until_ns"] > 0) & (self.rows["until_ns"] <= now_ns)
        due &= ~self.rows["probing"]
        found = self.rows[due]
        self.rows["until_ns"][due] = now_ns + found["wait_ns"]
        self.rows["probing"][due] = True
        return found

    def due(self, now_ns: int) -> RowArray:
        """Rows whose time has come; each once."""
        due = (self.rows["until_ns"] > 0) & (self.rows["until_ns"] <= now_ns)
        self.rows["until_ns"][due] = 0
        return self.rows[due]

    def of(self, page: U64Array) -> RowArray:
        """The rows that have these pages, uint64[n] keys, n of them; of zeros where there is none.

        No two rows have a page in common.
        """
        if not len(self.rows):
            return np.zeros(len(page), ROW)
        found = self.rows[np.searchsorted(self.rows["start"], page, side="right") - 1]
        found[(page < found["start"]) | (page >= found["end"])] = 0
        return found


def _by_mapping(spans: U64Array, page: U64Array, pages: I64Array) -> I64Array:
    """Sums of `pages`, int64[n], of `page`, uint64[n], in each of `spans`, uint64[m, 2]."""
    at = np.searchsorted(spans[:, 0], page, side="right") - 1
    if not len(spans):
        return np.zeros(0, np.int64)
    within = (at >= 0) & (page < spans[at, 1])
    return np.bincount(at[within], pages[within], minlength=len(spans)).astype(np.int64)


def _block(page: Any) -> Any:
    """The first page of the 2 MiB that pages, uint64, are in."""
    return page & ~np.uint64(HUGE_PAGES - 1)


class Refusals:
    """What was refused. Its pages are held in heat, so that no policy plans them.

    Args:
        mappings: pages [start, end) of a target's mappings, uint64[n, 2], ascending.
        space: most folios, and most mappings, that are remembered.

    Attributes:
        retried: folios that were tried again, by what became of them: "moved", "refused".
        dropped: folios and mappings that were forgotten for want of space.
    """

    def __init__(self, heat: HeatTable, mappings: Callable[[int], U64Array], space: int) -> None:
        self._heat = heat
        self._mappings_of = mappings
        self._space = space
        self._folios, self._mappings = _Rows(), _Rows()
        self._refused: Counter[int] = Counter()
        """Pages of 4 KiB refused since one moved, by the key of their mapping's first page."""
        self.retried: Counter[str] = Counter(moved=0, refused=0)
        self.dropped = 0

    def see(self, report: MigrationResult, now_ns: int) -> None:
        """Take in what became of moves."""
        page, fate = report.plan.page, report.fate
        refused, moved = np.isin(fate, KEPT), fate == MOVED
        known = len(self._folios.rows) + len(self._mappings.rows) + len(self._refused)
        if not (known or refused.any()):
            return
        target = target_of(page)
        again = (self._folios.of(page)["end"] > 0) | (self._mappings.of(page)["end"] > 0)
        self.retried["moved"] += int(np.count_nonzero(again & moved))
        self.retried["refused"] += int(np.count_nonzero(again & refused))
        self._folios.take(np.isin(self._folios.rows["start"], page[moved & again]))
        concerned = {key >> VPN_BITS for key in self._refused}
        concerned.update(np.unique(target_of(self._mappings.rows["start"])).tolist())
        concerned.update(np.unique(target[refused]).tolist())
        pages = np.int64(1) << report.plan.order.astype(np.int64)
        for number in concerned.intersection(np.unique(target).tolist()):
            own = target == number
            spans = self._mappings_of(number) | np.uint64(number << VPN_BITS)
            good, bad = (
                _by_mapping(spans, page[own & which], pages[own & which])
                for which in (moved, refused)
            )
            self._see_mappings(spans, good, bad, (page[own & refused], fate[own & refused]), now_ns)
        refused &= self._mappings.of(page)["until_ns"] == 0
        start = page[refused]
        rows = self._folios.refuse(start, start + np.uint64(1), fate[refused], now_ns)
        self._hold(rows, held=True)
        self._trim(self._folios)
        self._trim(self._mappings)

    def release(self, now_ns: int) -> None:
        """Let policies plan again what has waited long enough.

        Of a mapping only the 2 MiB around one refused page are released first, because a retry of
        all of it is costly. If nothing there is planned before the wait has passed again, the whole
        mapping is released.
        """
        if not (len(self._folios.rows) or len(self._mappings.rows)):
            return
        probes = self._mappings.probes(now_ns)
        block = _block(probes["probe"])
        probes["start"] = np.maximum(probes["start"], block)
        probes["end"] = np.minimum(probes["end"], block + np.uint64(HUGE_PAGES))
        self._hold(probes, held=False)
        for rows in (self._folios, self._mappings):
            self._hold(rows.due(now_ns), held=False)

    def forget(self, target: int) -> None:
        """A target ended: its number may be another's from now on."""
        for rows in (self._folios, self._mappings):
            rows.take(target_of(rows.rows["start"]) == target)
        for key in [key for key in self._refused if key >> VPN_BITS == target]:
            del self._refused[key]

    def why(self, key: int, now_ns: int) -> str:
        """Why a page is left alone, and until when; "" if it is not."""
        for whole, rows in (("its mapping", self._mappings), ("it", self._folios)):
            row = rows.of(np.array([key], np.uint64))[0]
            if row["probing"] and _block(row["probe"]) == _block(np.uint64(key)):
                return ""
            if row["until_ns"] > now_ns:
                rest_s = (int(row["until_ns"]) - now_ns) / 1e9
                return (
                    f"the kernel refused to move {whole}: {WORDS[int(row['fate'])]}; it is left "
                    f"alone for {int(row['wait_ns']) / 1e9:g} s, of which {rest_s:.0f} s are left"
                )
        return ""

    def pages(self) -> dict[str, int]:
        """Pages that are left alone, by result; of a mapping all, whether they are there or not."""
        found = dict.fromkeys(KEPT, 0)
        for rows in (self._folios.rows, self._mappings.rows):
            held = rows[rows["until_ns"] > 0]
            for fate in KEPT:
                own = held[held["fate"] == fate]
                found[fate] += int((own["end"] - own["start"]).sum())
        return {fate.name.lower(): count for fate, count in found.items()}

    def spans(self) -> list[tuple[int, int]]:
        """Mappings that are left alone, as page keys [start, end), ascending."""
        held = self._mappings.rows[self._mappings.rows["until_ns"] > 0]
        return list(zip(held["start"].tolist(), held["end"].tolist(), strict=True))

    def as_json(self) -> dict[str, Any]:
        """For `tierd status`."""
        return {"pages": self.pages(), "retried": dict(self.retried), "dropped": self.dropped}

    def _see_mappings(
        self,
        spans: U64Array,
        good: I64Array,
        bad: I64Array,
        refusals: tuple[U64Array, U8Array],
        now_ns: int,
    ) -> None:
        """Leave mappings alone of which enough was refused and nothing moved.

        Args:
            spans: a target's mappings, uint64[m, 2] page keys.
            good, bad: pages of each that moved, and that were refused.
        """
        refused, fate = refusals
        for at in np.flatnonzero(good | bad).tolist():
            key = int(spans[at, 0])
            if good[at]:
                self._refused.pop(key, None)
                self._hold(self._mappings.take(self._mappings.rows["start"] == key), held=False)
                continue
            self._refused[key] += int(bad[at])
            start, end = spans[at : at + 1, 0], spans[at : at + 1, 1]
            # Mappings may have changed their bounds.
            rows = self._mappings.rows
            before = rows[(rows["start"] < end) & (rows["end"] > key)]
            if self._refused[key] < PACING.few_pages and not len(before):
                continue
            del self._refused[key]
            own = (refused >= start) & (refused < end)
            how = fate[own][:1]
            self._hold(before, held=False)
            self._mappings.take((rows["start"] < end) & (rows["end"] > key))
            row = self._mappings.refuse(start, end, how, now_ns, before["wait_ns"].max(initial=0))
            self._mappings.rows["probe"][self._mappings.known(start)[0]] = refused[own][0]
            self._hold(row, held=True)
            rows = self._folios.rows
            self._folios.take((rows["start"] >= start) & (rows["start"] < end))

    def _hold(self, rows: RowArray, *, held: bool) -> None:
        if len(rows):
            self._heat.hold(np.column_stack([rows["start"], rows["end"]]), held)

    def _trim(self, table: _Rows) -> None:
        """Forget what is tried again next, for want of space."""
        excess = len(table.rows) - self._space
        if excess > 0:
            chosen = np.zeros(len(table.rows), np.bool_)
            chosen[np.argsort(table.rows["until_ns"], kind="stable")[:excess]] = True
            self._hold(table.take(chosen), held=False)
            self.dropped += excess
