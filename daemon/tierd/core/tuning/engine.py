# SPDX-License-Identifier: Apache-2.0
"""Constants of the control loop and of the native promoter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned


@dataclass(slots=True)
class PacingTuning:
    """When the next tick begins, and what a tick does."""

    few_pages: int = tuned(
        128,
        unit="pages",
        meaning=(
            "Fewer pages than this that move, or that wait for victims, are no reason for a tick."
        ),
        evidence="assumption",
    )
    refused_ticks: int = tuned(
        3,
        unit="count",
        meaning=(
            "So many ticks in a row come at `loop.interval` after many promotions were refused."
        ),
        evidence="assumption",
    )
    reports_per_tick: int = tuned(
        3,
        unit="count",
        meaning="A tick takes so many reports together where a source reports at intervals.",
        evidence=(
            "docs/research/lab-notebook/trials.md: `moving` with DAMON: one tick for each two "
            "reports cost 2.65 % of all instructions, each three 2.37 %"
        ),
    )
    max_reports_ns: int = tuned(
        2 * 10**9,
        unit="ns",
        meaning="A tick takes no more reports together than come in this time.",
        evidence="assumption",
    )
    ring_fill_fraction: float = tuned(
        0.25,
        unit="ratio",
        meaning="A source is read before its ring buffer is filled to this fraction.",
        evidence="assumption",
    )
    once_patience_half_lives: float = tuned(
        4.0,
        unit="count",
        meaning=(
            "A single tick (`tierd run --once`) waits for a first sample for so many half-lives of"
            " heat, then decides without."
        ),
        evidence="assumption",
    )
    watch_interval_ns: int = tuned(
        2 * 10**9,
        unit="ns",
        meaning="The monitoring targets of sources are brought up to date at most this often.",
        evidence="assumption",
    )
    locate_heat_fraction: float = tuned(
        0.25,
        unit="ratio",
        meaning=(
            "The node of a page is looked up only if its heat is at least this fraction of the "
            "least heat that is worth a move."
        ),
        evidence="assumption",
    )
    locate_budget_fraction: float = tuned(
        0.5,
        unit="ratio",
        meaning=(
            "This fraction of the residency budget goes first to hot pages whose node is unknown."
        ),
        evidence="assumption",
    )
    cpu_credit_ns: int = tuned(
        10 * 10**9,
        unit="ns",
        meaning="CPU time that was left over during this time may be spent at once.",
        evidence="assumption",
    )


PACING: Final = PacingTuning()


@dataclass(slots=True)
class PressureTuning:
    """Back-off under pressure, and the limit of the migration rate."""

    read_interval_ns: int = tuned(
        2 * 10**9,
        unit="ns",
        meaning="Pressure stall information is read this often.",
        evidence="the kernel renews its averages in this time (Documentation/accounting/psi.rst)",
    )
    min_ping_pong_pages: int = tuned(
        1024,
        unit="pages",
        meaning="Fewer moves than this say nothing about the fraction of ping-pong moves.",
        evidence="assumption",
    )
    min_rate_fraction: float = tuned(
        1 / 64,
        unit="ratio",
        meaning=(
            "The migration budget never falls below this fraction of the configured rate, so that "
            "it can recover."
        ),
        evidence="assumption",
    )
    min_pressure_rate_fraction: float = tuned(
        1 / 8,
        unit="ratio",
        meaning=(
            "Pressure never takes the migration budget below this fraction of the configured "
            "rate, because demotion relieves some kinds of pressure."
        ),
        evidence="assumption",
    )
    min_reported_moves: int = tuned(
        64,
        unit="count",
        meaning="Reports of fewer moves than this say nothing about the fraction of failed moves.",
        evidence="assumption",
    )


PRESSURE: Final = PressureTuning()


@dataclass(slots=True)
class FastPathTuning:
    """The native promoter that moves pages between two ticks."""

    ping_pong_s: float = tuned(
        5.0,
        unit="s",
        meaning="A page that is promoted within this time after its demotion counts as ping-pong.",
        evidence="assumption",
    )
    pending_timeout_s: float = tuned(
        5.0,
        unit="s",
        meaning=(
            "A reported page waits this long for room, quota or budget, because it is reported "
            "once an epoch."
        ),
        evidence="assumption",
    )
    min_victims: int = tuned(
        512,
        unit="pages",
        meaning="The promoter gets at least so many victims.",
        evidence=(
            "docs/research/lab-notebook/trials.md: victims for all that was refused instead of "
            "512 made `moving` 6.31 s instead of 6.50 s"
        ),
    )
    min_observed_s: float = tuned(
        0.5,
        unit="s",
        meaning="Heat is judged as if it had been collected for at least this time.",
        evidence="assumption",
    )
    group_slack_s: float = tuned(
        0.5,
        unit="s",
        meaning=(
            "A group that could exceed its limit within this time is left to the ticks, because "
            "the promoter's settings are renewed sooner than that."
        ),
        evidence="assumption",
    )
    rest_ns: int = tuned(
        100 * 10**6,
        unit="ns",
        meaning=(
            "Pages that found no place are looked at again after this time if no new settings come."
        ),
        evidence="assumption",
    )
    free_read_ns: int = tuned(
        50 * 10**6,
        unit="ns",
        meaning="The free memory of a node is read from the kernel again after this time.",
        evidence=(
            "docs/research/lab-notebook/trials.md: the kernel printed `meminfo` 1,361 times for "
            "75 million instructions before"
        ),
    )
    batch_quota_factor: float = tuned(
        2.0,
        unit="ratio",
        meaning="One interval plans at most this multiple of what the quota allows in it.",
        evidence="assumption",
    )
    min_batch_pages: int = tuned(
        64,
        unit="pages",
        meaning="One interval may plan so many pages whatever the quota is.",
        evidence="assumption",
    )
    burst_fraction: float = tuned(
        0.05,
        unit="ratio",
        meaning=(
            "The token bucket of the quota holds this fraction of what the quota allows in a "
            "second."
        ),
        evidence="assumption",
    )
    min_burst_bytes: float = tuned(
        64 * 4096.0,
        unit="bytes",
        meaning=(
            "The token bucket of the quota holds at least so many bytes, but no more than half of "
            "a second's quota."
        ),
        evidence="assumption",
    )
    demand_weight: float = tuned(
        0.125,
        unit="ratio",
        meaning=(
            "The mean of the bytes that are promoted in an interval follows a new value with this "
            "weight."
        ),
        evidence="assumption",
    )
    free_floor_fraction: float = tuned(
        0.25,
        unit="ratio",
        meaning="The promoter leaves this fraction of the room between the watermarks free.",
        evidence="assumption",
    )


FAST_PATH: Final = FastPathTuning()
