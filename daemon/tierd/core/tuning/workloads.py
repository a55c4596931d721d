# SPDX-License-Identifier: Apache-2.0
"""Constants of the watched processes and of residency scans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned


@dataclass(slots=True)
class WorkloadsTuning:
    """Which processes and which of their mappings are watched."""

    policy_interval_ns: int = tuned(
        5 * 10**9,
        unit="ns",
        meaning=(
            "The memory policies of a process are read again after this time when it has many "
            "pages in unread mappings."
        ),
        evidence="assumption",
    )
    few_policy_interval_ns: int = tuned(
        30 * 10**9,
        unit="ns",
        meaning=(
            "The memory policies of a process are read again after this time when it has few "
            "pages in unread mappings."
        ),
        evidence=(
            "docs/research/lab-notebook/trials.md: `numa_maps` left for later took `oltp` from "
            "0.49 s to 0.37 s, together with brief records"
        ),
    )
    few_new_fraction: float = tuned(
        1 / 8,
        unit="ratio",
        meaning=(
            "A process of which a smaller fraction of pages than this is new is not read anew for "
            "them."
        ),
        evidence="assumption",
    )
    settled_policy_interval_ns: int = tuned(
        120 * 10**9,
        unit="ns",
        meaning=(
            "The memory policies of a process without unread mappings are read again after this "
            "time."
        ),
        evidence="assumption",
    )
    policy_cost_factor: int = tuned(
        100,
        unit="ratio",
        meaning=(
            "Reading memory policies takes at most one part in so many of the time, all processes "
            "together."
        ),
        evidence="assumption",
    )
    min_range_pages: int = tuned(
        16,
        unit="pages",
        meaning="Ranges with fewer pages than this, with their neighbours, are left alone.",
        evidence="assumption",
    )
    extent_gap_pages: int = tuned(
        256,
        unit="pages",
        meaning="A hole of at most so many pages does not end an extent.",
        evidence="assumption",
    )
    extent_run_pages: int = tuned(
        512,
        unit="pages",
        meaning="An extent is cut where the node changes for at least so many pages in a row.",
        evidence="assumption",
    )
    rest_refreshes: int = tuned(
        2,
        unit="count",
        meaning=(
            "A small or idle process is passed over in so many refreshes after one that read it."
        ),
        evidence="assumption",
    )
    young_readings: int = tuned(
        3,
        unit="count",
        meaning=(
            "A new process is passed over only after so many readings, because it may be growing."
        ),
        evidence="assumption",
    )
    new_process_ages_ns: tuple[int, ...] = tuned(
        (
            250000000,
            500000000,
            1000000000,
            1500000000,
            2000000000,
            3000000000,
            4000000000,
            6000000000,
            8000000000,
        ),
        unit="ns",
        meaning="A new process is looked at when it reaches each of these ages.",
        evidence="assumption",
    )
    keep_rss_fraction: float = tuned(
        0.75,
        unit="ratio",
        meaning=(
            "A target is kept until it has less than this fraction of `min_rss`, so that it does "
            "not come and go."
        ),
        evidence="assumption",
    )
    keep_rank_factor: float = tuned(
        1.25,
        unit="ratio",
        meaning="A new process takes the place of a target if it is larger by this factor.",
        evidence="assumption",
    )


WORKLOADS: Final = WorkloadsTuning()


@dataclass(slots=True)
class ResidencyTuning:
    """Residency scans: on which node the pages of a process are."""

    idle_reread_ns: int = tuned(
        30 * 10**9,
        unit="ns",
        meaning="The mappings of a process that did nothing are read again after this time.",
        evidence="assumption",
    )
    idle_scan_factor: int = tuned(
        6,
        unit="ratio",
        meaning="A residency scan of a process that did nothing waits so many times longer.",
        evidence="assumption",
    )
    cpu_fraction: float = tuned(
        1 / 500,
        unit="ratio",
        meaning="Residency scans that find nothing new take this fraction of one CPU.",
        evidence="assumption",
    )


RESIDENCY: Final = ResidencyTuning()
