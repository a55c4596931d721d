# SPDX-License-Identifier: Apache-2.0
"""`SubpageSkew`: on how many of a 2 MiB region's pages its accesses fall, in bounded memory.

Two accesses picked at random fall on the same 4 KiB page with the chance 1/N, where N is the number
of pages that carry the accesses: 512 where all are used alike, k where k are, and in between 1 over
the sum of the squared fractions (the inverse of Simpson's index). Some pages of each region are
kept, one of each batch with samples in it, and each later sample is compared with them. The two are
of different batches, so that accesses in close succession to one page, or work that goes from page
to page within some batches, do not seem concentrated.

Only batches of single samples (`AccessBatch.ordered`) are evidence. A source that reports a page
once in a scan, or folios as a whole, gives none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tierd.core.access import AccessBatch
from tierd.core.pagekey import HUGE_ORDER, HUGE_PAGES, U64Array
from tierd.core.tuning import HOTNESS

_PAIRS, _SAME = 0, 1

F64Array = npt.NDArray[np.float64]


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
        known = (self._region[at] == region) & (pairs >= HOTNESS.subpage_min_comparisons)
        sure = np.maximum(same - HOTNESS.subpage_standard_errors * np.sqrt(same), 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            pages = np.clip(np.where(sure > 0, pairs / sure, HUGE_PAGES), 1, HUGE_PAGES)
        found[known] = pages[known]
        return found
