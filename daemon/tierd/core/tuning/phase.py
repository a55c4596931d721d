# SPDX-License-Identifier: Apache-2.0
"""Constants of the detection of phase changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned


@dataclass(slots=True)
class PhaseTuning:
    """Detection of a phase change: the hot set has moved."""

    newly_hot_fraction: float = tuned(
        0.5,
        unit="ratio",
        meaning=(
            "A scan reports a phase change when more than this fraction of the pages that became "
            "hot are newly hot."
        ),
        evidence=(
            "docs/research/lab-notebook/trials.md: with 0.4, noise after a change of the sampling "
            "interval was taken twice for a phase change on `moving`"
        ),
    )
    newly_idle_fraction: float = tuned(
        0.65,
        unit="ratio",
        meaning=(
            "A scan reports a phase change when more than this fraction of the pages in steady "
            "use are newly idle; it is less than one half while the hot set stands still."
        ),
        evidence=(
            "assumption: if scans find each page with one probability, the fraction is below one "
            "half while the hot set stands still"
        ),
    )
    chance_factor: int = tuned(
        2,
        unit="ratio",
        meaning=(
            "Newly idle pages must be so many times as many as chance explains before they count "
            "as a phase change."
        ),
        evidence=(
            "assumption: if scans find each page with probability p, three in a row find p**3 of "
            "all, and the next one misses 1 - p of these"
        ),
    )
    active_fraction: float = tuned(
        0.5,
        unit="ratio",
        meaning=(
            "A scan that finds fewer accessed pages than this fraction of the newly idle ones "
            "says that the programs pause."
        ),
        evidence="assumption",
    )
    min_pages_divisor: int = tuned(
        128,
        unit="ratio",
        meaning="Fewer pages than the watched ones divided by this are no phase change.",
        evidence="assumption",
    )
    backoff_factor: int = tuned(
        2,
        unit="ratio",
        meaning=(
            "The number of scans until the next phase change can be reported grows by this factor "
            "with each phase change."
        ),
        evidence="docs/research/lab-notebook/trials.md: `stencil` 15.7 to 15.9 s instead of 16.3 s",
    )
    calm_factor: int = tuned(
        4,
        unit="ratio",
        meaning=(
            "The back-off ends after so many times as many scans without a phase change as it "
            "asks for."
        ),
        evidence="assumption",
    )
    burst_refused_pages: int = tuned(
        256,
        unit="pages",
        meaning=(
            "Fewer refused promotions than this between two checks are no miss burst, nor are "
            "fewer requests to slow memory than these pages have lines."
        ),
        evidence="assumption (docs/concepts/neomem.md)",
    )
    burst_settling_s: float = tuned(
        1.0,
        unit="s",
        meaning="The usual rate of requests follows a lower rate in this time.",
        evidence=(
            "docs/research/lab-notebook/trials.md: with five seconds the rate from before the "
            "first promotions was still usual when the set moved"
        ),
    )
    burst_check_interval_ns: int = tuned(
        200_000_000,
        unit="ns",
        meaning=(
            "Hotness monitoring units are asked for their request counters at most once in this "
            "time."
        ),
        evidence="assumption",
    )
    spike_factor: float = tuned(
        4.0,
        unit="ratio",
        meaning="A rate that is so many times the usual one is a spike.",
        evidence="assumption",
    )
    spike_min_epoch_ns: int = tuned(
        1_500_000_000,
        unit="ns",
        meaning=(
            "Spikes count only in epochs that are at least this old, because all pages are "
            "reported anew in younger ones."
        ),
        evidence=(
            "assumption: docs/research/lab-notebook/trials.md has a spike on `moving` that was "
            "lost because the epoch was young"
        ),
    )
    spike_mean_s: float = tuned(
        5.0,
        unit="s",
        meaning="The usual rate is an average over about this time.",
        evidence="assumption",
    )


PHASE: Final = PhaseTuning()
