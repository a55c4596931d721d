# SPDX-License-Identifier: Apache-2.0
"""Whether a 2 MiB folio is better whole or in 4 KiB pages, by the cost rule.

Of a folio whose accesses fall on k of its 512 pages (`tierd.hotness.pattern`) two things can be
done besides leaving it: move it whole, or split it and move the k busy pages, or the idle rest.
Each is worth the time that its accesses save, plus the room that it gives back, less the room that
it takes and (1 + margin) times what it costs (`tierd.policy.scheduler` has the same terms). A split
costs itself, a copy and remap for each page, and the reach of the TLB: every access to the folio is
charged a longer page walk from then on. And of single pages less is known than of the folio: a busy
page's rate is taken less its own doubt, as the usual rule will. Where samples are too few to tell
pages apart a split would be for nothing.

Room has a price by tier, in seconds a byte: that at which what wants in and pays more fits into
what is free and what would leave for less. It is 0 where all that wants in finds room.

A folio is split where that is worth more than nothing, and by the margin more than the folio's best
move as a whole. Where it is not known how many pages are busy it stays whole.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tierd.core import bounds
from tierd.core.migration import MigrationResult, SplitFate
from tierd.core.pagekey import HUGE_ORDER, HUGE_PAGES, PAGE_SIZE, F64Array, I64Array, U64Array
from tierd.core.tuning import COST, VALUE
from tierd.hotness.view import PageSet
from tierd.policy import pageset
from tierd.policy.cost_decision import CostRound
from tierd.policy.demand import Demand
from tierd.policy.scheduler import Rule


@dataclass(frozen=True, slots=True)
class Bids:
    """What could change tier, for `space_prices` and `split_gain`; n folios of any size.

    Attributes:
        tier: int64[n] ranks. size: int64[n] bytes.
        gain: float64[n, tiers] seconds that all accesses over the horizon save there,
            less their doubt; negative: lose.
        cost: float64[n, tiers] seconds that the move takes, times 1 + margin.
    """

    tier: I64Array
    size: I64Array
    gain: F64Array
    cost: F64Array


def space_prices(bids: Bids, space: I64Array) -> F64Array:
    """Seconds that a byte of room is worth, float64[tiers].

    Args:
        room: int64[tiers] bytes that may come in; negative where bytes must leave.
    """
    prices = np.zeros(len(space))
    worth = (bids.gain - bids.cost) / bids.size[:, None]
    for tier in range(len(space)):
        inside = bids.tier == tier
        wants = ~inside & (worth[:, tier] > 0)
        refuges = np.flatnonzero((space > 0) & (np.arange(len(space)) != tier))
        leaves = inside if len(refuges) else inside & False
        asked = np.maximum(-worth[leaves][:, refuges].max(axis=1, initial=-np.inf), 0)
        prices[tier] = _clearing(
            worth[wants, tier], bids.size[wants], asked, bids.size[leaves], int(space[tier])
        )
    return prices


def _clearing(
    offer: F64Array, wanted: I64Array, ask: F64Array, given: I64Array, free: int
) -> float:
    """The least price at which no more is wanted than there is."""
    price = np.unique(np.concatenate([[0.0], offer, ask]))
    by_offer, by_ask = (np.argsort(each, kind="stable") for each in (offer, ask))
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
    doubt: F64Array,
    byte_s: F64Array,
    price: F64Array,
    rule: Rule,
) -> tuple[F64Array, I64Array]:
    """Seconds by which folios are better split, and for which tier; -inf for not at all.

    Args:
        busy: float64[n] pages that carry the accesses; NaN: unknown.
        lines, doubt: float64[n] of folios, a second.
        byte_s: float64[tiers] seconds that a tier takes for a byte.
        price: float64[tiers] of room.
    """
    doubled = 1 + rule.margin
    here = np.arange(len(busy)), bids.tier
    saved = price[bids.tier][:, None] - price[None, :]
    whole = bids.gain - bids.cost + HUGE_PAGES * PAGE_SIZE * saved
    whole[here] = 0.0  # to stay
    copy = PAGE_SIZE * (byte_s[bids.tier][:, None] + byte_s[None, :]) + rule.folio_s
    parts = []
    few = np.ceil(busy)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Relative doubt of a single page: a Poisson count's, of the samples that it has.
        of_busy = np.nan_to_num(doubt / lines * np.sqrt(few / VALUE.busy_fraction), nan=np.inf)
    sure = np.maximum(1 - of_busy, 0)[:, None]
    # The busy ones, and the rest, which lose what accesses they have: no more than so many.
    for pages, share in (
        (few, np.where(bids.gain > 0, VALUE.busy_fraction * sure, 1.0)),
        (HUGE_PAGES - few, np.where(bids.gain > 0, 0.0, 1 - VALUE.busy_fraction)),
    ):
        count = pages[:, None]
        parts.append(share * bids.gain - doubled * count * copy + count * PAGE_SIZE * saved)
    part = np.maximum(*parts)
    part[here] = -np.inf
    walks = rule.horizon_s * (lines + doubt) * VALUE.page_walk_ns * 1e-9
    net = part.max(axis=1) - doubled * (VALUE.split_s + walks)
    over = net - doubled * whole.max(axis=1)
    better = ~np.isnan(busy) & (net > 0) & (over > 0)
    return np.where(better, over, -np.inf), np.asarray(part.argmax(axis=1))


IN_PIECES: Final = (SplitFate.DONE, SplitFate.ALREADY)


class SplitHistory:
    """Which splits were tried lately, from decision to decision; bounded."""

    def __init__(self) -> None:
        self._region: U64Array = np.empty(0, np.uint64)
        self._time_ns: I64Array = np.empty(0, np.int64)
        self._split = np.empty(0, np.bool_)

    def follow(self, time_ns: int, last: MigrationResult | None) -> None:
        """What became of the plan before, if anything; the time now."""
        keep = self._time_ns > time_ns - VALUE.split_cooldown_s * 1e9
        region, times, split = self._region[keep], self._time_ns[keep], self._split[keep]
        if last is not None and len(last.plan.split):
            # Those that the kernel refused are not tried over and over, either.
            did = last.split_fate != SplitFate.NOT_TRIED
            tried = last.plan.split[did] >> np.uint64(HUGE_ORDER)
            done = np.isin(last.split_fate[did], IN_PIECES)
            old = ~np.isin(region, tried)
            region = np.concatenate([region[old], tried])[-bounds.SPLIT_REGIONS :]
            times = np.concatenate([times[old], np.full(len(tried), time_ns)])[
                -bounds.SPLIT_REGIONS :
            ]
            split = np.concatenate([split[old], done])[-bounds.SPLIT_REGIONS :]
        self._region, self._time_ns, self._split = region, times, split

    def rested(self, pages: PageSet, time_ns: int, rest_s: float) -> PageSet:
        """Pages of folios that were split less than `rest_s` ago count as moved just now.

        They have inherited one heat: which are busy has to show first.
        """
        fresh = self._region[self._split & (self._time_ns > time_ns - rest_s * 1e9)]
        if not len(fresh):
            return pages
        resting = np.isin(pages.page >> np.uint64(HUGE_ORDER), fresh)
        return replace(pages, idle_s=np.where(resting, np.float32(0), pages.idle_s))

    def choose(self, page: U64Array, gain: F64Array) -> tuple[I64Array, Counter[str]]:
        """Which of some folios are split now, int64[m] indices, best first; what is not, by why.

        Args:
            page: uint64[n] keys.
            gain: float64[n] of `split_gain`.
        """
        again = np.isin(page >> np.uint64(HUGE_ORDER), self._region)
        worth = np.isfinite(gain)
        order = np.lexsort((page, -gain))
        order = order[(worth & ~again)[order]]
        notes = Counter(
            {
                "split was tried before": int(np.count_nonzero(worth & again)),
                "more splits than one pass makes": max(0, len(order) - bounds.SPLITS),
            }
        )
        return order[: bounds.SPLITS], notes


def choose_splits(work: CostRound, folios: SplitHistory, rule: Rule) -> None:
    """Plan splits, before moves are planned: what is split does not move in this decision.

    A tier that is short of room is relieved first, if need be of whole folios. Without budget
    nothing is split: the pages that it is done for could not move.
    """
    if work.left <= 0:
        return
    pages, tier = work.pages, work.tier
    may = (tier >= 0) & (pages.idle_s >= work.settings.min_residency_s)
    busy = work.patterns.at(pages.page).pages
    # Of a folio that is used all over there is nothing to find out.
    split = may & (pages.order >= HUGE_ORDER) & (busy < HUGE_PAGES)
    for _, planned, _ in work.moves:
        split &= ~np.isin(pages.page, planned.page)
    if work.surprised or not split.any():
        return
    space = work.spaces
    split &= space[tier] >= 0
    bids = _bids(work, rule, np.flatnonzero(may))
    price = space_prices(bids, space)
    at = np.flatnonzero(split)
    own = np.flatnonzero(split[may])
    bids = Bids(bids.tier[own], bids.size[own], bids.gain[own], bids.cost[own])
    gain, dest = split_gain(
        bids,
        busy[at],
        lines=work.demand.lines[at],
        doubt=work.confidence * work.demand.doubt[at],
        byte_s=1 / work.model.bytes_per_s,
        price=price,
        rule=rule,
    )
    gain[~_allowed(work, at, dest)] = -np.inf
    chosen, notes = folios.choose(pages.page[at], gain)
    work.notes.update(notes)
    work.splits = pages.page[at[chosen]]
    idle_s = pages.idle_s.copy()
    idle_s[at[chosen]] = 0
    work.pages = replace(pages, idle_s=idle_s)


def _bids(work: CostRound, rule: Rule, at: I64Array) -> Bids:
    """Of the pages at these indices; gains as `MigrationScheduler.net` has them."""
    latency, crowd = work.model.prices(work.model.load, work.weight)
    demand, tier = _of(work.demand, at), work.tier[at]
    size = pageset.sizes(work.pages)[at]
    nearer = latency[tier][:, None] - latency[None, :]
    short = np.maximum(demand.share - demand.unsure, 1 / COST.stream_lines)[:, None]
    long = np.minimum(demand.share + demand.unsure, 1)[:, None]
    unit = np.where(nearer > 0, short, long) * nearer
    unit += demand.moved[:, None] * (crowd[tier][:, None] - crowd[None, :])
    doubt = work.confidence * demand.doubt
    low, high = np.maximum(demand.lines - doubt, 0), demand.lines + doubt
    rate = np.where(unit > 0, low[:, None], high[:, None])
    byte_s = 1 / work.model.bytes_per_s
    copy: F64Array = size[:, None] * (byte_s[tier][:, None] + byte_s[None, :])
    return Bids(
        tier=tier,
        size=size,
        gain=rule.horizon_s * rate * unit * 1e-9,
        cost=(1 + rule.margin) * (copy + rule.folio_s),
    )


def _of(demand: Demand, at: I64Array) -> Demand:
    return replace(
        demand,
        lines=demand.lines[at],
        doubt=demand.doubt[at],
        share=demand.share[at],
        unsure=demand.unsure[at],
        moved=demand.moved[at],
    )


def _allowed(work: CostRound, at: I64Array, dest: I64Array) -> np.ndarray:
    """Which folios, bool[n], their groups' shares would let leave and enter."""
    allowed = np.ones(len(at), np.bool_)
    if work.fair is None:
        return allowed
    tiers = work.inputs.tiers.tiers
    for rank, tier in enumerate(tiers):
        out, into = np.flatnonzero(work.tier[at] == rank), np.flatnonzero(dest == rank)
        allowed[out] &= work.fair.may_leave(pageset.take(work.pages, at[out]), tier.nodes)
        allowed[into] &= work.fair.may_enter(pageset.take(work.pages, at[into]), tier.nodes)
    return allowed
