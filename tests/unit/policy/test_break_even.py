# SPDX-License-Identifier: Apache-2.0
"""How often a page must be asked for to be worth its moves."""

from __future__ import annotations

import pytest

from tierd.core.tiermap import MemoryKind, MemoryNode, Provenance, Quantity, Tier, TierMap
from tierd.core.tuning import VALUE
from tierd.policy.rule import break_even_s, least_rate


def tiers(*latencies: float, kinds: tuple[MemoryKind, ...] | None = None) -> TierMap:
    """A node a tier, nearest first."""
    made, nodes = [], {}
    for rank, latency in enumerate(latencies):
        kind = kinds[rank] if kinds else MemoryKind.CXL if rank else MemoryKind.DRAM
        figures = (Quantity(latency, Provenance.HMAT), Quantity(1e11, Provenance.HMAT))
        nodes[rank] = MemoryNode(rank, 1 << 30, frozenset(), kind, *figures)
        made.append(Tier(rank, f"tier{rank}", kind, (rank,), 1 << 30, *figures))
    return TierMap(tuple(made), nodes)


@pytest.mark.parametrize(("seconds", "requests"), [(1.0, 64.1), (2.0, 32.05), (0.5, 128.2)])
def test_the_saved_time_pays_for_both_moves(seconds: float, requests: float) -> None:
    rate = least_rate(tiers(118, 430), [1], seconds)
    assert rate == pytest.approx(requests, rel=0.01)
    # So many requests, each 312 ns sooner, take two moves less in that time.
    assert rate * seconds * 312e-9 == pytest.approx(2 * VALUE.move_s)


@pytest.mark.parametrize(("phase_age_s", "pays_in_s"), [(0, 0.5), (3.9, 0.5), (8, 1), (80, 10)])
def test_what_has_lasted_is_trusted_for_longer(phase_age_s: float, pays_in_s: float) -> None:
    assert break_even_s(0.5, phase_age_s) == pays_in_s


def test_of_several_nodes_the_farthest_one_counts() -> None:
    three = tiers(118, 430, 1000)
    assert least_rate(three, [1], 1.0) == pytest.approx(2 * VALUE.move_s / 312e-9)
    assert least_rate(three, [2], 1.0) == pytest.approx(2 * VALUE.move_s / 570e-9)
    assert least_rate(three, [1, 2], 1.0) == least_rate(three, [2], 1.0)


def test_where_nothing_is_promoted_from_nothing_is_asked_for() -> None:
    assert least_rate(tiers(118, 430), [], 1.0) == 0.0
    assert least_rate(tiers(118, 430), [0], 1.0) == 0.0
    hbm = tiers(118, 130, kinds=(MemoryKind.DRAM, MemoryKind.HBM))
    assert least_rate(hbm, [1], 1.0) == 0.0
