# SPDX-License-Identifier: Apache-2.0
"""Every number that tunes the harvester's decisions and that nobody sets, with its evidence.

What is configured, or set in tests and benchmarks, is in `tierd_gpu.settings`; the client
library's numbers are in daemon/native/gpu/tuning.h. docs/operate/gpu.md has the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned


@dataclass(frozen=True, slots=True)
class PlanTuning:
    """Decisions for one borrower."""

    victims: int = tuned(48, "chunks", "So many are sent away from home in one turn at most.")
    fault_chunks: int = tuned(2, "chunks", "Prefetches leave so much at home free for faults.")
    lookahead_uses: int = tuned(512, "uses", "So many predicted uses are looked at.")
    horizon_ns: int = tuned(200_000_000, "ns", "Uses of a chunk are reckoned so far ahead.")
    most_uses: float = tuned(64.0, "uses", "No chunk is taken to have more in the horizon.")
    often_ratio: float = tuned(
        2.0,
        "ratio",
        "A chunk that is used in place so many times as often as the others comes home.",
    )
    unknown_uses: float = tuned(
        0.3, "uses", "What a victim is taken to have that was used once at most."
    )
    gain_ratio: float = tuned(
        0.1,
        "ratio",
        "A chunk that is used in place comes home for a gain of this part of the time that its "
        "move and another's take; moves go on beside kernels.",
    )
    commands: int = tuned(96, "count", "A tenant has so many under way at most.")
    bounces: int = tuned(2, "count", "A chunk moves home so often without a use in between.")
    bounce_window_ns: int = tuned(1_000_000_000, "ns", "After this time that count starts again.")
    backoff_ns: int = tuned(1_000_000_000, "ns", "A way that broke is left alone for so long.")
    answer_ns: int = tuned(
        2_000_000_000, "ns", "A command that has no answer after this is forgotten."
    )


@dataclass(frozen=True, slots=True)
class CostTuning:
    """What moves and faults cost beside the transfer: H100, PCIe 5, driver 580."""

    to_host_ns: float = tuned(
        14_000.0, "ns", "A move to the host, in runs of 4 chunks.", "measured: 55 us a call"
    )
    to_gpu_ns: float = tuned(
        5_000.0, "ns", "A move to a GPU, in runs of 16 chunks.", "measured: 80 us a call"
    )
    host_first_ns: float = tuned(
        474_000.0,
        "ns",
        "More for a chunk that was never on the host, which has to find memory.",
        "measured",
    )
    fault_ns: float = tuned(
        280_000.0, "ns", "Faults on a chunk, all of which is used.", "measured: 220 to 320 us"
    )


@dataclass(frozen=True, slots=True)
class ReclaimTuning:
    """Lending and taking back."""

    parked_ratio: float = tuned(
        0.6,
        "ratio",
        "Taking everything back from a neighbour may take this part of the revoke bound; the "
        "rest is for messages and for what is under way.",
        "test_storm.py: 17.1 ms of 20 were the longest of 15,411 revocations",
    )
    hurry_from: float = tuned(
        0.1, "ratio", "A revocation so old, of the bound, takes more than was asked for."
    )
    hurry_all: float = tuned(0.25, "ratio", "One so old takes everything that is parked there.")
    floor_ratio: float = tuned(
        0.5, "ratio", "A lender with less room than this part of its floor gets everything back."
    )
    tick_commands: int = tuned(
        288,
        "chunks",
        "So many are taken back in one tick, from all tenants together.",
        "test_tenant.py: the longest tick takes 2 to 5 ms with 12 tenants",
    )
    tenant_commands: int = tuned(384, "count", "Under way for one tenant that gives memory back.")
    window_chunks: int = tuned(
        4096, "chunks", "Of one tenant on one GPU, so many are compared in one tick."
    )
    tenants_in_turn: int = tuned(4, "count", "Tenants that give one GPU's memory back in a tick.")
    times_kept: int = tuned(4096, "count", "Of the last revocations, for the metrics.")
    spare_chunks: int = tuned(64, "chunks", "A lease is so much more than a borrower lacks.")


@dataclass(frozen=True, slots=True)
class LoanTuning:
    """Loans of programs that manage memory themselves."""

    grow_ns: int = tuned(100_000_000, "ns", "A grant grows no sooner after it has changed.")
    grow_chunks: int = tuned(
        16, "chunks", "A grant grows by so many at least, or by a part of it if that is less."
    )
    grow_divisor: int = tuned(8, "ratio", "That part is the grant divided by this.")
    idle_ns: int = tuned(10_000_000_000, "ns", "A loan without a sign of use for so long is idle.")
    idle_weight: float = tuned(0.25, "ratio", "What an idle loan weighs against others.")
    notice_ratio: float = tuned(
        0.8,
        "ratio",
        "Programs are given this part of the bound to give back; the rest is for messages.",
        "test_loan_storm.py: of 10,000 revocations that are obeyed none was late",
    )
    pending: int = tuned(32, "count", "Revocations of one loan that are counted one by one.")


@dataclass(frozen=True, slots=True)
class UseTuning:
    """What is remembered of uses."""

    same_use_ns: float = tuned(100_000.0, "ns", "Uses of a chunk nearer than this are one.")
    interval_weight: float = tuned(0.5, "ratio", "Of a new interval in that of its chunk.")
    typical_weight: float = tuned(0.2, "ratio", "Of new intervals in that of all chunks.")
    kernel_uses: float = tuned(512.0, "uses", "Their time is smoothed over so many uses.")
    pages_kept: float = tuned(
        0.85,
        "ratio",
        "Of the most pages touched, what counts at the next use: one dense use read in place "
        "would cost more than a fetch.",
    )
    history_uses: int = tuned(1 << 18, "uses", "The order of so many is kept for prediction.")
    recent_uses: int = tuned(
        8, "uses", "A neighbour of the last chunk among so many makes a direction."
    )


PLAN: Final = PlanTuning()
COST: Final = CostTuning()
RECLAIM: Final = ReclaimTuning()
LOAN: Final = LoanTuning()
USE: Final = UseTuning()
