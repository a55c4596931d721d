# SPDX-License-Identifier: Apache-2.0
"""Constants of the sources of accesses. trials.md is docs/research/lab-notebook/trials.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned


@dataclass(slots=True)
class ScanTuning:
    """The accessed-bit scanner (`tierd.sources.scan`): warm-up, pace and when it is asked."""

    known_scans: int = tuned(
        4,
        "scans",
        "After so many scans, a page that no scan found accessed is taken for cold.",
        "trials.md: victims after the first scan alone made `bfs` 14.2 s instead of 12.5 s",
    )
    warmup_scans: int = tuned(
        16,
        "scans",
        "The scanner works at warm-up speed for so many scans.",
        "trials.md: 12, 16 and 20 scans were compared; 16 was kept",
    )
    interval_apart_factor: int = tuned(
        4, "ratio", "An interval that changes by more than this makes the scan history useless."
    )
    patience_scans: int = tuned(
        3, "scans", "So many scans in a row must ask for another settled sampling interval."
    )
    warmup_period_us: int = tuned(
        50_000,
        "us",
        "The time between two scans of the warm-up is at least this long.",
        "trials.md: 100, 50 and 25 ms were compared; 50 ms was kept",
    )
    warmup_speed: int = tuned(
        4,
        "ratio",
        "A warm-up scan takes so many sampling intervals, or this part of the whole period.",
    )
    rest_doublings: int = tuned(
        1,
        "count",
        "The time between two scans doubles so often once the warm-up is over.",
        "trials.md: 800 ms between two scans instead of 400 ms was kept",
    )
    half_life_scans: float = tuned(
        3.0,
        "scans",
        "Heat's half-life is at least so many times the time between two scans of a page.",
        "tests/unit/engine/test_sampling_limits.py: 20 s between two scans and 5 s of half-life"
        " told when a page was scanned, not how often it is used",
    )
    idle_scans: int = tuned(
        20, "scans", "So many scans that find nothing accessed do not count as warm-up."
    )
    check_interval_ns: int = tuned(
        150_000_000,
        "ns",
        "The kernel module is asked for the results of scans at most this often.",
        "trials.md: asking twice a second ended the warm-up after twenty scans, not twelve",
    )
    beside_factor: int = tuned(
        2,
        "ratio",
        "Beside cards the scanner begins so many times faster, and warms up so much slower.",
    )
    beside_period_us: int = tuned(
        1_000_000,
        "us",
        "Beside cards the scanner scans at most once in this time after its warm-up.",
        "trials.md: with two seconds a moved hot set was not found in eleven seconds",
    )
    idle_first_ns_per_unit: float = tuned(
        1000.0,
        "ns",
        "What checking and marking a page by idle page tracking is taken to cost at first.",
        "assumption: the kernel walks the mappings of each page; it is measured from the first"
        " step on",
    )
    idle_fewest_units: int = tuned(
        64, "pages", "A step of idle page tracking handles so many pages at least."
    )
    idle_marking_fraction: float = tuned(
        0.25,
        "ratio",
        "Pages that are marked together take this part of their sampling interval at most.",
        "assumption: the same fraction as in the kernel module (ARMING_SHARE in sampling.c)",
    )


SCAN: Final = ScanTuning()


@dataclass(slots=True)
class IntervalTuning:
    """The sampling interval: the time between clearing and checking an accessed bit."""

    step_factor: float = tuned(
        16.0,
        "ratio",
        "A sampling interval or period becomes so many times longer or shorter at most in a step.",
        "trials.md: a sixteenth of the period, not 80 to 110 ms: `bfs` 11.2 s, not 13.5 s",
    )
    saturated_fraction: float = tuned(
        0.9, "ratio", "A larger accessed fraction says only that the interval is too long."
    )
    idle_fraction: float = tuned(
        1e-4, "ratio", "A smaller accessed fraction than this says that programs are idle."
    )
    alike_factor: float = tuned(
        2.0,
        "ratio",
        "Memory, intervals and accessed fractions within this factor are taken for alike.",
        "trials.md: nine tenths instead of a half of the target was tried and not kept",
    )
    close_factor: float = tuned(
        1.25,
        "ratio",
        "Units of counts, sampling periods, sizes of processes, whole scans: alike within this.",
        "trials.md: twice as many accessed pages kept `bfs` at 24.2 s; a quarter more: 11.6 s",
    )


INTERVAL: Final = IntervalTuning()


@dataclass(slots=True)
class DamonTuning:
    """DAMON as a source."""

    max_interval_factor: int = tuned(
        16, "ratio", "The sampling interval grows to at most this multiple of the configured one."
    )
    saturated_fraction: float = tuned(
        0.8,
        "ratio",
        "Regions above it are saturated; a report of which more is saturated is discarded.",
        "trials.md: `btree` 31.4 s to 30.9 s, together with another change",
    )


DAMON: Final = DamonTuning()


@dataclass(slots=True)
class HmuTuning:
    """Hotness monitoring units: how their counts are read, and how often they are asked."""

    copy_runs: int = tuned(
        2,
        "count",
        "The copy of a page adds so many counts where a run of requests counts once.",
        "assumption: the page is cleared and then written",
    )
    copy_settles_ns: int = tuned(
        1_000_000_000, "ns", "The lines of a copied page reach the device within this time."
    )
    requests_per_access: int = tuned(
        8,
        "requests",
        "So many requests count as one access of a page where devices count each line.",
        "trials.md: `bfs` 10.9 s with 8, 15.9 s with 1, 13.3 s with 64",
    )
    certain_victim_ratio: float = tuned(
        0.2,
        "ratio",
        "A card reports counts that are surely above a page with this part of their heat.",
    )
    max_left_out_fraction: float = tuned(
        0.2,
        "ratio",
        "At most this part of counters is left out for pages that cannot move or have moved.",
    )


HMU: Final = HmuTuning()
