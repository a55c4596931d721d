# SPDX-License-Identifier: Apache-2.0
"""Rules of grouping and ranking, on nodes made by hand or by Hypothesis."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tierd.core.tiermap import MemoryKind, MemoryNode, Provenance, Quantity
from tierd.topology.reader import rank_tiers


def node(
    number: int,
    latency: float,
    bandwidth: float,
    kind: MemoryKind = MemoryKind.CXL,
    *,
    provenance: Provenance = Provenance.HMAT,
    cpus: frozenset[int] = frozenset(),
) -> MemoryNode:
    return MemoryNode(
        number, 1 << 30, cpus, kind, Quantity(latency, provenance), Quantity(bandwidth, provenance)
    )


def groups(*nodes: MemoryNode) -> list[tuple[int, ...]]:
    return [tier.nodes for tier in rank_tiers({n.node: n for n in nodes})[0]]


def test_latencies_within_20_percent_are_alike() -> None:
    assert groups(node(0, 100, 1e10), node(1, 120, 1e10)) == [(0, 1)]
    assert groups(node(0, 100, 1e10), node(1, 121, 1e10)) == [(0,), (1,)]


def test_bandwidths_within_a_factor_of_two_are_alike() -> None:
    assert groups(node(0, 100, 1e10), node(1, 100, 2e10)) == [(0, 1)]
    assert groups(node(0, 100, 1e10), node(1, 100, 2.1e10)) == [(0,), (1,)]


def test_kinds_are_never_mixed() -> None:
    assert groups(node(0, 100, 1e10), node(1, 100, 1e10, MemoryKind.PMEM)) == [(0,), (1,)]


def test_nodes_with_cpus_are_one_tier_whatever_their_numbers() -> None:
    cpus = frozenset({0})
    pair = (
        node(0, 100, 1e11, MemoryKind.DRAM, cpus=cpus),
        node(1, 140, 5e11, MemoryKind.DRAM, cpus=cpus),
    )
    tiers, notes = rank_tiers({n.node: n for n in pair})
    assert [tier.nodes for tier in tiers] == [(0, 1)]
    assert "differ in latency" in notes[0]


def test_a_reference_figure_is_no_evidence_of_a_difference() -> None:
    unknown = node(1, 400, 1e9, provenance=Provenance.DEFAULT)
    tiers, _ = rank_tiers({0: node(0, 200, 1e11), 1: unknown})
    assert [(t.nodes, t.latency_ns.value) for t in tiers] == [((0, 1), 200)]
    assert tiers[0].bandwidth_bytes_per_s.provenance is Provenance.DEFAULT


def test_equal_latency_puts_dram_before_hbm() -> None:
    pair = (node(0, 100, 9e11, MemoryKind.HBM), node(1, 100, 1e11, MemoryKind.DRAM))
    assert groups(*pair) == [(1,), (0,)]


def test_names_are_numbered() -> None:
    far = [node(n, 100 * 2**n, 1e10) for n in range(3)]
    tiers, _ = rank_tiers({n.node: n for n in far})
    assert [t.name for t in tiers] == ["cxl", "cxl-2", "cxl-3"]


ANY_NODE = st.tuples(
    st.floats(10, 2000),
    st.floats(1e8, 1e12),
    st.sampled_from(MemoryKind),
    st.sampled_from(Provenance),
    st.booleans(),
)


@given(st.lists(ANY_NODE, min_size=1, max_size=12))
def test_every_node_is_in_one_tier_and_ranks_follow_latency(
    drawn: list[tuple[float, float, MemoryKind, Provenance, bool]],
) -> None:
    nodes = {
        i: node(i, lat, bw, kind, provenance=how, cpus=frozenset({i} if cpus else ()))
        for i, (lat, bw, kind, how, cpus) in enumerate(drawn)
    }
    tiers, _ = rank_tiers(nodes)
    assert sorted(n for tier in tiers for n in tier.nodes) == sorted(nodes)
    assert [tier.rank for tier in tiers] == list(range(len(tiers)))
    assert len({tier.name for tier in tiers}) == len(tiers)
    latencies = [tier.latency_ns.value for tier in tiers]
    assert latencies == sorted(latencies)
    assert sum(tier.capacity_bytes for tier in tiers) == len(nodes) << 30
