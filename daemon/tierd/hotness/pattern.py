# SPDX-License-Identifier: Apache-2.0
"""How regions are used: `PatternTracker` (streams, density) and `SubpageSkew` (how many pages).

A stream passes over its pages in one direction; random access does not. Two samples of one region
(2 MiB) that follow each other closely in a batch in time order (`AccessBatch.ordered`) are a pair.
The pairs of a stream all rise or all fall, while half of random pairs rise. Pairs far apart are of
different sweeps, and say nothing. Where samples are too rare for that, regions of 32 MiB are used.

The density is the count of a region divided by its pages; it decays as heat does. Where a long
array is streamed, the count is highest just behind the stream's position. That says nothing about
the use of the whole, so neighbouring regions of streams share their counts.

Two accesses picked at random fall on the same 4 KiB page with the chance 1/N, where N is the number
of pages that carry the accesses: 512 where all are used alike, k where k are, and in between 1 over
the sum of the squared fractions (the inverse of Simpson's index). Some pages of each region are
kept, one of each batch with samples in it, and each later sample is compared with them. The two are
of different batches, so that accesses in close succession to one page, or work that goes from page
to page within some batches, do not seem concentrated. Only batches of single samples are evidence:
a source that reports a page once in a scan, or folios as a whole, gives none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core import bounds
from tierd.core.access import AccessBatch
from tierd.core.pagekey import HUGE_ORDER, HUGE_PAGES, F64Array, U64Array
from tierd.core.tuning import HOTNESS

_PAIRS, _SAME = 0, 1


class SubpageSkew:
    """Counts coincidences of samples, by region.

    Args:
        most: regions that are kept; those with the fewest comparisons are dropped.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._region: U64Array = np.empty(0, np.uint64)
        self._sums: F64Array = np.empty((0, 2))  # decayed: comparisons, those that coincided
        # -1: none, newest first.
        self._kept: npt.NDArray[np.int16] = np.empty((0, HOTNESS.subpage_kept_pages), np.int16)
        self.dropped = 0
        """Regions that were dropped since the start."""

    def decay(self, factor: float) -> None:
        """Decay the evidence."""
        self._sums *= factor

    def forget(self) -> None:
        """Drop what is known, because the hot set has changed."""
        self._sums *= 0.0
        self._kept[:] = -1

    def add(self, batch: AccessBatch) -> None:
        """Take in what a source saw."""
        if not batch.ordered:
            return
        fresh, at, count = np.unique(
            batch.page >> np.uint64(HUGE_ORDER),
            return_inverse=True,
            return_counts=True,
        )
        page = (batch.page & np.uint64(HUGE_PAGES - 1)).astype(np.int16)
        here = self._space_for(fresh)
        kept, weight = self._kept[here], batch.count.astype(np.float64)
        same = (kept[at] == page[:, None]).sum(axis=1)
        known = (kept >= 0).sum(axis=1)
        self._sums[here, _PAIRS] += np.bincount(at, weight, len(fresh)) * known
        self._sums[here, _SAME] += np.bincount(at, weight * same, len(fresh))
        # From the middle of the batch: its first samples may continue the last batch.
        starts = np.concatenate([[0], np.cumsum(count)[:-1]])
        middle = np.argsort(at, kind="stable")[starts + count // 2]
        self._kept[here, 1:] = kept[:, :-1]
        self._kept[here, 0] = page[middle]
        self._bound()

    def _space_for(self, fresh: U64Array) -> npt.NDArray[np.int64]:
        """Rows of these regions, ascending; missing ones are added."""
        every = np.union1d(self._region, fresh)
        if len(every) > len(self._region):
            old = np.searchsorted(every, self._region)
            sums = np.zeros((len(every), 2))
            kept = np.full((len(every), self._kept.shape[1]), -1, np.int16)
            sums[old], kept[old] = self._sums, self._kept
            self._region, self._sums, self._kept = every, sums, kept
        return np.searchsorted(self._region, fresh)

    def _bound(self) -> None:
        past_limit = len(self._region) - self._most
        if past_limit > 0:
            keep = np.sort(np.argsort(self._sums[:, _PAIRS], kind="stable")[past_limit:])
            self.dropped += past_limit
            self._region, self._sums = self._region[keep], self._sums[keep]
            self._kept = self._kept[keep]

    def pages(self, region: U64Array) -> F64Array:
        """Pages, 1 to 512, that carry the accesses of regions, uint64[n] ascending; NaN: unknown.

        It is a lower bound, by `HOTNESS.subpage_standard_errors`.
        """
        found = np.full(len(region), np.nan)
        if not len(self._region):
            return found
        at = np.minimum(np.searchsorted(self._region, region), len(self._region) - 1)
        pairs, same = self._sums[at].T
        enough = HOTNESS.subpage_kept_pages * HOTNESS.region_min_pairs
        known = (self._region[at] == region) & (pairs >= enough)
        sure = np.maximum(same - HOTNESS.subpage_standard_errors * np.sqrt(same), 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            pages = np.clip(np.where(sure > 0, pairs / sure, HUGE_PAGES), 1, HUGE_PAGES)
        found[known] = pages[known]
        return found


_FIELDS: Final = ("counted", "rising pairs", "falling pairs", "written")


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
            (`tierd.hotness.pattern`), 512 for a stream; NaN: unknown.
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
        self.sums: F64Array = np.empty((0, len(_FIELDS)))
        self.dropped = 0

    def decay(self, factor: float) -> None:
        self.sums *= factor

    def add(self, batch: AccessBatch) -> None:
        region = batch.page >> self._shift
        count = batch.count.astype(np.float64)
        fresh, at = np.unique(region, return_inverse=True)
        sums = np.zeros((len(fresh), len(_FIELDS)))
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
        merged = np.zeros((len(every), len(_FIELDS)))
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
        most: regions of one size that are kept; those least accessed are dropped. None for
            `bounds.PATTERN_REGIONS`.
    """

    def __init__(self, half_life_s: float, most: int | None = None) -> None:
        most = bounds.PATTERN_REGIONS if most is None else most
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
