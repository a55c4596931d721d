# SPDX-License-Identifier: Apache-2.0
"""From one decision of the cost policy to the folios that it splits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tierd.core.pagekey import HUGE_ORDER, HUGE_PAGES
from tierd.core.tuning import COST
from tierd.policy import pageset
from tierd.policy.cost_decision import CostRound
from tierd.policy.demand import Demand, F64Array
from tierd.policy.folio_split import Bids, SplitHistory, space_prices, split_gain
from tierd.policy.pageset import I64Array
from tierd.policy.scheduler import Rule


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
        gain=rule.trust * rule.horizon_s * rate * unit * 1e-9,
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
