# SPDX-License-Identifier: Apache-2.0
"""The rule that decides whether a page pays for its promotion, and the terms that go into it.

The rule itself stands in the native library (`daemon/native/tierd_rule.h` has the formula). The
tick and `explain` ask it here, and the fast path asks the same code. Hotness counts accesses, so
the variance of a tick's hotness is that hotness (Poisson). A tick asks without a cost and without
posterior means, because accessed bits do not tell how many accesses a second a page has; the fast
path, which has counts of cards, asks with both.

**Cost.** A page that comes into a full tier costs two moves, its own and its victim's. Each of its
accesses then takes less time by the difference of the tiers' latencies, if accesses wait for one
another. A page that saves less than it costs within the break-even time stays where it is.

**Break-even time.** What has lasted is likely to last as long again (Lindy's law), so a promotion
may pay within a fraction of the phase age: after a phase change only the hottest pages come in, and
in a long phase every page that is hotter at all. The fraction is small because a victim is not
known to be idle: accessed bits show one access where cards count several.

**Posterior mean.** Of many pages that are all used alike, some were not found accessed by any of
the last scans. They seem coldest and are not. The posterior mean of a page's rate weighs what was
seen of the page against what is known of all pages: rates are spread as a gamma distribution of
shape 1 with the mean of all, counts by Poisson's (Gelman et al., Bayesian Data Analysis, 2.6).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from tierd._native import ffi, lib
from tierd.core.access import F32Array
from tierd.core.migration import Direction, Reason
from tierd.core.tiermap import TierMap
from tierd.core.tuning import VALUE, WATERMARK


@dataclass(frozen=True, slots=True)
class Terms:
    """What the rule says of one page against one victim.

    Attributes:
        bar: hotness that the page must pass.
        price: hotness that pays for the moves and for what the victim loses.
        promotes: whether the page passes both.
    """

    bar: float
    price: float
    promotes: bool


class Rule:
    """The rule with the settings of the tick.

    Args:
        margin: how much hotter, relatively, a page must be than the page that it replaces.
        sigmas: standard deviations of the difference that it must exceed.
    """

    def __init__(self, margin: float, sigmas: float) -> None:
        self.least = sigmas**2
        """Hotness that a page must pass to be promoted into free memory."""
        self._rule: Any = ffi.new(
            "struct tierd_rule *", {"margin": margin, "sigmas": sigmas, "least": self.least}
        )

    def winners(self, heat: F32Array, victim: F32Array) -> int:
        """How many pages in a row, from the first, win each against its own victim.

        Args:
            heat: float32[n], hottest first.
            victim: float32[n], coldest first.
        """
        hot, cold = np.ascontiguousarray(heat), np.ascontiguousarray(victim)
        return int(
            lib.tierd_rule_winners(
                self._rule,
                ffi.from_buffer("float[]", hot),
                ffi.from_buffer("float[]", cold),
                min(len(hot), len(cold)),
            )
        )

    def least_to_win(self, victim: float) -> float:
        """No page of less hotness wins against such a victim; a little less than the exact bar."""
        return float(lib.tierd_rule_least(self._rule, victim)) * (1 - WATERMARK.rounding)

    def terms(self, heat: float, victim: float) -> Terms:
        """The terms of a page of this hotness against a victim's; 0 for free memory."""
        found = ffi.new("struct tierd_terms *")
        page = ffi.new("struct tierd_estimate *", [heat, heat, heat])
        lib.tierd_rule_terms(self._rule, page, victim, found)
        return Terms(float(found.bar), float(found.price), bool(found.promotes))


def break_even_s(least_s: float, phase_age_s: float) -> float:
    """The time in which a promotion must pay, s; never less than `least_s`."""
    return max(least_s, VALUE.phase_age_fraction * phase_age_s)


def least_rate(tiers: TierMap, nodes: Collection[int], pays_in_s: float) -> float:
    """Accesses a second that make a page's promotion pay within `pays_in_s`.

    Args:
        tiers: latencies, ns.
        nodes: where pages are promoted from; those that gain most count.

    Returns:
        0 where it is not known what an access saves.
    """
    saved_ns = 0.0
    for tier in tiers.tiers:
        above = tiers.promotion_tier(tier.rank)
        if above is not None and not set(nodes).isdisjoint(tier.nodes):
            saved_ns = max(saved_ns, tier.latency_ns.value - above.latency_ns.value)
    cost_s = 2 * VALUE.move_s  # its own move, and that of the page that leaves
    return cost_s / (saved_ns * 1e-9 * pays_in_s) if saved_ns > 0 else 0.0


def posterior_mean(heat: F32Array, grown: float, mean: float) -> F32Array:
    """Hotness that pages come to in the long run, float32[n].

    Args:
        heat: as it is, float32[n].
        grown: the share of its long-run level that hotness can have by now, in (0, 1].
        mean: hotness of a page of mean use in the long run, greater than 0.
    """
    # A sum of n scans whose weights fade is as certain as one of (sum w)² / sum w² scans: up to
    # twice as many as its weights come to.
    weight = np.float32(2 / (2 - grown))
    return (1 + weight * heat) / np.float32(1 / mean + weight * grown)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a page in the next decision, and why.

    Attributes:
        direction, dest: the way and the node that it goes to, None where it stays.
        victim: hotness of the page that has to leave for it; 0 for free memory, None where no
            page was compared with it.
        terms: what the rule said of the two, None where it was not asked.
    """

    reason: Reason
    heat: float
    direction: Direction | None = None
    dest: int | None = None
    victim: float | None = None
    terms: Terms | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """How far down the hottest pages came into a tier.

    Attributes:
        refused: hotness of the hottest page that did not win; None where each one won.
        victim: hotness of the page that it was compared with; None where no page could leave.
    """

    refused: float | None
    victim: float | None
