# SPDX-License-Identifier: Apache-2.0
"""Constants of the heat table and of what is learned of regions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned


@dataclass(slots=True)
class HotnessTuning:
    """The heat table, phase changes by change points, and the patterns of regions."""

    node_refresh_s: float = tuned(
        30.0,
        unit="s",
        meaning=(
            "The node of a page is looked up again after this time; only DAMON does not report "
            "it, and moves by tierd are known."
        ),
        evidence=(
            "docs/research/lab-notebook/trials.md: with DAMON 30 s instead of 10 s: 2.37 % to "
            "1.73 % of all instructions, together with two other changes"
        ),
    )
    change_max_run: int = tuned(
        4,
        unit="count",
        meaning="A run of two to this many observations is a new one.",
        evidence="assumption",
    )
    change_prior_mean_weight: float = tuned(
        0.05,
        unit="ratio",
        meaning="The prior mean of the change-point detector is worth so many observations.",
        evidence="assumption",
    )
    change_prior_shape: float = tuned(
        1.0,
        unit="ratio",
        meaning=(
            "The prior variance of the change-point detector is worth twice so many observations."
        ),
        evidence="assumption",
    )
    subpage_kept_pages: int = tuned(
        8,
        unit="pages",
        meaning="So many pages of a region are kept to compare accesses, each from another batch.",
        evidence="assumption",
    )
    subpage_min_comparisons: float = tuned(
        64.0,
        unit="count",
        meaning="The subpage skew of a region is known after so many comparisons.",
        evidence="assumption",
    )
    subpage_standard_errors: float = tuned(
        2.0,
        unit="ratio",
        meaning="So many standard errors are subtracted from the coincidences of accesses.",
        evidence="assumption",
    )
    wide_region_order: int = tuned(
        13,
        unit="order",
        meaning=(
            "A region that answers where samples are rare has two to the power of this many pages."
        ),
        evidence="assumption",
    )
    pair_max_distance: int = tuned(
        16,
        unit="samples",
        meaning="Two samples of one region with more other samples between them are no pair.",
        evidence="assumption",
    )
    region_min_pairs: float = tuned(
        8.0,
        unit="count",
        meaning="A region answers for itself after so many pairs.",
        evidence="assumption",
    )
    streaming_min_fraction: float = tuned(
        0.25,
        unit="ratio",
        meaning=(
            "A region with at least this fraction of streaming accesses is taken for part of a "
            "stream."
        ),
        evidence="assumption",
    )


HOTNESS: Final = HotnessTuning()
