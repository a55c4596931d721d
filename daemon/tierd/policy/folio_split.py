# SPDX-License-Identifier: Apache-2.0
"""Whether a 2 MiB folio is better whole or in 4 KiB pages, by the cost rule.

The accesses of a folio may fall on k of its 512 pages (`tierd.hotness.focus`). Besides staying, it
can move whole, or be split so that its k busy pages move, or its idle rest. Each is worth the time
that its accesses save, plus the room that it gives back, less the room that it takes and
(1 + margin) times its cost (`tierd.policy.scheduler` has the same terms). A split costs itself, a
copy and a remap of each page, and the reach of the TLB: every access to the folio is charged a
longer page walk. Less is known of single pages than of the folio, so the rate of a busy page counts
less its own error: where samples would not tell pages apart, a split is of no use.

Room in a tier has a shadow price, in seconds a byte: the least at which what wants in and pays
more fits into what is free and what would leave for less. It is 0 where all that wants in fits.

A folio is split where that is worth more than nothing, and by the margin more than the folio's best
move as a whole. It stays whole where it is unknown how many of its pages are busy.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

import numpy as np

from tierd.core.migration import MigrationResult, SplitFate
from tierd.core.pagekey import HUGE_ORDER, HUGE_PAGES, PAGE_SIZE, U64Array
from tierd.core.tuning import VALUE
from tierd.hotness.view import PageSet
from tierd.policy import pageset
from tierd.policy.cost_decision import CostRound
from tierd.policy.demand import F64Array, single_classes
from tierd.policy.pageset import I64Array
from tierd.policy.scheduler import Rule

SPLIT: Final = (SplitFate.DONE, SplitFate.ALREADY)


@dataclass(frozen=True, slots=True)
class Bids:
    """What n folios would pay for room in other tiers.

    Attributes:
        tier: int64[n] ranks. size: int64[n] bytes.
        gain: float64[n, tiers] seconds that their move saves over the horizon.
        cost: float64[n, tiers] seconds that it takes, times 1 + margin.
    """

    tier: I64Array
    size: I64Array
    gain: F64Array
    cost: F64Array


def space_prices(bids: Bids, space: I64Array) -> F64Array:
    """Seconds that a byte of room is worth, float64[tiers].

    Args:
        bids: of all that may move.
        space: int64[tiers] bytes that may come in; negative where bytes must leave.
    """
    prices = np.zeros(len(space))
    worth = (bids.gain - bids.cost) / bids.size[:, None]
    for tier in range(len(space)):
        inside = bids.tier == tier
        wants = ~inside & (worth[:, tier] > 0)
        elsewhere = np.flatnonzero((space > 0) & (np.arange(len(space)) != tier))
        leaves = inside if len(elsewhere) else inside & False
        asked = np.maximum(-worth[leaves][:, elsewhere].max(axis=1, initial=-np.inf), 0)
        prices[tier] = _clearing(
            worth[wants, tier], bids.size[wants], asked, bids.size[leaves], int(space[tier])
        )
    return prices


def _clearing(
    offer: F64Array, wanted: I64Array, ask: F64Array, given: I64Array, free: int
) -> float:
    """The least price at which no more is wanted than there is."""
    price = np.unique(np.concatenate([[0.0], offer, ask]))
    by_offer, by_ask = np.argsort(offer), np.argsort(ask)
    below = np.concatenate([[0], np.cumsum(wanted[by_offer])])
    supply = np.concatenate([[0], np.cumsum(given[by_ask])])
    demand = below[-1] - below[np.searchsorted(offer[by_offer], price, side="right")]
    enough = free + supply[np.searchsorted(ask[by_ask], price, side="right")] >= demand
    return float(price[int(enough.argmax())] if enough.any() else price[-1])


def split_gain(
    bids: Bids,
    busy: F64Array,
    *,
    lines: F64Array,
    error: F64Array,
    byte_s: F64Array,
    price: F64Array,
    rule: Rule,
) -> tuple[F64Array, I64Array]:
    """Seconds by which 2 MiB folios are better split, and for which tier; -inf for not at all.

    Args:
        bids: of the folios.
        busy: float64[n] pages that carry the accesses; NaN: unknown.
        lines, error: float64[n] lines a second of the folios, and between it and its bounds.
        byte_s: float64[tiers] seconds that a tier takes for a byte.
        price: float64[tiers] of room.
        rule: the usual one.
    """
    margin = 1 + rule.margin
    here = np.arange(len(busy)), bids.tier
    room = price[bids.tier][:, None] - price[None, :]
    whole = bids.gain - bids.cost + HUGE_PAGES * PAGE_SIZE * room
    whole[here] = 0.0  # to stay
    copy = PAGE_SIZE * (byte_s[bids.tier][:, None] + byte_s[None, :]) + rule.folio_s
    few = np.ceil(busy)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Relative error of a single page: that of a Poisson count of its own samples.
        of_busy = np.nan_to_num(error / lines * np.sqrt(few / VALUE.busy_fraction), nan=np.inf)
    sure = np.maximum(1 - of_busy, 0)[:, None]
    parts = []
    # The busy pages, and the rest, which loses at most the accesses that it has.
    for pages, fraction in (
        (few, np.where(bids.gain > 0, VALUE.busy_fraction * sure, 1.0)),
        (HUGE_PAGES - few, np.where(bids.gain > 0, 0.0, 1 - VALUE.busy_fraction)),
    ):
        count = pages[:, None]
        parts.append(fraction * bids.gain - margin * count * copy + count * PAGE_SIZE * room)
    part = np.maximum(*parts)
    part[here] = -np.inf
    walks = rule.horizon_s * (lines + error) * VALUE.page_walk_ns * 1e-9
    net = part.max(axis=1) - margin * (VALUE.split_s + walks)
    over = net - margin * whole.max(axis=1)
    better = ~np.isnan(busy) & (net > 0) & (over > 0)
    return np.where(better, over, -np.inf), np.asarray(part.argmax(axis=1))


class SplitHistory:
    """Which splits were tried lately, from decision to decision; bounded."""

    def __init__(self) -> None:
        self._tried: dict[int, tuple[int, bool]] = {}
        """Region → when, in ascending order, and whether it was split."""

    def follow(self, time_ns: int, last: MigrationResult | None) -> None:
        """What became of the plan before, if anything; the time now."""
        if last is not None:
            regions = (last.plan.split >> np.uint64(HUGE_ORDER)).tolist()
            for region, fate in zip(regions, last.split_fate.tolist(), strict=True):
                # One that the kernel refused is not tried over and over, either.
                if fate != SplitFate.NOT_TRIED:
                    self._tried.pop(region, None)
                    self._tried[region] = (time_ns, fate in SPLIT)
        while self._tried:
            region, (when, _) = next(iter(self._tried.items()))
            recent = when > time_ns - VALUE.split_cooldown_s * 1e9
            if recent and len(self._tried) <= VALUE.split_history:
                break
            del self._tried[region]

    def rested(self, pages: PageSet, time_ns: int, rest_s: float) -> PageSet:
        """Pages of folios that were split less than `rest_s` ago count as moved just now.

        They have inherited one heat, and samples have yet to tell which of them are busy.
        """
        recent = takewhile(
            lambda each: each[1][0] > time_ns - rest_s * 1e9, reversed(self._tried.items())
        )
        fresh = np.array([region for region, (_, split) in recent if split], np.uint64)
        if not len(fresh):
            return pages
        resting = np.isin(pages.page >> np.uint64(HUGE_ORDER), fresh)
        return replace(pages, idle_s=np.where(resting, np.float32(0), pages.idle_s))

    def choose(self, page: U64Array, gain: F64Array) -> tuple[I64Array, Counter[str]]:
        """Which folios are split now, int64[m] indices, best first; what is not, by reason.

        Args:
            page: uint64[n] keys.
            gain: float64[n] of `split_gain`.
        """
        tried = np.fromiter(self._tried, np.uint64, len(self._tried))
        again = np.isin(page >> np.uint64(HUGE_ORDER), tried)
        worth = np.isfinite(gain)
        order = np.lexsort((page, -gain))
        order = order[(worth & ~again)[order]]
        notes = Counter(
            {
                "split was tried before": int(np.count_nonzero(worth & again)),
                "more splits than one pass makes": max(0, len(order) - VALUE.max_splits),
            }
        )
        return order[: VALUE.max_splits], notes


def choose_splits(work: CostRound, history: SplitHistory, rule: Rule) -> None:
    """Plan splits before moves are planned: what is split does not move in this decision.

    A tier that is short of room is relieved first, of whole folios if need be. Without budget
    nothing is split, because the pages could not move.
    """
    pages, tier = work.pages, work.tier
    may = (tier >= 0) & (pages.idle_s >= work.settings.min_residency_s)
    busy = work.patterns.at(pages.page).pages
    # A folio that is used all over has no idle pages.
    split = may & (pages.order >= HUGE_ORDER) & (busy < HUGE_PAGES)
    for _, planned, _ in work.moves:
        split &= ~np.isin(pages.page, planned.page)
    if work.left <= 0 or not split.any():
        return
    at = np.flatnonzero(may)
    classes = single_classes(pageset.take(pages, at), tier[at], work.demand.at(at), work.confidence)
    gain = rule.gain_s(classes, work.model.prices(work.model.load, work.stalls))
    cost = (1 + rule.margin) * rule.cost_s(classes, work.model)
    space = work.space_or_lack
    price = space_prices(Bids(classes.tier, classes.size, gain, cost), space)
    split &= space[tier] >= 0
    at, own = np.flatnonzero(split), np.flatnonzero(split[may])
    better, dest = split_gain(
        Bids(classes.tier[own], classes.size[own], gain[own], cost[own]),
        busy[at],
        lines=classes.lines[own],
        error=work.confidence * work.demand.error[at],
        byte_s=1 / work.model.bytes_per_s,
        price=price,
        rule=rule,
    )
    better[~_allowed(work, at, dest)] = -np.inf
    chosen, notes = history.choose(pages.page[at], better)
    work.notes.update(notes)
    work.splits = pages.page[at[chosen]]
    idle_s = pages.idle_s.copy()
    idle_s[at[chosen]] = 0
    work.pages = replace(pages, idle_s=idle_s)


def _allowed(work: CostRound, at: I64Array, dest: I64Array) -> np.ndarray:
    """Which folios, bool[n], the limits of their groups would let leave and enter."""
    allowed = np.ones(len(at), np.bool_)
    if work.fair is None:
        return allowed
    for rank, tier in enumerate(work.inputs.tiers.tiers):
        out, into = np.flatnonzero(work.tier[at] == rank), np.flatnonzero(dest == rank)
        allowed[out] &= work.fair.may_leave(pageset.take(work.pages, at[out]), tier.nodes)
        allowed[into] &= work.fair.may_enter(pageset.take(work.pages, at[into]), tier.nodes)
    return allowed
