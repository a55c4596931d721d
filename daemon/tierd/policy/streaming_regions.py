# SPDX-License-Identifier: Apache-2.0
"""Which of the pages of streams move: those that leave no region in two tiers.

A stream that passes from one tier to another loads now the one and now the other, and several of
them do so together by chance. A whole region in one tier asks the same of it all the time.
"""

from __future__ import annotations

import numpy as np

from tierd.core.pagekey import HUGE_ORDER, BoolArray, F64Array, I64Array, U64Array
from tierd.core.tuning import COST
from tierd.hotness.view import PageSet
from tierd.policy.demand import Demand


class Regions:
    """One decision's pages by region.

    Args:
        tier: int64[n] their ranks.
        settled: bool[n], those that may move.
    """

    def __init__(self, pages: PageSet, tier: I64Array, demand: Demand, settled: BoolArray) -> None:
        self._page, self._tier, self._lines = pages.page, tier.copy(), demand.lines
        self._streamed = (demand.share < COST.streamed_stall_fraction) & (pages.order == 0)
        self._movable = self._streamed & settled
        self._region = pages.page >> np.uint64(HUGE_ORDER)
        self._regions, self._at = np.unique(self._region, return_inverse=True)

    def _share_in(self, rank: int) -> F64Array:
        """Share of each region that is in a tier."""
        count = len(self._regions)
        there = np.bincount(self._at[self._tier == rank], minlength=count)
        return np.asarray(there / np.bincount(self._at, minlength=count))

    def _avoided(self, avoid: U64Array) -> I64Array:
        """0, or 1 for regions of a run of streams that has one to avoid, or 2 for these."""
        itself = np.isin(self._regions, avoid)
        streamed = np.bincount(self._at[self._streamed], minlength=len(self._regions)) > 0
        apart = (np.diff(self._regions) > 1) | (streamed[1:] != streamed[:-1])
        run = np.concatenate([[0], np.cumsum(apart)])
        return np.asarray(itself.astype(np.int64) + (np.bincount(run, itself)[run] > 0))

    def whole(self, members: I64Array, source: int, dest: int, taken: BoolArray) -> I64Array:
        """As many streamed pages as `members`, and alike: of regions that are split first.

        Args:
            members: int64[k] indices of pages.
            taken: bool[n] pages that other moves are of; not `members`.
        """
        if not len(members) or not self._streamed[members].all():
            return members
        lines = float(self._lines[members].mean())
        alike = self._movable & ~taken & (self._tier == source)
        alike &= np.abs(self._lines - lines) <= COST.alike_rate_fraction * lines
        others = np.ones(len(self._page), np.bool_)
        others[members] = False
        pool = np.flatnonzero(alike | ~others)
        begun = self._share_in(dest)[self._at[pool]]
        best = np.lexsort((self._page[pool], others[pool], -begun))
        return pool[best[: len(members)]]

    def go(self, members: I64Array, dest: int) -> None:
        """These, int64[k] indices, will be in another tier."""
        self._tier[members] = dest

    def slice_of(
        self, source: int, dest: int, share: float, avoid: U64Array
    ) -> tuple[U64Array, U64Array]:
        """Pages of streams, uint64[k], that take about a share of all lines, and their regions.

        Whole regions, at least one: first such as are split, then neighbours of those in
        `dest`; those to `avoid`, and others that they follow on, last.
        """
        here = self._movable & (self._tier == source) & (self._lines > 0)
        found = np.unique(self._at[here])
        if not len(found):
            return self._page[:0], self._regions[:0]
        regions = self._regions[found]
        there = self._region[self._streamed & (self._tier == dest)]
        one = np.uint64(1)
        near = np.isin(regions + one, there) | np.isin(regions - one, there)
        begun = self._share_in(dest)[found]
        best = np.lexsort((regions, ~near, -begun, self._avoided(avoid)[found]))
        lines = np.bincount(self._at[here], self._lines[here], len(self._regions))[found]
        off = np.abs(np.cumsum(lines[best]) - share * float(self._lines.sum()))
        chosen = regions[best[: 1 + int(off.argmin())]]
        return self._page[here & np.isin(self._region, chosen)], chosen
