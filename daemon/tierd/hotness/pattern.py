# SPDX-License-Identifier: Apache-2.0
"""`PatternTracker`: the streaming fraction and the access density of each region.

A stream passes over its pages in one direction; random access does not. Two samples of one region
(2 MiB) that follow each other closely in a batch in time order (`AccessBatch.ordered`) are a pair.
The pairs of a stream all rise or all fall, while half of random pairs rise. Pairs far apart are of
different sweeps, and say nothing. Where samples are too rare for that, regions of 32 MiB are used.

The density is the count of a region divided by its pages; it decays as heat does. Where a long
array is streamed, the count is highest just behind the stream's position. That says nothing about
the use of the whole, so neighbouring regions of streams share their counts. `tierd.hotness.focus`
finds on how many of a region's pages its accesses fall; a stream uses all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core.access import AccessBatch
from tierd.core.pagekey import HUGE_ORDER, HUGE_PAGES, U64Array
from tierd.core.tuning import HOTNESS
from tierd.hotness.focus import SubpageSkew

F64Array = npt.NDArray[np.float64]
_FIELDS: Final = 4  # counted, rising pairs, falling pairs, written


@dataclass(frozen=True, slots=True)
class Patterns:
    """A snapshot, by region in ascending order.

    Attributes:
        region: uint64[n] page keys >> REGION_SHIFT.
        counted: float64[n] decayed accesses of the region.
        parallel: float64[n] streaming fraction, 0 to 1, of the accesses; NaN: unknown.
        doubt: float64[n] standard error of that.
        written: float64[n] fraction of writes; 0 where no source distinguishes them.
        pages: float64[n] 4 KiB pages, 1 to 512, that carry the region's accesses
            (`tierd.hotness.focus`), 512 for a stream; NaN: unknown.
    """

    region: U64Array
    counted: F64Array
    parallel: F64Array
    doubt: F64Array
    written: F64Array
    pages: F64Array

    def at(self, page: U64Array) -> Patterns:
        """The rows of the regions of page keys, uint64[n]; NaN for unknown ones."""
        wanted = page >> np.uint64(HUGE_ORDER)
        if not len(self.region):
            nan = np.full(len(page), np.nan)
            return Patterns(wanted, nan, nan, nan, nan, nan)
        at = np.minimum(np.searchsorted(self.region, wanted), len(self.region) - 1)
        known = self.region[at] == wanted
        columns = (self.counted, self.parallel, self.doubt, self.written, self.pages)
        return Patterns(wanted, *(np.where(known, values[at], np.nan) for values in columns))

    @staticmethod
    def none() -> Patterns:
        """An empty snapshot."""
        empty = np.empty(0, np.float64)
        return Patterns(np.empty(0, np.uint64), empty, empty, empty, empty, empty)


class _Level:
    """Sums by region of one size; rows of `sums` are `_FIELDS` decayed sums."""

    def __init__(self, shift: int, most: int) -> None:
        self._shift = np.uint64(shift)
        self._most = most
        self.region: U64Array = np.empty(0, np.uint64)
        self.sums: F64Array = np.empty((0, _FIELDS))
        self.dropped = 0

    def decay(self, factor: float) -> None:
        self.sums *= factor

    def add(self, batch: AccessBatch) -> None:
        region = batch.page >> self._shift
        count = batch.count.astype(np.float64)
        fresh, at = np.unique(region, return_inverse=True)
        sums = np.zeros((len(fresh), _FIELDS))
        sums[:, 0] = np.bincount(at, count, len(fresh))
        if batch.ordered:
            order = np.argsort(at, kind="stable")
            page = batch.page[order].astype(np.int64)
            same = at[order][1:] == at[order][:-1]
            pair = same & (np.diff(order) <= HOTNESS.pair_max_distance) & (page[1:] != page[:-1])
            rises = page[1:] > page[:-1]
            of = at[order][1:]
            sums[:, 1] = np.bincount(of[pair & rises], minlength=len(fresh))
            sums[:, 2] = np.bincount(of[pair & ~rises], minlength=len(fresh))
        if batch.is_write is not None:
            sums[:, 3] = np.bincount(at, count * batch.is_write, len(fresh))
        self._merge(fresh, sums)

    def _merge(self, region: U64Array, sums: F64Array) -> None:
        every, at = np.unique(np.concatenate([self.region, region]), return_inverse=True)
        merged = np.zeros((len(every), _FIELDS))
        merged[at[: len(self.region)]] = self.sums
        merged[at[len(self.region) :]] += sums
        if len(every) > self._most:
            # The regions with the lowest counts are dropped.
            keep = np.sort(np.argsort(-merged[:, 0], kind="stable")[: self._most])
            self.dropped += len(every) - len(keep)
            every, merged = every[keep], merged[keep]
        self.region, self.sums = every, merged

    def parallel(self) -> tuple[F64Array, F64Array]:
        """Streaming fraction and its standard error, NaN below `HOTNESS.region_min_pairs` pairs.

        What chance explains is subtracted: of n pairs, the rising and the falling ones differ by
        about the root of n, relatively by 1/sqrt(n).
        """
        pairs = self.sums[:, 1] + self.sums[:, 2]
        with np.errstate(divide="ignore", invalid="ignore"):
            lean = np.abs(self.sums[:, 1] - self.sums[:, 2]) / pairs
            chance = 1 / np.sqrt(pairs)
            share = np.clip((lean - chance) / (1 - chance), 0, 1)
            doubt = np.sqrt(1 - lean**2) * chance
        enough = pairs >= HOTNESS.region_min_pairs
        return np.where(enough, share, np.nan), np.where(enough, doubt, np.nan)


class PatternTracker:
    """Tracks the patterns of regions.

    Args:
        half_life_s: seconds in which evidence halves.
        most: regions of one size that are kept; those least accessed are dropped. None for
            `HOTNESS.max_regions`.
    """

    def __init__(self, half_life_s: float, most: int | None = None) -> None:
        most = HOTNESS.max_regions if most is None else most
        self._half_life_ns = half_life_s * 1e9
        self._levels = (_Level(HUGE_ORDER, most), _Level(HOTNESS.wide_region_order, most))
        self._focus = SubpageSkew(most)
        self._now_ns = 0

    @property
    def dropped(self) -> int:
        """Regions that were dropped since the start."""
        return sum(level.dropped for level in self._levels) + self._focus.dropped

    def advance(self, time_ns: int) -> None:
        """Decay the evidence up to `time_ns`."""
        if self._now_ns and time_ns > self._now_ns:
            factor = 0.5 ** ((time_ns - self._now_ns) / self._half_life_ns)
            for level in self._levels:
                level.decay(factor)
            self._focus.decay(factor)
        self._now_ns = max(self._now_ns, time_ns)

    def add(self, batch: AccessBatch) -> None:
        """Take in what a source saw."""
        if not len(batch):
            return
        self.advance(batch.time_ns)
        for level in self._levels:
            level.add(batch)
        self._focus.add(batch)

    def forget(self) -> None:
        """Drop what is known, because the hot set has changed."""
        for level in self._levels:
            level.sums *= 0.0
        self._focus.forget()

    def snapshot(self) -> Patterns:
        """The present patterns."""
        near, wide = self._levels
        parallel, doubt = near.parallel()
        if len(wide.region):
            region = near.region >> np.uint64(HOTNESS.wide_region_order - HUGE_ORDER)
            at = np.minimum(np.searchsorted(wide.region, region), len(wide.region) - 1)
            stands_in = np.isnan(parallel) & (wide.region[at] == region)
            parallel, doubt = (
                np.where(stands_in, values[at], own)
                for own, values in zip((parallel, doubt), wide.parallel(), strict=True)
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            written = np.where(near.sums[:, 0] > 0, near.sums[:, 3] / near.sums[:, 0], np.nan)
        counted = _shared(near.region, near.sums[:, 0], parallel)
        pages = self._focus.pages(near.region)
        pages[~np.isnan(pages) & (np.nan_to_num(parallel) >= HOTNESS.streaming_min_fraction)] = (
            HUGE_PAGES
        )
        return Patterns(near.region.copy(), counted, parallel, doubt, written, pages)


def _shared(region: U64Array, counted: F64Array, parallel: F64Array) -> F64Array:
    """Counts, with the streamed part of each run of neighbouring streams spread over it."""
    if not len(region):
        return counted.copy()
    streamed = np.nan_to_num(parallel)
    joined = (np.diff(region) == 1) & (
        np.minimum(streamed[1:], streamed[:-1]) >= HOTNESS.streaming_min_fraction
    )
    run = np.concatenate([[0], np.cumsum(~joined)])
    mean = np.bincount(run, counted) / np.bincount(run)
    alone = np.clip(1 - streamed / HOTNESS.streaming_min_fraction, 0, 1)
    return np.asarray(alone * counted + (1 - alone) * mean[run])
