# SPDX-License-Identifier: Apache-2.0
"""Constants of the loop, of moving, of heat and of processes; trials.md is as in `sources`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned


@dataclass(slots=True)
class PacingTuning:
    """When the next tick begins, and what a tick does."""

    few_pages: int = tuned(
        64,
        "pages",
        "Fewer pages that move, fail, wait or change their use say nothing, and begin no tick.",
    )
    refused_ticks: int = tuned(
        3, "count", "So many ticks come at `loop.interval` after many promotions were refused."
    )
    reports_per_tick: int = tuned(
        3,
        "count",
        "A tick takes so many reports together where a source reports at intervals.",
        "trials.md: `moving` with DAMON: 2.37 % of all instructions instead of 2.65 % with 2",
    )
    upkeep_interval_ns: int = tuned(
        2 * 10**9,
        "ns",
        "Targets, pressure and rates of sources are read, and reports collected, this often.",
        "the kernel renews its averages of pressure in this time (accounting/psi.rst)",
    )
    locate_heat_fraction: float = tuned(
        0.25, "ratio", "Pages with at least this part of the heat that pays are located."
    )
    locate_budget_fraction: float = tuned(
        0.5, "ratio", "This part of the residency budget goes first to hot pages to be located."
    )


PACING: Final = PacingTuning()


@dataclass(slots=True)
class PressureTuning:
    """Back-off under pressure, and the limit of the migration rate."""

    min_rate_fraction: float = tuned(
        1 / 64, "ratio", "The budget never falls below this part of the rate, so that it recovers."
    )
    min_pressure_rate_fraction: float = tuned(
        1 / 8,
        "ratio",
        "Pressure never takes the budget below this part of the rate.",
        "assumption: demotion relieves some kinds of pressure",
    )


PRESSURE: Final = PressureTuning()


@dataclass(slots=True)
class FastPathTuning:
    """The native promoter that moves pages between two ticks."""

    memory_s: float = tuned(
        5.0, "s", "A demotion is remembered as ping-pong, and a page waits for room, for so long."
    )
    min_victims: int = tuned(
        512,
        "pages",
        "The promoter gets at least so many victims.",
        "trials.md: `moving` 6.31 s with victims for all that was refused, 6.50 s with 512",
    )
    group_slack_s: float = tuned(
        0.5, "s", "A group that could exceed its limit within this time is left to the ticks."
    )
    retry_ns: int = tuned(
        50 * 10**6,
        "ns",
        "Free memory is read, and pages without a place are tried, again after this time.",
        "trials.md: the kernel printed `meminfo` 1,361 times for 75 million instructions before",
    )
    min_batch_pages: int = tuned(64, "pages", "The quota's bucket holds so many pages at least.")
    demand_weight: float = tuned(
        0.125, "ratio", "The mean of bytes promoted in an interval follows with this weight."
    )
    free_floor_fraction: float = tuned(
        0.25, "ratio", "The promoter leaves this part of the room between the watermarks free."
    )


FAST_PATH: Final = FastPathTuning()


@dataclass(slots=True)
class MigrationTuning:
    """Execution of moves, and the count of what moved."""

    burst_s: float = tuned(
        0.05, "s", "Token buckets of mover and promoter hold what the rate allows in this time."
    )
    busy_backoff_ns: int = tuned(
        2 * 10**6, "ns", "Pages that were busy are tried again after this time."
    )
    busy_backoff_factor: int = tuned(
        4, "ratio", "The time until the next try of busy pages grows by this factor."
    )


MIGRATION: Final = MigrationTuning()


@dataclass(slots=True)
class AccountTuning:
    """The account of predicted and counted effects of moves, and when the service stands down."""

    interval_s: float = tuned(
        0.5, "s", "Requests to slow memory are compared over intervals of this length."
    )
    half_life_s: float = tuned(30.0, "s", "An interval counts half as much after this time.")
    min_intervals: int = tuned(
        8, "count", "The service does not stand down before so many intervals."
    )
    control_intervals: int = tuned(
        5, "count", "So many intervals without moves show how requests change by themselves."
    )
    min_variation: float = tuned(
        0.05,
        "ratio",
        "A slope is known if so much of the predictions' squares is not their mean's.",
    )
    standard_errors: float = tuned(
        3.0, "ratio", "So many standard errors are added to what came true of the predictions."
    )
    min_cost: float = tuned(
        0.01, "ratio", "Moves that take less of the time of one CPU go on, if they do no harm."
    )
    retry_ns: int = tuned(
        300 * 10**9,
        "ns",
        "The service stands down for this time, and each time for twice as long as before.",
    )


ACCOUNT: Final = AccountTuning()


@dataclass(slots=True)
class BandwidthTuning:
    """Measured load of nodes, and weighted interleaving."""

    mean_half_lives: float = tuned(
        0.2, "ratio", "The load of a node is an average over this part of the half-life of heat."
    )
    interleave_probe_load: float = tuned(
        0.5, "ratio", "Weights are those for so much more load, relative to the present one."
    )
    interleave_max_step: float = tuned(
        0.05, "ratio", "The fraction of a node changes by at most this in one step."
    )


BANDWIDTH: Final = BandwidthTuning()


@dataclass(slots=True)
class HotnessTuning:
    """The patterns of regions."""

    subpage_kept_pages: int = tuned(
        8, "pages", "So many pages of a region, of as many batches, are kept to be compared."
    )
    subpage_standard_errors: float = tuned(
        2.0, "ratio", "So many standard errors are subtracted from coincidences of accesses."
    )
    wide_region_order: int = tuned(
        13, "order", "Where samples are rare, regions of two to the power of this answer."
    )
    pair_max_distance: int = tuned(
        16, "samples", "Two samples of a region with more others between them are no pair."
    )
    region_min_pairs: float = tuned(
        8.0, "count", "A region, or a kept page of it, answers after so many pairs."
    )
    streaming_min_fraction: float = tuned(
        0.25, "ratio", "A region with at least this streaming fraction is part of a stream."
    )


HOTNESS: Final = HotnessTuning()


@dataclass(slots=True)
class WorkloadsTuning:
    """Which processes and which of their mappings are watched."""

    min_range_pages: int = tuned(
        16, "pages", "Ranges with fewer pages than this, with their neighbours, are left alone."
    )


WORKLOADS: Final = WorkloadsTuning()


EVIDENCE: Final = "trials.md, *Finding a tier that became slow*: half and twice the value"


@dataclass(slots=True)
class HealthTuning:
    """When a node counts as slow (`topology.health`)."""

    slow_probes: int = tuned(
        4,
        "count",
        "So many probes in a row out of the usual make a node slow. Twice as many make the usual "
        "figures before it is judged; thrice as many within the usual end it.",
        EVIDENCE,
    )
    deviations: float = tuned(
        4.0, "sigmas", "So far, at least, from the median is out of the usual.", EVIDENCE
    )
    slow_block_factor: float = tuned(
        3.0,
        "ratio",
        "A block of reads with a slow one in it takes so many times as long as the middle one.",
    )
    slow_read_ns: float = tuned(
        20_000.0, "ns", "It takes so much longer as well, for less is an interrupt."
    )
    min_stalls: float = tuned(
        0.05, "count", "Slow blocks in a probe that are usual on any host.", EVIDENCE
    )
    stall_chance: float = tuned(
        1e-7,
        "ratio",
        "Slow reads that chance brings as rarely as this are out of the usual.",
        EVIDENCE,
    )
    min_change: float = tuned(
        1.1, "ratio", "A slow node's figures change in decisions when they differ by so much."
    )


HEALTH: Final = HealthTuning()


PAGE_OUT_EVIDENCE: Final = "trials.md, *Paging out to compressed memory*"


@dataclass(slots=True)
class PageOutTuning:
    """Which pages leave memory (`policy.page_out`)."""

    memory_s: float = tuned(
        10.0, "s", "What faults cost is averaged over so long; the age follows in this time."
    )
    least_scans: float = tuned(
        16.0,
        "count",
        "Scans in an age at least: twice those that the kernel module remembers of a page.",
        PAGE_OUT_EVIDENCE,
    )
    most_longer: float = tuned(
        8.0,
        "ratio",
        "Times that an age takes longer, at most, with a source that counts a part of the time. "
        "What it does not see is left to what faults cost.",
        PAGE_OUT_EVIDENCE,
    )
    most_age_factor: float = tuned(
        64.0, "ratio", "Times the configured age that the age grows to at most."
    )
    visit_half_lives: float = tuned(
        20.0, "count", "Half-lives of heat between two visits of a chunk, at most."
    )
    most_half_lives: float = tuned(
        28.0,
        "count",
        "Heat that decayed by more between two visits does not tell an access from none.",
        "daemon/native/heat.c: below 2^-30 heat becomes 0",
    )
    most_refaults: float = tuned(
        0.3,
        "ratio",
        "A chunk is left alone for longer when more of its pages came back.",
        PAGE_OUT_EVIDENCE,
    )
    most_waits: int = tuned(
        64,
        "count",
        "Ages between the end of one and the next visit of a chunk, at most.",
        PAGE_OUT_EVIDENCE,
    )
    most_compressed: float = tuned(
        0.7, "ratio", "Pages stay whose samples keep more than this of their size."
    )
    sampled_pages: int = tuned(
        2, "pages", "Pages of 2 MiB that are compressed as a sample.", PAGE_OUT_EVIDENCE
    )
    dense_ages: int = tuned(64, "count", "Ages after which such a sample is taken again.")
    kept_free: float = tuned(0.1, "ratio", "Part of each swap device that is left to the kernel.")


PAGE_OUT: Final = PageOutTuning()
