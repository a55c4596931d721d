# SPDX-License-Identifier: Apache-2.0
"""Constants of the policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned


@dataclass(slots=True)
class ValueTuning:
    """What a move costs, what it must save, and what a split of a folio is worth."""

    move_s: float = tuned(
        1e-5,
        unit="s",
        meaning="The move of a page of 4 KiB and the work around it cost this CPU time.",
        evidence=(
            "docs/research/lab-notebook/trials.md: 9 to 12 us by two ways to count; it is not "
            "measured where tierd runs"
        ),
    )
    phase_age_fraction: float = tuned(
        0.125,
        unit="ratio",
        meaning="A promotion must pay within this fraction of the phase age.",
        evidence=(
            "docs/research/lab-notebook/trials.md: one half instead of one eighth was tried "
            "several times and not kept"
        ),
    )
    split_s: float = tuned(
        500e-6,
        unit="s",
        meaning="The split of one folio costs this CPU time.",
        evidence="measured 0.49 ms on a shared virtual machine, Linux 6.18",
    )
    page_walk_ns: float = tuned(
        20.0,
        unit="ns",
        meaning=(
            "An access to a page of 4 KiB takes this much longer than one to a folio of 2 MiB, "
            "because the last level of the page walk is read from the second or third cache."
        ),
        evidence="assumption: 14 to 70 cycles on current cores",
    )
    busy_fraction: float = tuned(
        0.75,
        unit="ratio",
        meaning="The busiest pages of a folio are taken to have this fraction of its accesses.",
        evidence=(
            "assumption: it is 0.6 for a harmonic and 0.86 for an exponential distribution of "
            "accesses"
        ),
    )
    split_cooldown_s: float = tuned(
        600.0,
        unit="s",
        meaning=(
            "A region is not split again within this time, because the kernel has joined it "
            "(khugepaged)."
        ),
        evidence="assumption",
    )


VALUE: Final = ValueTuning()


@dataclass(slots=True)
class WatermarkTuning:
    """The policy `watermark`: how many candidates it looks at."""

    rounding: float = tuned(
        1e-5,
        unit="ratio",
        meaning=(
            "Heat that differs by less than this fraction is equal; it is more than the rounding "
            "of float32 sums."
        ),
        evidence="rounding of float32",
    )


WATERMARK: Final = WatermarkTuning()


@dataclass(slots=True)
class CostTuning:
    """The policy `cost`: demand, latency model, placement and exchange."""

    settling_half_lives: float = tuned(
        2.0,
        unit="ratio",
        meaning="After a change, the use of memory is unknown for so many half-lives of heat.",
        evidence="assumption",
    )
    quiet_s: float = tuned(
        30.0,
        unit="s",
        meaning=(
            "The loop may wait longer than a tick once the policy has planned nothing for this "
            "time; a change of the load wakes nobody."
        ),
        evidence="assumption: longer than trials and their judgement take",
    )
    spread_parts: int = tuned(
        256,
        unit="count",
        meaning="The distribution of accesses is compared over so many parts of memory.",
        evidence="assumption",
    )
    min_heat_level: float = tuned(
        0.01,
        unit="ratio",
        meaning="Young heat is taken to have reached at least this fraction of its final level.",
        evidence="assumption",
    )
    min_region_pages: int = tuned(
        16,
        unit="pages",
        meaning=(
            "The distribution of accesses in a region is used if the region has at least so many "
            "pages."
        ),
        evidence="assumption",
    )
    classes_per_doubling: float = tuned(
        2.0,
        unit="count",
        meaning="Page classes divide each doubling of the access rate into so many steps.",
        evidence="assumption",
    )
    stall_classes: int = tuned(
        4,
        unit="count",
        meaning="Page classes divide the stall fraction into so many steps.",
        evidence="assumption",
    )
    write_classes: int = tuned(
        4,
        unit="count",
        meaning="Page classes divide the written fraction into so many steps.",
        evidence="assumption",
    )
    placement_min_gain: float = tuned(
        5e-4,
        unit="ratio",
        meaning=(
            "An iteration of the placement optimiser must save this fraction of the waiting time."
        ),
        evidence="assumption",
    )
    step_sizes: tuple[float, ...] = tuned(
        (1.0, 0.75, 0.5, 0.35, 0.25, 0.125, 0.06, 0.03),
        unit="ratio",
        meaning="The line search of the placement optimiser tries these step sizes.",
        evidence="assumption",
    )
    gradient_points: int = tuned(
        8,
        unit="count",
        meaning=(
            "The placement optimiser averages prices over so many points between the present and "
            "the best placement."
        ),
        evidence="assumption",
    )
    free_load: float = tuned(
        0.5,
        unit="ratio",
        meaning=(
            "A tier below this fraction of its bandwidth may be loaded further without a limit."
        ),
        evidence="assumption",
    )
    load_step: float = tuned(
        0.05,
        unit="ratio",
        meaning=(
            "One decision raises the load of a tier above `free_load` by at most this fraction of "
            "its bandwidth."
        ),
        evidence="assumption",
    )
    remap_s: float = tuned(
        3e-6,
        unit="s",
        meaning=(
            "Unmapping, flushing TLBs and mapping a folio again costs this CPU time until it was "
            "measured."
        ),
        evidence="assumption",
    )
    streamed_stall_fraction: float = tuned(
        0.5,
        unit="ratio",
        meaning="An access whose stall fraction is at most this is taken for part of a stream.",
        evidence="assumption",
    )
    alike_rate_fraction: float = tuned(
        0.5,
        unit="ratio",
        meaning="Streams whose rates differ by at most this fraction may stand for each other.",
        evidence="assumption",
    )
    stream_lines: int = tuned(
        24,
        unit="count",
        meaning="A stream has so many lines under way.",
        evidence=(
            "the L2 cache of current Intel cores has 48 line fill slots, of which a stream gets "
            "about half"
        ),
    )
    probe_factor: float = tuned(
        1.25,
        unit="ratio",
        meaning=(
            "A measurement that finds a tier so many times slower than its description is believed."
        ),
        evidence="assumption",
    )
    residual_load_fraction: float = tuned(
        0.3,
        unit="ratio",
        meaning=(
            "The use of memory is taken to have changed when this fraction of all load is "
            "elsewhere than expected."
        ),
        evidence="assumption",
    )


COST: Final = CostTuning()
