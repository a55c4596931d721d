# SPDX-License-Identifier: Apache-2.0
"""Constants of the execution of moves, and of bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned


@dataclass(slots=True)
class MigrationTuning:
    """Execution of moves, and the count of what moved."""

    min_burst_bytes: int = tuned(
        2 << 20,
        unit="bytes",
        meaning=(
            "The token bucket of the migration rate holds at least so many bytes, because a folio "
            "of 2 MiB could not pass otherwise."
        ),
        evidence="size of a folio of 2 MiB",
    )
    burst_s: float = tuned(
        0.1,
        unit="s",
        meaning="The token bucket of the migration rate holds what the rate allows in this time.",
        evidence="assumption",
    )
    mover_cpu_credit_ns: int = tuned(
        10 * 10**9,
        unit="ns",
        meaning="CPU time that the mover did not use during this time may be spent at once.",
        evidence="assumption",
    )
    first_move_ns: float = tuned(
        20_000.0,
        unit="ns",
        meaning="The move of a page is expected to take this time until it was measured.",
        evidence="assumption",
    )
    busy_backoff_ns: int = tuned(
        2 * 10**6,
        unit="ns",
        meaning="Pages that were busy are tried again after this time.",
        evidence="assumption",
    )
    busy_backoff_factor: int = tuned(
        4,
        unit="ratio",
        meaning="The time until the next try of busy pages grows by this factor.",
        evidence="assumption",
    )
    max_busy_backoff_ns: int = tuned(
        200 * 10**6,
        unit="ns",
        meaning="The time until the next try of busy pages grows to at most this.",
        evidence="assumption",
    )
    group_min_burst_bytes: int = tuned(
        4 << 20,
        unit="bytes",
        meaning=(
            "The token bucket of a group holds at least so many bytes: one folio of 2 MiB up and "
            "one down."
        ),
        evidence="size of two folios of 2 MiB",
    )
    counter_poll_ns: int = tuned(
        10**9,
        unit="ns",
        meaning="The kernel's migration events are read this often.",
        evidence="assumption",
    )
    counter_window_ns: int = tuned(
        60 * 10**9,
        unit="ns",
        meaning="A page that moves twice within this time counts as ping-pong.",
        evidence="assumption (docs/ebpf.md and docs/metrics.md say a minute)",
    )


MIGRATION: Final = MigrationTuning()


@dataclass(slots=True)
class BandwidthTuning:
    """Measured load of nodes, and weighted interleaving."""

    mean_half_lives: float = tuned(
        0.2,
        unit="ratio",
        meaning=(
            "The load of a node is an average over this fraction of the half-life of heat, so "
            "that it does not outlive the pages that caused it."
        ),
        evidence="assumption",
    )
    interleave_interval_ns: int = tuned(
        10**9,
        unit="ns",
        meaning="The weights of interleaving are decided once in this time.",
        evidence="assumption",
    )
    interleave_min_change: int = tuned(
        2,
        unit="count",
        meaning="Weights that differ by less than this from the written ones are not written.",
        evidence="assumption",
    )
    interleave_probe_load: float = tuned(
        0.5,
        unit="ratio",
        meaning=(
            "The weights are those for additional load of this size, relative to the present load "
            "and to all bandwidth."
        ),
        evidence="assumption",
    )
    interleave_max_step: float = tuned(
        0.05,
        unit="ratio",
        meaning="The fraction of a node changes by at most this in one step.",
        evidence="assumption",
    )
    interleave_weight_sum: int = tuned(
        100,
        unit="count",
        meaning="All weights together are about this; the kernel takes weights from 1 to 255.",
        evidence="assumption",
    )


BANDWIDTH: Final = BandwidthTuning()
