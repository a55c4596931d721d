# SPDX-License-Identifier: Apache-2.0
"""What pages ask of memory: lines a second, how sure that is, and how long an access stalls.

Heat is a decayed count of samples, so its error is about its root. The pages of a 2 MiB region
whose heat differs no more than chance explains are estimated by the mean of their region, those
that do differ by their own heat, and in between by both, weighted by the part of the spread that
chance explains (James and Stein). A decayed Poisson count of mean m has the variance m / 2.

A missed store does not stall, and its line is written back later: it loads its tier with two
lines and counts as streamed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from tierd.core.access import LINE_BYTES
from tierd.core.pagekey import HUGE_ORDER, HUGE_PAGES, PAGE_SIZE
from tierd.core.tuning import COST, HOTNESS
from tierd.hotness.view import PageSet
from tierd.policy import pageset
from tierd.policy.pageset import I64Array
from tierd.policy.traffic import Traffic

F64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Demand:
    """Estimates for the folios of a page set, float64[n] each.

    Attributes:
        lines: cache lines a second that the program reads.
        error: standard error of that.
        stall: stall fraction, the part of a latency that an access waits on average: 1 for one
            that depends on the one before, 1 / `COST.stream_lines` for one of a stream.
        stall_error: standard error of that.
        line_bytes: bytes that tiers move for each line; a written one goes back.
    """

    lines: F64Array
    error: F64Array
    stall: F64Array
    stall_error: F64Array
    line_bytes: F64Array

    def at(self, chosen: I64Array) -> Demand:
        """Those of some folios, int64[m] indices."""
        return Demand(*(getattr(self, each.name)[chosen] for each in fields(self)))


def estimate(pages: PageSet, traffic: Traffic) -> Demand:
    """The demand of `pages`."""
    known = traffic.patterns.at(pages.page)
    streamed = np.where(np.isnan(known.parallel), COST.unknown_streaming_fraction, known.parallel)
    written = np.nan_to_num(known.written)
    heat, variance = _smoothed(pages, known.counted, streamed)
    tau_s = traffic.half_life_s / math.log(2)
    level = -math.expm1(-traffic.seen_s / tau_s)  # the part of its final level that heat has
    per_page = traffic.lines_per_count / tau_s / max(level, COST.min_heat_level)
    scale = per_page * (pageset.sizes(pages) // PAGE_SIZE)
    streamed = streamed + (1 - streamed) * written
    return Demand(
        lines=heat * scale,
        error=np.sqrt(variance) * scale,
        stall=(1 - streamed) + streamed / COST.stream_lines,
        stall_error=np.nan_to_num(known.doubt) * (1 - written) * (1 - 1 / COST.stream_lines),
        line_bytes=LINE_BYTES * (1 + written),
    )


def _smoothed(pages: PageSet, counted: F64Array, streamed: F64Array) -> tuple[F64Array, F64Array]:
    """Heat and its variance. A stream's pages differ only by where the stream is."""
    heat = pages.heat.astype(np.float64)
    if not len(heat):
        return heat, heat
    _, at, members = np.unique(
        pages.page >> np.uint64(HUGE_ORDER), return_inverse=True, return_counts=True
    )
    present = np.bincount(at, heat) / members
    known = counted / HUGE_PAGES
    mean = np.where(np.isnan(known), present[at], known)
    spread = (np.bincount(at, (heat - mean) ** 2) / members)[at]
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = np.where(spread > 0, np.clip(mean / 2 / spread, 0, 1), 1.0)
    chance = np.where(members[at] >= COST.min_region_pages, chance, 0.0)
    weight = np.maximum(chance, np.minimum(1, streamed / HOTNESS.streaming_min_fraction))
    weight = np.where(pages.order == 0, weight, 0.0)
    smoothed = weight * mean + (1 - weight) * heat
    # A folio's heat is the mean of its pages, so it stands for as many samples as it has pages.
    own = heat / (pageset.sizes(pages) // PAGE_SIZE)
    variance = (1 - weight) ** 2 * own + weight**2 * mean / HUGE_PAGES
    return smoothed, variance


@dataclass
class PageClasses:
    """Classes of folios that are alike: of one tier, one size and like demand.

    Each number is the mean of the folios of a class; `take` takes folios out.

    Attributes:
        tier: int64[classes] ranks.
        folios: int64[classes]. size: int64[classes] bytes of a folio.
        lines, low, high: float64[classes] lines a second of a folio, and its confidence bounds.
        stall, stall_low, stall_high: float64[classes] as of `Demand`, and its confidence bounds.
        line_bytes: float64[classes] as of `Demand`.
        members: indices of the folios of each class in the page set, the hottest first, those of
            streams by address.
    """

    tier: I64Array
    folios: I64Array
    size: I64Array
    lines: F64Array
    low: F64Array
    high: F64Array
    stall: F64Array
    stall_low: F64Array
    stall_high: F64Array
    line_bytes: F64Array
    members: list[I64Array]

    def __len__(self) -> int:
        return len(self.tier)

    def take(self, group: int, count: int) -> I64Array:
        """Take the first `count` folios out of a class; their indices."""
        taken, self.members[group] = np.split(self.members[group], [count])
        self.folios[group] -= count
        return taken


def single_classes(
    pages: PageSet, tier: I64Array, demand: Demand, confidence: float
) -> PageClasses:
    """Each folio as a class of its own, without `members`.

    Args:
        pages: that may move.
        tier: int64[n] ranks.
        demand: of the pages.
        confidence: standard errors between an estimate and its bounds.
    """
    error = confidence * demand.error
    return PageClasses(
        tier=tier,
        folios=np.ones(len(pages), np.int64),
        size=pageset.sizes(pages),
        lines=demand.lines,
        low=np.maximum(demand.lines - error, 0),
        high=demand.lines + error,
        stall=demand.stall,
        stall_low=np.maximum(demand.stall - demand.stall_error, 1 / COST.stream_lines),
        stall_high=np.minimum(demand.stall + demand.stall_error, 1),
        line_bytes=demand.line_bytes,
        members=[],
    )


def classify(pages: PageSet, tier: I64Array, demand: Demand, confidence: float) -> PageClasses:
    """Put folios into classes; arguments as of `single_classes`, rank -1 for what stays."""
    single = single_classes(pages, tier, demand, confidence)
    per_page = demand.lines / (single.size // PAGE_SIZE)
    with np.errstate(divide="ignore"):
        rate = np.floor(np.log2(per_page) * COST.classes_per_doubling)
    rate = np.clip(np.where(per_page > 0, rate, -200), -200, 200).astype(np.int64) + 200
    part = np.round(demand.stall * COST.stall_classes).astype(np.int64)
    written = np.round((demand.line_bytes / LINE_BYTES - 1) * COST.write_classes).astype(np.int64)
    key = (((tier * 64 + pages.order) * 8 + part) * 8 + written) * 512 + rate
    # The pages of a stream differ by chance: neighbours, which are read together, go together.
    order = np.where(part == 0, 0.0, -demand.lines)
    best = np.lexsort((pages.page, order, key))
    best = best[tier[best] >= 0]
    _, first, folios = np.unique(key[best], return_index=True, return_counts=True)
    at = np.repeat(np.arange(len(first)), folios)
    means = {
        each.name: np.bincount(at, getattr(single, each.name)[best], len(first)) / folios
        for each in fields(PageClasses)
        if each.name not in ("tier", "folios", "size", "members")
    }
    return PageClasses(
        tier=tier[best][first],
        folios=folios.astype(np.int64),
        size=single.size[best][first],
        members=np.split(best, first[1:]) if len(first) else [],
        **means,
    )
