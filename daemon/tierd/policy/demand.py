# SPDX-License-Identifier: Apache-2.0
"""What pages ask of memory: accesses a second, how sure that is, how many are of streams.

Heat is a decayed count of samples, so a page's rate is uncertain by about the root of it. Pages
of a 2 MiB region whose heat differs no more than chance explains (a stream, or random access
to all of it) are estimated by their region's mean, those that do differ by their own heat;
in between by both, weighted by how much of the spread chance explains (James and Stein). A
decayed Poisson count of mean m has the variance m / 2.

A miss of a store is not waited for, and its line is written back later: it loads its tier with
two lines and counts as parallel. `ResidualLoad` is the load that no known page explains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tierd.core.access import LINE_BYTES
from tierd.core.pagekey import HUGE_ORDER, PAGE_SIZE, F64Array, I64Array
from tierd.core.tuning import COST, HOTNESS
from tierd.hotness.view import PageSet, heat_of_rate
from tierd.policy import pageset
from tierd.policy.inputs import Traffic
from tierd.policy.tiermodel import TierModel


@dataclass(frozen=True, slots=True)
class Demand:
    """Estimates for the folios of a page set, float64[n] each.

    Attributes:
        lines: cache lines a second, read by the program.
        doubt: standard deviation of that.
        share: of a latency, what one such access waits on average: 1 for one that depends on
            the one before, 1 / `COST.stream_lines` for one of a stream.
        unsure: standard deviation of the share.
        moved: bytes that tiers move for each line (a written one goes back).
    """

    lines: F64Array
    doubt: F64Array
    share: F64Array
    unsure: F64Array
    moved: F64Array


def estimate(pages: PageSet, traffic: Traffic) -> Demand:
    """The demand of `pages`."""
    known = traffic.patterns.at(pages.page)
    parallel = np.nan_to_num(known.parallel)  # unknown: every access waits
    written = np.nan_to_num(known.written)
    heat, variance = _smoothed(pages, known.counted, parallel)
    tau_s = heat_of_rate(traffic.half_life_s)
    size = pageset.sizes(pages) // 4096
    level = -math.expm1(-traffic.seen_s / tau_s)  # that heat has reached by now
    scale = traffic.lines_per_count / tau_s / max(level, COST.min_heat_level) * size
    parallel = parallel + (1 - parallel) * written
    return Demand(
        lines=heat * scale,
        doubt=np.sqrt(variance) * scale,
        share=(1 - parallel) + parallel / COST.stream_lines,
        unsure=np.nan_to_num(known.doubt) * (1 - written) * (1 - 1 / COST.stream_lines),
        moved=LINE_BYTES * (1 + written),
    )


def _smoothed(pages: PageSet, counted: F64Array, parallel: F64Array) -> tuple[F64Array, F64Array]:
    """Heat and its variance; a stream's pages differ by where the stream is: they are one."""
    heat = pages.heat.astype(np.float64)
    if not len(heat):
        return heat, heat
    _, at, members = np.unique(
        pages.page >> np.uint64(HUGE_ORDER), return_inverse=True, return_counts=True
    )
    present = np.bincount(at, heat) / members
    known = counted / (1 << HUGE_ORDER)
    mean = np.where(np.isnan(known), present[at], known)
    spread = (np.bincount(at, (heat - mean) ** 2) / members)[at]
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = np.where(spread > 0, np.clip(mean / 2 / spread, 0, 1), 1.0)
    chance = np.where((members[at] >= COST.min_region_pages) & (pages.order == 0), chance, 0.0)
    weight = np.where(
        pages.order == 0,
        np.maximum(chance, np.minimum(1, parallel / HOTNESS.streaming_min_fraction)),
        0.0,
    )
    smoothed = weight * mean + (1 - weight) * heat
    # Of a folio heat is the mean of its pages, of which together as many samples are known.
    own = heat / (pageset.sizes(pages) // PAGE_SIZE)
    variance = (1 - weight) ** 2 * own + weight**2 * mean / (1 << HUGE_ORDER)
    return smoothed, variance


@dataclass
class Kinds:
    """Groups of folios that are alike: in one tier, of one size, of like demand.

    Sums over the folios that are left in a group; `take` takes some out.

    Attributes:
        tier: int64[g] rank.
        folios: int64[g]. size: int64[g] bytes of a folio.
        lines, low, high: float64[g] lines a second of one folio: the estimate, less and plus
            the doubt.
        share, moved: float64[g] as of `Demand`; short, long: the share less and plus the doubt.
    """

    tier: I64Array
    folios: I64Array
    size: I64Array
    lines: F64Array
    low: F64Array
    high: F64Array
    share: F64Array
    short: F64Array
    long: F64Array
    moved: F64Array
    members: list[I64Array]
    """Indices of the folios of each group in the page set, best first, streams' by address."""

    def __len__(self) -> int:
        return len(self.tier)

    @property
    def weight(self) -> F64Array:
        """Latencies waited for a second by a folio, float64[g]."""
        return np.asarray(self.lines * self.share)

    def take(self, group: int, count: int) -> I64Array:
        """Take the best `count` folios out; their indices."""
        taken, self.members[group] = np.split(self.members[group], [count])
        self.folios[group] -= count
        return taken


def kinds_of(pages: PageSet, tier: I64Array, demand: Demand, confidence: float) -> Kinds:
    """Put pages into groups.

    Args:
        tier: int64[n] ranks, -1 for pages of no tier, which are left out.
        confidence: standard deviations by which a rate is doubted.
    """
    per_page = demand.lines / (pageset.sizes(pages) // 4096)
    with np.errstate(divide="ignore"):
        rate = np.floor(np.log2(per_page) * COST.classes_per_doubling)
    rate = np.clip(np.where(per_page > 0, rate, -200), -200, 200).astype(np.int64) + 200
    part = np.round(demand.share * COST.stall_classes).astype(np.int64)
    written = np.round((demand.moved / LINE_BYTES - 1) * COST.write_classes).astype(np.int64)
    key = (((tier * 64 + pages.order) * 8 + part) * 8 + written) * 512 + rate
    # Those of streams differ by chance; neighbours, which are read together, go together.
    order = np.where(part == 0, 0.0, -demand.lines)
    best = np.lexsort((pages.page, order, key))
    best = best[tier[best] >= 0]
    _, first, folios = np.unique(key[best], return_index=True, return_counts=True)
    at = np.repeat(np.arange(len(first)), folios)

    def mean(values: F64Array) -> F64Array:
        return np.asarray(np.bincount(at, values[best], len(first)) / folios)

    doubt = confidence * demand.doubt
    return Kinds(
        tier=tier[best][first],
        folios=folios.astype(np.int64),
        size=pageset.sizes(pages)[best][first],
        lines=mean(demand.lines),
        low=mean(np.maximum(demand.lines - doubt, 0)),
        high=mean(demand.lines + doubt),
        share=mean(demand.share),
        short=mean(np.maximum(demand.share - demand.unsure, 1 / COST.stream_lines)),
        long=mean(np.minimum(demand.share + demand.unsure, 1)),
        moved=mean(demand.moved),
        members=np.split(best, first[1:]) if len(first) else [],
    )


class ResidualLoad:
    """Load that no known page explains, float64[tiers], as slow to follow as heat is.

    Loads are told at once and heat lags: where use changes, the two would be of different
    times, and pages that were used before would be blamed for what others do now. So what is
    decided on is what known pages ask for where they are now, and of the difference to what is
    told a mean over heat's own time.
    """

    def __init__(self) -> None:
        self._mean: F64Array | None = None
        self._last_ns = 0
        self._since_ns: int | None = None

    def surprised(self, wait_s: float) -> bool:
        """Whether loads have lately been other than pages' heat leads to expect.

        Use has changed then, and heat does not tell yet to what. For `wait_s`, and then not for
        as long: loads that never keep still are no reason to do nothing for ever.
        """
        return self._since_ns is not None and self._last_ns - self._since_ns < wait_s * 1e9

    def follow(
        self, model: TierModel, known: F64Array, traffic: Traffic, wait_s: float
    ) -> TierModel:
        """The model with the load to decide on.

        Args:
            known: float64[tiers] bytes a second that known pages ask for.
        """
        silent = np.array([source == "none" for source in model.source])
        residual = np.where(silent, 0.0, model.load - known)
        if self._mean is not None and len(self._mean) == len(residual):
            elapsed_s = (traffic.time_ns - self._last_ns) / 1e9
            kept = 0.5 ** (elapsed_s / traffic.half_life_s)
            off = np.abs(residual - self._mean)[~silent].sum()
            calm = self._since_ns is None or traffic.time_ns - self._since_ns > 2 * wait_s * 1e9
            if calm and off > COST.residual_load_fraction * model.load[~silent].sum():
                self._since_ns = traffic.time_ns
            residual = np.where(silent, 0.0, kept * self._mean + (1 - kept) * residual)
        if traffic.time_ns:
            self._mean, self._last_ns = residual, traffic.time_ns
        return replace(model, load=np.maximum(known + residual, 0.0))
