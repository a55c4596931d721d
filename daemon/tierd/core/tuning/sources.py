# SPDX-License-Identifier: Apache-2.0
"""Constants of the other sources of accesses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned


@dataclass(slots=True)
class DamonTuning:
    """DAMON as a source."""

    max_interval_factor: int = tuned(
        16,
        unit="ratio",
        meaning=(
            "The sampling interval of DAMON grows to at most this multiple of the configured one."
        ),
        evidence="assumption",
    )
    adapt_interval_ns: int = tuned(
        2 * 10**9,
        unit="ns",
        meaning="The intervals of DAMON follow the CPU time of kdamond once in this time.",
        evidence="assumption",
    )
    saturated_fraction: float = tuned(
        0.8,
        unit="ratio",
        meaning=(
            "A region that was found accessed in a larger fraction of checks than this is "
            "saturated: its real rate is unknown."
        ),
        evidence="assumption",
    )
    blind_fraction: float = tuned(
        0.8,
        unit="ratio",
        meaning=(
            "A report in which a larger fraction of memory than this is saturated is discarded."
        ),
        evidence=(
            "docs/research/lab-notebook/trials.md: `btree` 31.4 s to 30.9 s with reports "
            "discarded that find all memory accessed, together with another change"
        ),
    )


DAMON: Final = DamonTuning()


@dataclass(slots=True)
class EbpfTuning:
    """Sampling in the kernel by eBPF programs, and the performance counters that start them."""

    max_period_step_factor: float = tuned(
        4.0,
        unit="ratio",
        meaning="The sampling period changes by at most this factor in one step.",
        evidence="assumption",
    )
    dead_band: float = tuned(
        0.25,
        unit="ratio",
        meaning=(
            "The sampling period stays as it is while the rate is within this fraction of the "
            "wanted one."
        ),
        evidence="assumption",
    )
    calm_steps: int = tuned(
        10,
        unit="count",
        meaning="The sampling period may shrink again after so many steps without throttling.",
        evidence="assumption",
    )
    adapt_interval_ns: int = tuned(
        10**9,
        unit="ns",
        meaning="The sampling period and the way of counting are adapted once in this time.",
        evidence="assumption",
    )
    table_read_ns_per_page: float = tuned(
        1.5,
        unit="ns",
        meaning=(
            "Reading one page of the kernel's table is expected to cost this CPU time until it "
            "was measured."
        ),
        evidence="tests/bench/ebpf_cost.py (docs/ebpf.md, Costs)",
    )
    raw_sample_ns: float = tuned(
        150.0,
        unit="ns",
        meaning="Reading one raw sample is expected to cost this CPU time until it was measured.",
        evidence="tests/bench/ebpf_cost.py (docs/ebpf.md, Costs)",
    )
    interrupt_ns: float = tuned(
        1500.0,
        unit="ns",
        meaning=(
            "An interrupt of the performance monitoring unit is expected to cost this CPU time "
            "besides the program."
        ),
        evidence="about 1 to 2 us on current cores; perf's own throttling assumes the same order",
    )
    fault_overhead_ns: float = tuned(
        250.0,
        unit="ns",
        meaning="A software event of perf is expected to cost this CPU time besides the program.",
        evidence="tests/bench/ebpf_cost.py (docs/ebpf.md, Costs)",
    )


EBPF: Final = EbpfTuning()


@dataclass(slots=True)
class HmuTuning:
    """Hotness monitoring units: how their counts are read, and how often they are asked."""

    copy_requests: int = tuned(
        64,
        unit="requests",
        meaning="The copy of a page adds so many requests to its count, one for each of its lines.",
        evidence="a page of 4 KiB has 64 lines of 64 bytes",
    )
    copy_runs: int = tuned(
        2,
        unit="count",
        meaning=(
            "The copy of a page adds so many counts where a run of requests counts once, because "
            "the page is cleared and then written."
        ),
        evidence="assumption",
    )
    copy_settles_ns: int = tuned(
        1_000_000_000,
        unit="ns",
        meaning=(
            "The lines of a copied page reach the device within this time, when the CPU's cache "
            "writes them back."
        ),
        evidence="assumption",
    )
    check_interval_ns: int = tuned(
        5 * 10**9,
        unit="ns",
        meaning="Devices are asked for their state this often.",
        evidence=(
            "docs/research/lab-notebook/trials.md: asking every five seconds took 5 of 9 million "
            "instructions away, together with another change"
        ),
    )
    suspect_check_interval_ns: int = tuned(
        10**9,
        unit="ns",
        meaning=(
            "Devices are asked for their state this often when one did not answer or refused a "
            "command."
        ),
        evidence="assumption",
    )
    requests_per_access: int = tuned(
        8,
        unit="requests",
        meaning="So many requests count as one access of a page where devices count each line.",
        evidence=(
            "docs/research/lab-notebook/trials.md: `bfs` 10.9 s with 8, 15.9 s with 1, 13.3 s "
            "with 64"
        ),
    )
    max_threshold_boost: float = tuned(
        256.0,
        unit="ratio",
        meaning="The hot-list threshold is raised by at most this factor after overflows.",
        evidence="assumption",
    )
    max_unmovable_fraction: float = tuned(
        0.1,
        unit="ratio",
        meaning=(
            "At most this fraction of the counters is left out for pages that cannot be promoted."
        ),
        evidence="assumption",
    )
    max_moved_fraction: float = tuned(
        0.2,
        unit="ratio",
        meaning="At most this fraction of the counters is left out for pages that have moved.",
        evidence="assumption",
    )


HMU: Final = HmuTuning()
