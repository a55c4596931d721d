# SPDX-License-Identifier: Apache-2.0
"""`HeatTable`: the hotness of each page, in bounded memory; the inner loops are C."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd._native import ffi, lib
from tierd.core import bounds
from tierd.core.access import AccessBatch, F32Array, WatchedRange
from tierd.core.bounds import MAX_TARGETS
from tierd.core.migration import MigrationResult, U8Array
from tierd.core.pagekey import BoolArray, I16Array, U64Array, target_of
from tierd.hotness.view import HeatStats, PageSet


def _array(values: npt.NDArray[Any], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(values, dtype=dtype)


def _pointer(kind: str, values: npt.NDArray[Any]) -> Any:
    return ffi.from_buffer(kind, values) if len(values) else ffi.NULL


_COLUMNS: Final = tuple(each.name for each in dataclasses.fields(PageSet))


def _taken(pages: PageSet, index: npt.NDArray[np.intp]) -> PageSet:
    return PageSet(*(getattr(pages, name)[index] for name in _COLUMNS))


class _Buffers:
    """Arrays for an answer of so many folios, and C's pointers to them; used again."""

    def __init__(self, folios: int) -> None:
        self.folios = folios
        self._columns = (
            np.empty(folios, np.uint64),
            np.empty(folios, np.float32),
            np.empty(folios, np.int16),
            np.empty(folios, np.uint8),
            np.empty(folios, np.float32),
        )
        kinds = ("uint64_t[]", "float[]", "int16_t[]", "uint8_t[]", "float[]")
        self.pointers = tuple(map(ffi.from_buffer, kinds, self._columns))

    def first(self, found: int) -> PageSet:
        """A copy of the first `found` folios."""
        page, heat, node, order, idle_s = self._columns
        return PageSet(
            page=page[:found].copy(),
            heat=heat[:found].copy(),
            node=node[:found].copy(),
            order=order[:found].copy(),
            idle_s=idle_s[:found].copy(),
        )


