# SPDX-License-Identifier: Apache-2.0
"""Constants of access-bit scans and their sampling interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned


@dataclass(slots=True)
class ScanTuning:
    """The accessed-bit scanner (`tierd.sources.scan`): warm-up, pace and when it is asked."""

    known_scans: int = tuned(
        4,
        unit="scans",
        meaning="After so many scans, a page that no scan found accessed is taken for cold.",
        evidence=(
            "docs/research/lab-notebook/trials.md: victims after the first scan alone made `bfs` "
            "14.2 s instead of 12.5 s"
        ),
    )
    warmup_scans: int = tuned(
        16,
        unit="scans",
        meaning="The scanner works at warm-up speed for so many scans.",
        evidence=(
            "docs/research/lab-notebook/trials.md: 12, 16 and 20 scans were compared; 16 was kept"
        ),
    )
    stale_scans: int = tuned(
        2,
        unit="scans",
        meaning=(
            "So many scans after a change of the sampling interval are not used, because they "
            "began with the interval before."
        ),
        evidence="assumption",
    )
    grown_factor: int = tuned(
        2,
        unit="ratio",
        meaning=(
            "The warm-up begins anew when the watched memory is so many times as large as at the "
            "last warm-up."
        ),
        evidence="assumption",
    )
    interval_apart_factor: int = tuned(
        4,
        unit="ratio",
        meaning=(
            "The kernel module forgets its access history when the sampling interval changes by "
            "more than this factor."
        ),
        evidence="assumption",
    )
    patience_scans: int = tuned(
        3,
        unit="scans",
        meaning=(
            "So many scans in a row must find too many or too few accessed pages before a settled "
            "sampling interval changes."
        ),
        evidence="assumption",
    )
    warmup_period_us: int = tuned(
        50_000,
        unit="us",
        meaning=(
            "The time between two scans of the warm-up is at least this long where the scanner is "
            "the only source."
        ),
        evidence=(
            "docs/research/lab-notebook/trials.md: 100, 50 and 25 ms were compared; 50 ms was kept"
        ),
    )
    warmup_period_beside_us: int = tuned(
        100_000,
        unit="us",
        meaning=(
            "The time between two scans of the warm-up is at least this long where the scanner "
            "works beside hotness monitoring units."
        ),
        evidence="assumption",
    )
    warmup_speed: int = tuned(
        4,
        unit="ratio",
        meaning=(
            "Scans of the warm-up that use the whole period as sampling interval follow each "
            "other so many times faster than later ones."
        ),
        evidence="assumption",
    )
    warmup_speed_beside: int = tuned(
        2,
        unit="ratio",
        meaning=(
            "The factor of `warmup_speed` where the scanner works beside hotness monitoring units."
        ),
        evidence="assumption",
    )
    rest_doublings: int = tuned(
        1,
        unit="count",
        meaning=(
            "The time between two scans doubles at most so many times once the warm-up is over."
        ),
        evidence=(
            "docs/research/lab-notebook/trials.md: 800 ms between two scans instead of 400 ms was "
            "kept"
        ),
    )
    idle_scans: int = tuned(
        20,
        unit="scans",
        meaning=(
            "The scanner takes the programs for not started yet during so many scans that find "
            "nothing accessed."
        ),
        evidence="assumption",
    )
    check_interval_ns: int = tuned(
        500_000_000,
        unit="ns",
        meaning="The kernel module is asked this often for the results of scans after the warm-up.",
        evidence="assumption",
    )
    warmup_check_interval_ns: int = tuned(
        150_000_000,
        unit="ns",
        meaning=(
            "The kernel module is asked this often for the results of scans during the warm-up."
        ),
        evidence=(
            "docs/research/lab-notebook/trials.md: asking twice a second ended the warm-up after "
            "some twenty scans instead of twelve"
        ),
    )
    beside_first_period_us: int = tuned(
        400_000,
        unit="us",
        meaning=(
            "The scanner beside hotness monitoring units begins with a scan period of at most "
            "this length."
        ),
        evidence="assumption",
    )
    beside_period_us: int = tuned(
        1_000_000,
        unit="us",
        meaning=(
            "The scanner beside hotness monitoring units scans at most once in this time after "
            "its warm-up."
        ),
        evidence=(
            "docs/research/lab-notebook/trials.md: two seconds instead of one made `moving` 6.26 "
            "s instead of 6.58 s, but a moved hot set was not found in eleven seconds where fast "
            "memory is short"
        ),
    )
    beside_check_interval_ns: int = tuned(
        10**9,
        unit="ns",
        meaning=(
            "The scanner beside hotness monitoring units is asked this often for its results "
            "after its warm-up."
        ),
        evidence="assumption",
    )


SCAN: Final = ScanTuning()


@dataclass(slots=True)
class IntervalTuning:
    """The sampling interval: the time between clearing and checking an accessed bit."""

    step_factor: float = tuned(
        16.0,
        unit="ratio",
        meaning=(
            "The sampling interval becomes at most so many times longer or shorter in one step."
        ),
        evidence=(
            "docs/research/lab-notebook/trials.md: a sixteenth of the period instead of 80 to 110 "
            "ms made `bfs` 11.2 s instead of 13.5 s"
        ),
    )
    saturated_fraction: float = tuned(
        0.9,
        unit="ratio",
        meaning=(
            "Where a larger fraction of pages than this was found accessed, the sampling interval "
            "is known to be too long and nothing else."
        ),
        evidence="assumption",
    )
    idle_fraction: float = tuned(
        1e-4,
        unit="ratio",
        meaning=(
            "Where a smaller fraction of pages than this was found accessed, the programs are "
            "taken for idle."
        ),
        evidence="assumption",
    )
    keep_low_factor: float = tuned(
        0.5,
        unit="ratio",
        meaning=(
            "The sampling interval stays as it is while the accessed fraction is above this "
            "multiple of the target."
        ),
        evidence=(
            "docs/research/lab-notebook/trials.md: nine tenths instead of a half was tried and "
            "not kept"
        ),
    )
    keep_high_factor: float = tuned(
        2.0,
        unit="ratio",
        meaning=(
            "The sampling interval stays as it is while the accessed fraction is below this "
            "multiple of the target."
        ),
        evidence="assumption",
    )
    keep_high_whole_factor: float = tuned(
        1.25,
        unit="ratio",
        meaning="The limit of `keep_high_factor` where the sampling interval is a whole period.",
        evidence=(
            "docs/research/lab-notebook/trials.md: twice as many accessed pages kept `bfs` at "
            "24.2 s; with a quarter more it took 11.6 s"
        ),
    )
    whole_fraction: float = tuned(
        0.5,
        unit="ratio",
        meaning=(
            "A sampling interval that is a larger fraction of the period than this is made the "
            "whole period."
        ),
        evidence="assumption",
    )
    max_phase_fraction: float = tuned(
        0.125,
        unit="ratio",
        meaning=(
            "The sampling interval may be so long that a change stays unseen for this fraction of "
            "the phase age."
        ),
        evidence="assumption",
    )
    unit_apart_factor: float = tuned(
        1.2,
        unit="ratio",
        meaning=(
            "Two units of access counts that differ by less than this factor are taken for one."
        ),
        evidence="assumption",
    )


INTERVAL: Final = IntervalTuning()
