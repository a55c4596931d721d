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
    max_maps_bytes: int = tuned(
        128 << 20,
        unit="bytes",
        meaning=(
            "At most so many bytes of `maps` or `numa_maps` are read, which is about a million "
            "mappings."
        ),
        evidence="assumption",
    )
    max_smaps_bytes: int = tuned(
        1 << 30,
        unit="bytes",
        meaning="At most so many bytes of `smaps` are read.",
        evidence="assumption",
    )
    min_range_pages: int = tuned(
        16,
        unit="pages",
        meaning="Ranges with fewer pages than this, with their neighbours, are left alone.",
        evidence="assumption",
    )
    max_ranges: int = tuned(
        4096,
        unit="count",
        meaning="At most so many of the largest ranges of a process are watched.",
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
    full_poll_ns: int = tuned(
        60 * 10**9,
        unit="ns",
        meaning=(
            "All of /proc is read once in this time even where process events arrive, as a safety "
            "net."
        ),
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
    max_new_processes: int = tuned(
        256,
        unit="count",
        meaning=(
            "At most so many new processes are looked at by age; the others wait for the refresh."
        ),
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
    max_parents: int = tuned(
        64,
        unit="count",
        meaning=(
            "At most so many parents of a process are followed to find out whether tierd started "
            "it."
        ),
        evidence="assumption",
    )
    event_buffer_bytes: int = tuned(
        4 << 20,
        unit="bytes",
        meaning=(
            "The socket for process events has a buffer of this size, which holds about 10,000 "
            "events."
        ),
        evidence="assumption",
    )
    max_events: int = tuned(
        16384,
        unit="count",
        meaning=(
            "At most so many process events are decoded at once; more count as lost, and /proc is "
            "read."
        ),
        evidence="assumption",
    )
    event_answer_s: float = tuned(
        1.0,
        unit="s",
        meaning="The kernel has this time to confirm the subscription to process events.",
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
    max_wait_ns: int = tuned(
        3600 * 10**9,
        unit="ns",
        meaning="A residency scan waits for CPU time no longer than this.",
        evidence="assumption",
    )
    ioctl_regions: int = tuned(
        4096,
        unit="count",
        meaning="One call of PAGEMAP_SCAN returns at most so many regions.",
        evidence="assumption",
    )
    span_gap_pages: int = tuned(
        64 * 512,
        unit="pages",
        meaning=(
            "Blocks with a wider gap than so many pages between them are scanned by separate calls."
        ),
        evidence="assumption",
    )
    pagemap_chunk_pages: int = tuned(
        1 << 18,
        unit="pages",
        meaning="So many entries of `pagemap` are read at once.",
        evidence="assumption",
    )


RESIDENCY: Final = ResidencyTuning()