class HeatTable:
    """Decayed accesses per 4 KiB of each tracked folio.

    Heat decays by half each `half_life_s`. Times are CLOCK_MONOTONIC nanoseconds and
    come from batches and from `advance`; the table reads no clock. Methods may be
    called from any thread; they run one at a time.

    Folios are 4 KiB pages, or 2 MiB where `place` says so. Samples of any page of a
    2 MiB folio count for the folio; as its heat is per 4 KiB, each adds 1/512.

    Args:
        capacity_pages: the most folios tracked; memory stays within 24 bytes for each.
        refresh_s: length of a step of locating; `unplaced` lists pages whose node was not
            confirmed in this step or the one before.

    Raises:
        ValueError: an argument is out of its range.
        MemoryError: the kernel gave no memory.
    """

    def __init__(self, *, capacity_pages: int, half_life_s: float, refresh_s: float = 10.0) -> None:
        made = ffi.new("struct tierd_heat **")
        if capacity_pages <= 0:
            raise ValueError(f"a heat table of {capacity_pages} pages holds nothing")
        result = lib.tierd_heat_new(capacity_pages, half_life_s, refresh_s, made)
        if result != 0:
            raise _error(result, f"{capacity_pages=}, {half_life_s=}, {refresh_s=}")
        self._heat = ffi.gc(made[0], lib.tierd_heat_free)
        self._stats = lib.tierd_heat_stats(self._heat)
        self._lock = threading.Lock()
        self._space = _Buffers(bounds.HEAT_FOLIOS)
        self._limits = np.empty(0, np.int64)
        self._half_life_s = half_life_s

    @property
    def half_life_s(self) -> float:
        """The time in which heat halves, s."""
        return self._half_life_s

    def ingest(self, batch: AccessBatch) -> None:
        """Add a source's batch, and advance time to the batch's.

        The source's node of a page is used unless `place` or `moved` gave another one
        recently.
        """
        page = _array(batch.page, np.uint64)
        count = _array(batch.count, np.float32)
        node = ffi.NULL if batch.node is None else _array(batch.node, np.int16)
        with self._lock:
            lib.tierd_heat_ingest(
                self._heat,
                _pointer("uint64_t[]", page),
                _pointer("float[]", count),
                node if batch.node is None else _pointer("int16_t[]", node),
                len(page),
                batch.time_ns,
            )

    def advance(self, time_ns: int) -> None:
        """Decay heat up to `time_ns`; a time in the past changes nothing."""
        with self._lock:
            lib.tierd_heat_advance(self._heat, time_ns)

    def set_half_life(self, half_life_s: float) -> None:
        """Set another half-life from now on; present heat does not change.

        Raises:
            ValueError: not above 0.
        """
        with self._lock:
            result = lib.tierd_heat_set_half_life(self._heat, half_life_s)
        if result != 0:
            raise _error(result, f"{half_life_s=}")
        self._half_life_s = half_life_s

    def place(
        self, page: U64Array, node: I16Array, order: U8Array, *, insert_on: Collection[int]
    ) -> None:
        """Set the nodes and orders of pages.

        Updates tracked pages; pages on a node of `insert_on` that are not tracked are
        inserted cold, so that `coldest` returns them, as far as they displace no
        page on these nodes. A node of -1 means unknown; below that (-errno) the
        page is not there and is forgotten. Order 9 on any page of a 2 MiB folio joins
        the entries of its 4 KiB pages; order 0 splits a tracked 2 MiB folio, and its
        pages inherit its heat.

        Args:
            page: uint64[n] keys.
            node: int16[n] nodes.
            order: uint8[n]; 9 and more is a 2 MiB folio, anything less a page.
            insert_on: nodes whose pages are all tracked, and evicted last.

        Raises:
            ValueError: the arrays differ in length.
        """
        if not len(page) == len(node) == len(order):
            raise ValueError(f"{len(page)} pages, {len(node)} nodes, {len(order)} orders")
        wanted = np.zeros(int(lib.TIERD_NODE_UNKNOWN) + 1, np.uint8)
        wanted[[each for each in insert_on if 0 <= each <= lib.TIERD_NODE_MAX]] = 1
        pages, nodes, orders = (
            _array(page, np.uint64),
            _array(node, np.int16),
            _array(order, np.uint8),
        )
        with self._lock:
            lib.tierd_heat_place(
                self._heat,
                _pointer("uint64_t[]", pages),
                _pointer("int16_t[]", nodes),
                _pointer("uint8_t[]", orders),
                len(pages),
                _pointer("uint8_t[]", wanted),
            )

    def moved(self, report: MigrationResult) -> None:
        """Apply a report: nodes and times of moves; pages that are gone are dropped.

        An untracked page that moved is tracked from now on, because a source's next report
        of it may be older than the move.
        """
        page = _array(report.plan.page, np.uint64)
        order = _array(report.plan.order, np.uint8)
        fate = _array(report.fate, np.uint8)
        node = _array(report.node, np.int16)
        with self._lock:
            lib.tierd_heat_moved(
                self._heat,
                _pointer("uint64_t[]", page),
                _pointer("uint8_t[]", fate),
                _pointer("int16_t[]", node),
                _pointer("uint8_t[]", order),
                len(page),
            )

    def hold(self, spans: U64Array, held: bool) -> None:
        """Have queries of nodes leave folios out, or find them again.

        A folio that is tracked from now on is found. `lookup` and `where` find held ones, too.

        Args:
            spans: uint64[n, 2] page keys [start, end), which ascend and are apart; the first page
                of a folio counts.
            held: whether they are left out.
        """
        given = _array(spans, np.uint64)
        with self._lock:
            lib.tierd_heat_hold(
                self._heat, _pointer("struct tierd_span[]", given), len(given), held
            )

    def limit(self, targets: U64Array, pages: U64Array) -> None:
        """Have each query of a node find no more pages of some targets than they may move.

        Args:
            targets: uint64[n] numbers; all others are without a limit from now on.
            pages: uint64[n] 4 KiB pages.
        """
        limits = np.full(MAX_TARGETS if len(targets) else 0, -1)
        limits[targets.astype(np.intp)] = pages.astype(np.int64)
        self._limits = limits

    def fade(self, half_lives: float) -> None:
        """Cool all heat by so many half-lives at once; a negative number raises it."""
        with self._lock:
            lib.tierd_heat_fade(self._heat, half_lives)

    def forget_target(self, target: int) -> None:
        """Drop all pages of a target."""
        self.keep_ranges(target, ())

    def keep_ranges(self, target: int, ranges: Sequence[WatchedRange]) -> None:
        """Drop the pages of `target` that lie outside `ranges` (which do not overlap).

        Raises:
            ValueError: no such target number.
        """
        if not 0 <= target < MAX_TARGETS:
            raise ValueError(f"target number {target} is not in 0..{MAX_TARGETS - 1}")
        spans = sorted((each.start, each.end) for each in ranges)
        given = np.array(spans, np.uint64).reshape(-1, 2)
        with self._lock:
            lib.tierd_heat_keep(
                self._heat, target, _pointer("struct tierd_span[]", given), len(given)
            )

    def hottest(
        self, node: int, n: int, min_heat: float = 0.0, among: BoolArray | None = None
    ) -> PageSet:
        """At most `n` folios on `node`, hottest first, with heat > `min_heat`.

        Of equal heat, as it is counted, the lower key comes first.
        """
        return self._within(_checked(node), n, among, hottest=True, min_heat=min_heat)

    def folios(
        self, node: int, n: int, min_heat: float = 0.0, among: BoolArray | None = None
    ) -> PageSet:
        """The same of 2 MiB folios only; it is cheap where there are none."""
        return self._within(_checked(node), n, among, hottest=True, huge=True, min_heat=min_heat)

    def coldest(self, node: int, n: int, among: BoolArray | None = None) -> PageSet:
        """At most `n` folios on `node`, coldest first; ties and `among` as of `hottest`."""
        return self._within(_checked(node), n, among, hottest=False)

    def least(self, node: int) -> float:
        """A lower bound of the heat of folios on `node`; infinity if none is tracked there."""
        with self._lock:
            return float(lib.tierd_heat_least(self._heat, _checked(node)))

    def unplaced(self, n: int, least: float = -1.0) -> U64Array:
        """Keys, uint64[≤ n], of the hottest pages whose node is unknown or not confirmed recently.

        They are in no order. Pages of no more heat than `least` are left out.
        """
        return self._select(lib.TIERD_NODE_UNPLACED, n, hottest=True, min_heat=least).page

    def lookup(self, key: int) -> PageSet:
        """The folio whose first page is `key`; empty if it is not tracked."""
        heat, idle_s = ffi.new("float *"), ffi.new("float *")
        node, order = ffi.new("int16_t *"), ffi.new("uint8_t *")
        with self._lock:
            found = lib.tierd_heat_lookup(self._heat, key, heat, node, order, idle_s) == 0
        return PageSet(
            page=np.full(int(found), key, np.uint64),
            heat=np.full(int(found), heat[0], np.float32),
            node=np.full(int(found), node[0], np.int16),
            order=np.full(int(found), order[0], np.uint8),
            idle_s=np.full(int(found), idle_s[0], np.float32),
        )

    def where(self, page: U64Array) -> I16Array:
        """The nodes, int16[n], of the folios that hold these pages, uint64[n] keys.

        -1 where the node is not known, or the page is not tracked.
        """
        pages = _array(page, np.uint64)
        node = np.empty(len(pages), np.int16)
        with self._lock:
            lib.tierd_heat_where(
                self._heat, _pointer("uint64_t[]", pages), len(pages), _pointer("int16_t[]", node)
            )
        return node

    def of(self, page: U64Array) -> tuple[F32Array, float]:
        """Heat of pages, float32[n], by keys, uint64[n]; 0 of those that are not tracked.

        Of a page of a 2 MiB folio it is that of the whole folio. And half-lives by which heat
        decayed, or was faded, since the table was made: what a page had at one time has halved so
        many times at another.
        """
        pages = _array(page, np.uint64)
        heat = np.empty(len(pages), np.float32)
        with self._lock:
            lib.tierd_heat_of(
                self._heat, _pointer("uint64_t[]", pages), len(pages), _pointer("float[]", heat)
            )
            return heat, float(lib.tierd_heat_aged(self._heat))

    def stats(self) -> HeatStats:
        """Counters; see `HeatStats`."""
        stats = self._stats
        with self._lock:
            return HeatStats(
                tracked=stats.tracked,
                huge=stats.huge,
                capacity=stats.capacity,
                memory_bytes=stats.memory_bytes,
                ingested=stats.ingested,
                evicted=stats.evicted,
                folded=stats.folded,
                split=stats.split,
                dropped={"invalid": stats.dropped_invalid, "full": stats.dropped_full},
                passed=stats.passed,
                compared=stats.compared,
            )

    def _within(
        self,
        node: int,
        n: int,
        among: BoolArray | None,
        *,
        hottest: bool,
        min_heat: float = 0.0,
        huge: bool = False,
    ) -> PageSet:
        """`_select`, within the limits of targets; pages beyond them hide no others."""
        select = functools.partial(
            self._select, node, hottest=hottest, min_heat=min_heat, huge=huge
        )
        limits = self._limits
        if not len(limits):
            return select(n, among=among)
        asked = np.ones(MAX_TARGETS, np.bool_)
        if among is not None:
            asked[len(among) :], asked[: len(among)] = False, among
        parts = [select(n, among=asked & (limits < 0))]
        asked &= limits >= 0
        spent = True
        while spent and asked.any():
            # Those with more pages than they may move hide others: the rest is asked again.
            spent = False
            found = select(min(n, int(limits[asked].sum())), among=asked)
            target, size = target_of(found.page), np.int64(1) << found.order.astype(np.int64)
            for number in np.unique(target).tolist():
                own = np.flatnonzero(target == number)
                within = own[np.cumsum(size[own]) - size[own] < limits[number]]
                if len(within) < len(own):
                    parts.append(_taken(found, within))
                    asked[number], spent = False, True
            if not spent:
                parts.append(found)
        every = [np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS]
        both = PageSet(*every)
        best = np.lexsort((both.page, -both.heat if hottest else both.heat))[:n]
        return _taken(both, best)

    def _select(
        self,
        node: int,
        n: int,
        *,
        hottest: bool,
        min_heat: float = 0.0,
        huge: bool = False,
        among: BoolArray | None = None,
    ) -> PageSet:
        wanted = None if among is None else np.zeros(MAX_TARGETS, np.uint8)
        if among is not None and wanted is not None:
            wanted[: len(among)] = among
        with self._lock:
            most = max(0, min(n, self._stats.tracked))
            if most > self._space.folios:
                self._space = _Buffers(2 * most)
            found = lib.tierd_heat_select(
                self._heat,
                node,
                hottest,
                huge,
                min_heat,
                ffi.NULL if wanted is None else _pointer("uint8_t[]", wanted),
                most,
                *self._space.pointers,
            )
            if found >= 0:
                return self._space.first(found)
        raise _error(found, "select")


def _checked(node: int) -> int:
    # A slot cannot hold larger node numbers, and 253 marks a free slot.
    return node if 0 <= node <= lib.TIERD_NODE_MAX else int(lib.TIERD_NODE_MAX)


def _error(result: int, what: str) -> Exception:
    import errno
    import os

    if result == -errno.ENOMEM:
        return MemoryError(f"heat table: {what}")
    return ValueError(f"heat table: {what}: {os.strerror(-result)}")
