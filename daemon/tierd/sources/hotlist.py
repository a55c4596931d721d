# SPDX-License-Identifier: Apache-2.0
"""What the entries of cards' hot lists mean in accesses.

**What an entry means.** A card counts requests a page since the start of its epoch and
reports a page once an epoch, when its count passes the threshold. Count and age of the
epoch give the page's rate; the accesses counted so far go to heat at once. Should the page
still be on the card when the epoch ends, what it had since is credited then, at the same
rate: it is not reported again, however often it is used. Pages below the threshold are not
told, and have no heat.

**A page's own copy.** A page that is demoted into a card's memory is written there, line by
line, and may be reported for that. These requests are taken off its count.

**One unit.** Cards see memory behind them only. Pages elsewhere, those of the fast tier
above all, come from the module's accessed-bit scanner, which runs beside the cards for the
nodes, or parts of nodes, that no card sees. An accessed bit says nothing beyond about 2.8
accesses a scan, so a card's rates are cut there too: a page is as hot as the scanner would
have found it, wherever it lies. Where scans see part of the time only
(`sources.sampling_interval`), only that part of a card's requests goes to heat as well. And a page
that a program passes makes a request for each of its lines, of which a scan sees one use: `visits`.
A card counts cache misses and write-backs, and an accessed bit any use: a page that lives in the
cache is hot for one and cold for the other. It is not promoted, and, being accessed, not demoted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tierd._native import ffi, lib
from tierd.core import bounds
from tierd.core.access import LINES_PER_PAGE, AccessBatch, F32Array
from tierd.core.migration import filled
from tierd.core.pagekey import PageKeySet, U64Array
from tierd.core.tuning import HMU
from tierd.sources.kmod.ring import RecordArray
from tierd.sources.scan_records import COUNTS

SCAN_CEILING: Final = float(COUNTS.max())
"""Accesses a scan beyond which an accessed bit shows no difference."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """A card's present epoch.

    Attributes:
        start_ns, before_ns: its start, and that of the one before; CLOCK_MONOTONIC.
        scale: requests that a count stands for (down-sampling).
    """

    start_ns: int
    before_ns: int
    scale: int = 1


@dataclass(frozen=True, slots=True)
class _Reported:
    """Pages reported in this epoch: key, rate, time of the report."""

    page: U64Array
    rate: F32Array
    time_ns: U64Array


class HotList:
    """Turns hot records into accesses, and remembers an epoch's reports.

    Args:
        source: name for the batches.
        scan_s: time between two scans of a page; may be changed, and `dilution`, the share of it
            whose accesses such a scan sees.
        visits: accesses, as a scan sees them, that a request stands for; may be changed, and
            `copy_requests`, what a page's own copy adds to its count.
    """

    def __init__(self, source: str, scan_s: float, visits: float = 1.0) -> None:
        self._source = source
        self.visits = visits
        self.copy_requests = LINES_PER_PAGE
        self.scan_s = scan_s
        self.dilution = 1.0
        self.epochs: dict[int, Epoch] = {}
        self._reported: list[_Reported] = []
        self._left = PageKeySet()
        self._arrived: list[tuple[int, U64Array]] = []
        self._copied = PageKeySet()

    @property
    def rate_cap(self) -> float:
        """Accesses a second beyond which a page's heat does not grow."""
        return SCAN_CEILING / (self.scan_s * self.dilution)

    def begin(self, card: int, now_ns: int, scale: int) -> None:
        """A card's counters were cleared."""
        old = self.epochs.get(card)
        before = now_ns if old is None else old.start_ns
        self.epochs[card] = Epoch(now_ns, before, scale)

    def forget(self, card: int) -> None:
        """A card counts no more."""
        self.epochs.pop(card, None)

    def leave(self, page: U64Array) -> None:
        """These pages, uint64[n] keys, are not on a card any more."""
        self._left.add(page)

    def arrive(self, page: U64Array, now_ns: int) -> None:
        """These pages, uint64[n] keys, were demoted, maybe into a card's memory, until now."""
        if len(page):
            self._arrived.append((now_ns, page))
            self._copied.add(page)

    def take(self, records: RecordArray, now_ns: int, lost: int) -> AccessBatch:
        """Hot records as the accesses since the start of their epoch."""
        n = len(records)
        page, told = np.empty(n, np.uint64), np.empty(n, np.uint64)
        count, rate = np.empty(n, np.float32), np.empty(n, np.float32)
        current, node = np.empty(n, np.bool_), np.empty(n, np.int16)
        found = 0
        if n:
            copied = None
            if self._copied:
                copied = self._copied.has(records["page"])
            found = lib.tierd_hot_records(
                ffi.from_buffer("struct tierd_hot_record[]", np.ascontiguousarray(records)),
                n,
                ffi.NULL if copied is None else ffi.from_buffer("uint8_t[]", copied),
                self._weights(),
                ffi.from_buffer("uint64_t[]", page),
                ffi.from_buffer("float[]", count),
                ffi.from_buffer("float[]", rate),
                ffi.from_buffer("uint64_t[]", told),
                ffi.from_buffer("uint8_t[]", current),
                ffi.from_buffer("int16_t[]", node),
            )
        if found < n:
            page, count, node = page[:found].copy(), count[:found].copy(), node[:found].copy()
            rate, told, current = rate[:found], told[:found], current[:found]
        if self.dilution < 1:
            count *= np.float32(self.dilution)
            rate *= np.float32(self.dilution)
        if np.count_nonzero(current) == len(current):
            self._reported.append(_Reported(page, rate, told))
        else:
            self._reported.append(_Reported(page[current], rate[current], told[current]))
        return AccessBatch(
            page=page,
            count=count,
            time_ns=now_ns,
            source=self._source,
            lost=lost,
            node=node,
        )

    def _weights(self) -> Any:
        """What records are weighed with now, for C."""
        given = ffi.new("struct tierd_hot_epochs *")
        for number, epoch in self.epochs.items():
            given.start_ns[number], given.before_ns[number] = epoch.start_ns, epoch.before_ns
            given.scale[number] = epoch.scale
        given.least_age_ns = round(bounds.LEAST_AGE_S * 1e9)
        given.rate_cap = self.rate_cap
        given.copy_requests, given.visits = self.copy_requests, self.visits
        return given

    def credit(self, now_ns: int) -> AccessBatch:
        """What this epoch's pages have had since they were reported, or credited last.

        They are hotter than those that are reported later, and would seem to be colder.
        """
        page, rate, told = self._stayed()
        if not len(page):
            return empty_batch(self._source, now_ns, 0)
        self._reported = [_Reported(page, rate, filled(len(page), now_ns, np.uint64))]
        return self._since(page, rate, told, now_ns)

    def end_epoch(self, now_ns: int) -> AccessBatch:
        """What this epoch's pages had since they were reported, unless they have left."""
        self._arrived = [each for each in self._arrived if now_ns - each[0] < HMU.copy_settles_ns]
        self._copied = PageKeySet()
        for _, arrived in self._arrived:
            self._copied.add(arrived)
        page, rate, told = self._stayed()
        self._left = PageKeySet()
        self._reported = []
        return self._since(page, rate, told, now_ns)

    def _stayed(self) -> tuple[U64Array, F32Array, U64Array]:
        """This epoch's pages that have not left: keys, rates, times."""
        if not self._reported:
            return np.empty(0, np.uint64), np.empty(0, np.float32), np.empty(0, np.uint64)
        page = np.concatenate([each.page for each in self._reported])
        rate = np.concatenate([each.rate for each in self._reported])
        told = np.concatenate([each.time_ns for each in self._reported])
        if self._left:
            stays = ~self._left.has(page)
            page, rate, told = page[stays], rate[stays], told[stays]
        return page, rate, told

    def _since(self, page: U64Array, rate: F32Array, told: U64Array, now_ns: int) -> AccessBatch:
        """Accesses at these rates since these times."""
        if not len(page):
            return empty_batch(self._source, now_ns, 0)
        seconds = np.maximum(now_ns - told.astype(np.int64), 0) / 1e9
        return AccessBatch(
            page=page,
            count=(rate * seconds).astype(np.float32),
            time_ns=now_ns,
            source=self._source,
        )


def empty_batch(source: str, now_ns: int, lost: int) -> AccessBatch:
    """No accesses, and what was lost."""
    page = np.empty(0, np.uint64)
    return AccessBatch(page, np.empty(0, np.float32), now_ns, source, lost=lost)
