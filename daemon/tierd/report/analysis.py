# SPDX-License-Identifier: Apache-2.0
"""The figures of a report: heat map, working set, migrations, who served what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tierd.core.access import F32Array
from tierd.core.errors import TierdError
from tierd.core.migration import Direction, Fate
from tierd.core.pagekey import PAGE_SIZE, F64Array, I64Array, U64Array, target_of, vpn_of
from tierd.core.quantiles import Quantiles
from tierd.observe.recording.reader import Gap, Recording
from tierd.observe.recording.records import Meta, RecordedTarget, RecordedTick
from tierd.replay.policy import UNKNOWN, add_served
from tierd.replay.world import DEFAULT_MEMORY, World

BLOCK_PAGES: Final = 512
"""Accesses are first counted by 2 MiB."""
MOST_AREAS: Final = 6
SHARES: Final = (1.0, 0.99, 0.9, 0.5)
"""Shares of the accesses whose pages make up a working set."""
_COMPACT_AT: Final = 4_000_000
_BLOCK_SHIFT: Final = np.uint64(BLOCK_PAGES.bit_length() - 1)


@dataclass(frozen=True, slots=True)
class Area:
    """Virtual pages [start, end) of one target; rows [first_row, last_row) show it."""

    start: int
    end: int
    first_row: int
    last_row: int

    @property
    def pages_a_row(self) -> float:
        """4 KiB pages that one row shows."""
        return (self.end - self.start) / (self.last_row - self.first_row)


@dataclass
class Report:
    """A recording in figures; arrays have one column a stretch of time.

    Attributes:
        meta, targets: of the recording; `accesses` by target number.
        shown: number of the target of the heat map, None without accesses.
        seconds: float64[columns + 1], edges of the columns since the first tick.
        areas: of the heat map, ascending; `area_share` of the target's accesses are there.
        heat: float64[rows, columns] accesses a second and 4 KiB page.
        tiers: names, fastest first, then "unknown".
        served: float64[tiers, columns] accesses by the tier their page was in.
        working_set: float64[len(SHARES), columns] bytes of the hottest pages that hold
            these shares of a column's accesses, as far as the source saw them.
        promoted, demoted: float64[columns] bytes a second.
        fates: pages by what became of their move.
        tick_ns: time that a tick took.
        move_page_cpu_ns: CPU time of a tick's moves for each 4 KiB page that moved; one value a
            page. A recording does not have single calls of move_pages.
    """

    meta: Meta
    seconds: F64Array
    ticks: int = 0
    missing: int = 0
    cut: str = ""
    sources: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    targets: dict[int, RecordedTarget] = field(default_factory=dict)
    accesses: dict[int, float] = field(default_factory=dict)
    shown: int | None = None
    areas: tuple[Area, ...] = ()
    area_share: float = 0.0
    heat: F64Array = field(default_factory=lambda: np.zeros((0, 0)))
    tiers: tuple[str, ...] = ()
    served: F64Array = field(default_factory=lambda: np.zeros((0, 0)))
    working_set: F64Array = field(default_factory=lambda: np.zeros((0, 0)))
    promoted: F64Array = field(default_factory=lambda: np.zeros(0))
    demoted: F64Array = field(default_factory=lambda: np.zeros(0))
    fates: Counter[str] = field(default_factory=Counter)
    tick_ns: Quantiles = field(default_factory=Quantiles)
    move_page_cpu_ns: Quantiles = field(default_factory=Quantiles)

    @property
    def shares(self) -> F64Array:
        """Of the accesses to pages of known place, float64[tiers - 1, columns]; NaN if none."""
        known = self.served[:-1]
        total = known.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(total > 0, known / total, np.nan)

    @property
    def overall(self) -> dict[str, float]:
        """Share of the accesses to pages of known place, by tier, over all time."""
        total = float(self.served[:-1].sum())
        return {
            name: float(self.served[index].sum()) / total if total else float("nan")
            for index, name in enumerate(self.tiers[:-1])
        }


def analyse(
    recording: Recording,
    *,
    columns: int,
    rows: int,
    target: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY,
) -> Report:
    """The figures of a recording.

    Args:
        target: a target's number or pid; without it, that with the most accesses.

    Raises:
        RecordingError: the recording cannot be read.
        TierdError: no tick was recorded, or there is no such target.
    """
    blocks: defaultdict[int, float] = defaultdict(float)
    begin_ns = end_ns = None
    tiers: dict[str, None] = {}
    for tick in _ticks(recording):
        begin_ns = tick.time_ns if begin_ns is None else begin_ns
        end_ns = max(tick.end_ns, tick.time_ns)
        tiers.update(dict.fromkeys(each.name for each in tick.tiers.tiers))
        for batch in tick.batches:
            _count_blocks(blocks, batch.page, batch.count)
    if begin_ns is None or end_ns is None:
        raise TierdError("the recording holds no tick", hint="it ended before the first one")
    # Two ticks a column, so that one that comes late leaves no hole.
    columns = max(1, min(columns, recording.last.ticks // 2))
    span_s = max((end_ns - begin_ns) / 1e9, 1e-3)
    found = recording.last
    report = Report(
        meta=recording.meta,
        seconds=np.linspace(0.0, span_s, columns + 1),
        ticks=found.ticks,
        missing=found.missing,
        cut=found.ending.reason,
        targets=dict(found.targets),
        tiers=(*tiers, UNKNOWN),
    )
    _choose_target(report, blocks, target, rows)
    _Columns(report, begin_ns, columns, rows).fill(recording, World(memory_bytes=memory_bytes))
    return report


def _ticks(recording: Recording) -> Iterator[RecordedTick]:
    return (tick for tick in recording if not isinstance(tick, Gap))


def _usable(page: U64Array, count: F32Array) -> tuple[U64Array, F64Array]:
    """Records that mean something, as heat sees it."""
    usable = np.isfinite(count) & (count > 0) & (count < 2.0**60)
    return page[usable], count[usable].astype(np.float64)


def _count_blocks(blocks: defaultdict[int, float], page: U64Array, count: F32Array) -> None:
    page, weight = _usable(page, count)
    block, at = np.unique(page >> _BLOCK_SHIFT, return_inverse=True)
    held = np.bincount(at, weight, len(block))
    for number, accesses in zip(block.tolist(), held.tolist(), strict=True):
        blocks[number] += accesses


def _choose_target(report: Report, blocks: dict[int, float], wanted: int | None, rows: int) -> None:
    block = np.array(sorted(blocks), np.uint64)
    held = np.array([blocks[int(each)] for each in block], np.float64)
    key = block << _BLOCK_SHIFT
    number, at = np.unique(target_of(key), return_inverse=True)
    totals = np.bincount(at, held, len(number)) if len(number) else np.zeros(0)
    report.accesses = dict(zip(number.tolist(), totals.tolist(), strict=True))
    if wanted is not None:
        by_pid = [n for n, each in report.targets.items() if each.pid == wanted]
        found = [*by_pid, *([wanted] if wanted in report.accesses else [])]
        if not found:
            raise TierdError(
                f"no target with pid or number {wanted} was accessed",
                hint=f"targets: {', '.join(map(str, sorted(report.accesses)))}",
            )
        report.shown = found[0]
    elif len(number):
        report.shown = int(number[np.argmax(totals)])
    if report.shown is not None:
        own = target_of(key) == report.shown
        report.areas, report.area_share = find_areas(
            vpn_of(key[own]) >> _BLOCK_SHIFT, held[own], rows
        )


class _Columns:
    """The second reading: everything by time."""

    def __init__(self, report: Report, begin_ns: int, columns: int, rows: int) -> None:
        self._report = report
        self._begin_ns = begin_ns
        self._columns = columns
        self._width_s = float(report.seconds[1] - report.seconds[0])
        self._page: list[U64Array] = []
        self._count: list[F64Array] = []
        self._held = 0
        self._rows = report.areas[-1].last_row if report.areas else rows
        report.heat = np.zeros((self._rows, columns))
        report.served = np.zeros((len(report.tiers), columns))
        report.working_set = np.zeros((len(SHARES), columns))
        report.promoted, report.demoted = np.zeros(columns), np.zeros(columns)

    def fill(self, recording: Recording, world: World) -> None:
        """Read the recording and count."""
        report, now = self._report, 0
        for tick in _ticks(recording):
            column = int((tick.time_ns - self._begin_ns) / 1e9 / self._width_s)
            column = max(now, min(column, self._columns - 1))
            if column != now:
                self._finish(now)
                now = column
            for op in tick.ops:
                world.apply(op)
            for batch in tick.batches:
                report.sources[batch.source] += len(batch)
                report.lost += batch.lost
                nodes, _ = world.nodes(batch.page)
                served: Counter[str] = Counter()
                add_served(served, tick.tiers, nodes, batch.count)
                for index, name in enumerate(report.tiers):
                    report.served[index, column] += served[name]
                self._add(*_usable(batch.page, batch.count), column)
            self._moves(tick, column)
            world.carry_out(tick, tick.plan)
        self._finish(now)
        pages = np.ones(self._rows)
        for area in report.areas:
            pages[area.first_row : area.last_row] = area.pages_a_row
        report.heat /= self._width_s * pages[:, None]
        report.promoted /= self._width_s
        report.demoted /= self._width_s

    def _add(self, page: U64Array, count: F64Array, column: int) -> None:
        self._page.append(page)
        self._count.append(count)
        self._held += len(page)
        if self._held > _COMPACT_AT:
            self._compact()
        own = target_of(page) == (-1 if self._report.shown is None else self._report.shown)
        row = rows_of(vpn_of(page[own]), self._report.areas)
        inside = row >= 0
        self._report.heat[:, column] += np.bincount(row[inside], count[own][inside], self._rows)

    def _compact(self) -> tuple[U64Array, F64Array]:
        if not self._page:
            return np.empty(0, np.uint64), np.zeros(0)
        page, at = np.unique(np.concatenate(self._page), return_inverse=True)
        count = np.bincount(at, np.concatenate(self._count), len(page)).astype(np.float64)
        self._page, self._count, self._held = [page], [count], len(page)
        return page, count

    def _finish(self, column: int) -> None:
        """A column is over: its working set."""
        _, count = self._compact()
        self._page, self._count, self._held = [], [], 0
        if not len(count):
            return
        held = np.cumsum(np.sort(count)[::-1])
        pages = np.searchsorted(held, np.array(SHARES) * held[-1] * (1 - 1e-9), side="left") + 1
        self._report.working_set[:, column] = np.minimum(pages, len(count)) * PAGE_SIZE

    def _moves(self, tick: RecordedTick, column: int) -> None:
        report = tick.report
        self._report.tick_ns.add(tick.end_ns - tick.time_ns)
        if report is None:
            return
        for direction, into in (
            (Direction.PROMOTE, self._report.promoted),
            (Direction.DEMOTE, self._report.demoted),
        ):
            into[column] += report.count(Fate.MOVED, direction) * PAGE_SIZE
        if moved := report.count(Fate.MOVED):
            self._report.move_page_cpu_ns.add(report.cpu_ns / moved, moved)
        for fate in Fate:
            pages = report.count(fate)
            if pages:
                self._report.fates[fate.name.lower()] += pages


def find_areas(block: U64Array, accesses: F64Array, rows: int) -> tuple[tuple[Area, ...], float]:
    """Areas of a target, ascending, and the share of accesses that they hold.

    Neighbouring blocks, and blocks with a hole between them that is small beside what is
    touched, are one area; the areas with the most accesses are kept.

    Args:
        block: uint64[n] block numbers (page number / BLOCK_PAGES), ascending.
        accesses: float64[n] accesses to each.
        rows: rows to divide among the areas by their size, one each at least.
    """
    if not len(block):
        return (), 0.0
    hole = np.diff(block.astype(np.int64)) - 1
    first = np.concatenate([[0], np.flatnonzero(hole > max(8, len(block) // 20)) + 1])
    start = block[first].astype(np.int64)
    end = block[np.concatenate([first[1:] - 1, [len(block) - 1]])].astype(np.int64) + 1
    held = np.add.reduceat(accesses, first)
    kept = np.sort(np.argsort(-held, kind="stable")[: min(MOST_AREAS, rows)])
    start, end, share = start[kept], end[kept], float(held[kept].sum() / max(held.sum(), 1e-9))
    return _divide(start, end, rows), share


def _divide(start: I64Array, end: I64Array, rows: int) -> tuple[Area, ...]:
    size = (end - start).astype(np.float64)
    given = np.maximum(1, np.floor(rows * size / size.sum())).astype(np.int64)
    while given.sum() > rows:
        given[np.argmax(given)] -= 1
    given[np.argmax(size)] += rows - given.sum()
    last = np.cumsum(given)
    return tuple(
        Area(int(a) * BLOCK_PAGES, int(b) * BLOCK_PAGES, int(stop - count), int(stop))
        for a, b, count, stop in zip(start, end, given, last, strict=True)
    )


def rows_of(vpn: U64Array, areas: Sequence[Area]) -> I64Array:
    """The row, int64[n], of each virtual page number; -1 for pages in no area."""
    row = np.full(len(vpn), -1, np.int64)
    for area in areas:
        inside = (vpn >= area.start) & (vpn < area.end)
        offset = (vpn[inside] - np.uint64(area.start)).astype(np.float64)
        row[inside] = area.first_row + (offset / area.pages_a_row).astype(np.int64)
    return row
