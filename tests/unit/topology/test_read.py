# SPDX-License-Identifier: Apache-2.0
"""What `tierd.topology.read` makes of captured and hand-made trees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tierd import topology
from tierd.core.errors import ConfigError, UnavailableError
from tierd.core.overrides import NodeOverride, TierOverride, TopologyOverrides
from tierd.core.tiermap import MemoryKind, Provenance

Tree = Callable[..., Path]
NODES = "sys/devices/system/node"


def names(root: Path, overrides: TopologyOverrides | None = None) -> list[tuple[str, list[int]]]:
    return [(t.name, list(t.nodes)) for t in topology.read(root, overrides).tiers]


def test_one_node_is_one_tier_with_reference_figures(tree: Tree) -> None:
    tiers = topology.read(tree("one-node"))
    assert [(t.name, t.nodes) for t in tiers.tiers] == [("dram", (0,))]
    assert tiers.tiers[0].latency_ns.provenance is Provenance.DEFAULT
    assert (tiers.differences, tiers.notes) == ((), ())


def test_hmat_orders_dram_before_cxl(tree: Tree) -> None:
    tiers = topology.read(tree("lab-dram-cxl"))
    assert [(t.name, t.nodes) for t in tiers.tiers] == [("dram", (0,)), ("cxl", (1,))]
    cxl = tiers.nodes[1]
    assert (cxl.latency_ns.value, cxl.latency_ns.provenance) == (430.0, Provenance.HMAT)
    assert cxl.bandwidth_bytes_per_s.value == 16384e6
    assert (cxl.initiators, cxl.kernel_tier, cxl.distances) == ((0,), 117, {0: 20, 1: 10})
    assert cxl.write_latency_ns is not None
    assert cxl.write_latency_ns.value == 430.0
    up, down = tiers.promotion_tier(1), tiers.demotion_tier(0)
    assert up is tiers.tiers[0]
    assert down is tiers.tiers[1]
    assert tiers.differences == ()


@pytest.mark.parametrize("name", ["lab-hbm-dram-cxl", "xeon-max-flat"])
def test_hbm_is_known_by_its_width_and_is_no_target_by_latency(tree: Tree, name: str) -> None:
    tiers = topology.read(tree(name))
    hbm = next(t for t in tiers.tiers if t.kind is MemoryKind.HBM)
    assert (tiers.tiers[0].name, hbm.rank) == ("dram", 1)
    assert tiers.promotion_tier(hbm.rank) is None
    for rank in range(len(tiers.tiers)):
        for target in (tiers.promotion_tier(rank), tiers.demotion_tier(rank)):
            assert target is None or target.kind is not MemoryKind.HBM
    assert any("the kernel ranks hbm" in line for line in tiers.differences)


def test_hbm_of_both_sockets_is_one_tier_and_knows_its_dax_devices(tree: Tree) -> None:
    tiers = topology.read(tree("xeon-max-flat"))
    assert tiers.tier_of(2) is tiers.tier_of(3)
    assert tiers.nodes[3].devices == ("dax3.0",)
    assert tiers.nearest_first(1, tiers.tier_of(2)) == [3, 2]


def test_cpu_model_tells_hbm_where_only_distances_are_known(tree: Tree) -> None:
    root = tree("xeon-max-flat")
    for path in root.glob(f"{NODES}/node*/access*/initiators/*_*"):
        path.unlink()
    tiers = topology.read(root)
    assert [t.kind for t in tiers.tiers] == [MemoryKind.DRAM, MemoryKind.HBM]
    assert any("the CPU has HBM" in note for note in tiers.notes)


def test_cxl_cards_of_two_sockets_are_one_tier_with_cdat_figures(tree: Tree) -> None:
    tiers = topology.read(tree("two-socket-cxl"))
    assert [(t.name, t.nodes) for t in tiers.tiers] == [("dram", (0, 1)), ("cxl", (2, 3))]
    latencies = [tiers.nodes[n].latency_ns for n in (2, 3)]
    assert [(q.value, q.provenance) for q in latencies] == [
        (255.0, Provenance.CDAT),
        (262.0, Provenance.CDAT),
    ]
    assert tiers.nodes[2].devices == ("dax0.0", "region0")
    assert tiers.differences == (
        "cxl (nodes 2, 3) is one tier here and memory_tier5, memory_tier93 in the kernel",
    )


def test_everything_in_one_kernel_tier_is_said(tree: Tree) -> None:
    tiers = topology.read(tree("one-kernel-tier"))
    assert [(t.name, t.nodes) for t in tiers.tiers] == [("dram", (0, 1)), ("cxl", (2,))]
    assert len(tiers.differences) == 1
    assert "all nodes in one tier (memory_tier4)" in tiers.differences[0]


def test_distances_stand_in_for_latencies(tree: Tree) -> None:
    tiers = topology.read(tree("distances-only"))
    assert [(t.name, t.nodes) for t in tiers.tiers] == [("dram", (0, 1)), ("cxl", (2,))]
    assert tiers.nodes[2].latency_ns.provenance is Provenance.DISTANCE
    assert tiers.nodes[2].latency_ns.value == pytest.approx(115 * 1.7)
    assert tiers.nodes[2].initiators == (0,)


def test_nodes_without_memory_are_left_out_and_named(tree: Tree) -> None:
    tiers = topology.read(tree("half-there"))
    assert sorted(tiers.nodes) == [0, 2]
    notes = "\n".join(tiers.notes)
    assert "node 1: CPUs and no memory" in notes
    assert "node 3: online, no memory" in notes
    assert "dax0.0: 131072 MiB on node 4, not used as system RAM" in notes


def test_a_cxl_card_without_a_region_is_noted(tree: Tree) -> None:
    tiers = topology.read(tree("lab-cxl-card"))
    assert len(tiers.tiers) == 1
    assert tiers.notes[0].startswith("CXL memory devices without a region: mem0")


def test_an_offline_node_is_left_out(tree: Tree) -> None:
    root = tree("lab-dram-cxl", {f"{NODES}/online": "0", f"{NODES}/node0/distance": "10"})
    tiers = topology.read(root)
    assert sorted(tiers.nodes) == [0]
    assert "node 1: offline" in tiers.notes


def test_broken_firmware_falls_back_and_says_so(tree: Tree) -> None:
    tiers = topology.read(tree("broken"))
    assert [(t.name, t.nodes) for t in tiers.tiers] == [("dram", (0, 1)), ("cxl", (2, 3))]
    assert tiers.nodes[0].latency_ns.provenance is Provenance.DEFAULT
    assert tiers.nodes[2].latency_ns.provenance is Provenance.DISTANCE
    assert tiers.nodes[3].size_bytes == 128 << 20
    notes = "\n".join(tiers.notes)
    for part in (
        "node 0: read_latency of 0 is not plausible",
        "node 1: read_latency reads 'nonsense'",
        "node 2: hmat gives its cxl 40 ns, nearer than",
        "node 3: meminfo is unreadable",
        "node 3: distances are missing",
        "node 4: online, but it has no folder",
        "memory_tier4: nodelist is unreadable",
    ):
        assert part in notes


@pytest.mark.parametrize("missing", ["online", "possible", "has_memory", "has_cpu"])
def test_any_list_of_nodes_may_be_missing(tree: Tree, missing: str) -> None:
    assert names(tree("lab-dram-cxl", {f"{NODES}/{missing}": None})) == [
        ("dram", [0]),
        ("cxl", [1]),
    ]


def test_any_single_file_may_be_missing_or_garbage(tree: Tree) -> None:
    root = tree("two-socket-cxl")
    files = [p for p in root.rglob("*") if p.is_file() and not p.is_symlink()]
    assert len(files) > 50
    for path in files:
        text = path.read_text()
        for broken in (None, "", "\x00garbage\xff", "99999999999999999999", "-1"):
            path.unlink() if broken is None else path.write_text(broken)
            try:
                tiers = topology.read(root)
            finally:
                path.write_text(text)
            assert tiers.tiers, path
            assert tiers.tiers[0].kind is MemoryKind.DRAM, path


def test_a_kernel_without_numa_is_one_node(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  1024 kB\nMemFree: 1 kB\n")
    tiers = topology.read(tmp_path)
    assert tiers.tiers[0].capacity_bytes == 1 << 20
    assert "no NUMA" in tiers.notes[0]


def test_an_empty_tree_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="there are none"):
        topology.read(tmp_path)


def test_configured_numbers_win_and_say_so(tree: Tree) -> None:
    overrides = TopologyOverrides(
        nodes={
            1: NodeOverride(latency_ns=200.0, bandwidth_bytes_per_s=30e9),
            0: NodeOverride(latency_ns=90.0, provenance=Provenance.MEASURED),
        }
    )
    nodes = topology.read(tree("lab-dram-cxl"), overrides).nodes
    assert (nodes[1].latency_ns.value, nodes[1].latency_ns.provenance) == (
        200.0,
        Provenance.CONFIG,
    )
    assert nodes[0].latency_ns.provenance is Provenance.MEASURED
    assert nodes[0].bandwidth_bytes_per_s.provenance is Provenance.HMAT


def test_configured_tiers_take_their_nodes_and_the_rest_is_grouped(tree: Tree) -> None:
    overrides = TopologyOverrides(tiers=(TierOverride("far", (3,), MemoryKind.PMEM),))
    tiers = topology.read(tree("two-socket-cxl"), overrides)
    assert [(t.name, t.nodes) for t in tiers.tiers] == [
        ("dram", (0, 1)),
        ("cxl", (2,)),
        ("far", (3,)),
    ]
    assert tiers.nodes[3].kind is MemoryKind.PMEM


def test_another_socket_can_stand_in_for_far_memory(tree: Tree) -> None:
    overrides = TopologyOverrides(tiers=(TierOverride("near", (0,)), TierOverride("far", (1,))))
    tiers = topology.read(tree("distances-only"), overrides)
    assert [(t.name, t.latency_ns.value) for t in tiers.tiers] == [
        ("near", 115.0),
        ("cxl", pytest.approx(195.5)),
        ("far", pytest.approx(241.5)),
    ]
    up = tiers.promotion_tier(2)
    assert up is not None


def test_an_order_against_configured_latencies_is_kept_and_noted(tree: Tree) -> None:
    overrides = TopologyOverrides(
        (TierOverride("b", (1,)), TierOverride("a", (0,))),
        {0: NodeOverride(latency_ns=100.0)},
    )
    tiers = topology.read(tree("lab-dram-cxl"), overrides)
    assert [t.name for t in tiers.tiers] == ["b", "a"]
    assert tiers.promotion_tier(1) is None
    assert any("is not farther" in note for note in tiers.notes)


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        (
            TopologyOverrides((TierOverride("a", (0,)), TierOverride("b", (0, 1)))),
            "tiers[1].nodes[0]",
        ),
        (TopologyOverrides((TierOverride("a", (0,)), TierOverride("a", (1,)))), "tiers[1].name"),
        (TopologyOverrides((TierOverride("a", (0, 7)),)), "tiers[0].nodes[1]"),
        (TopologyOverrides(nodes={7: NodeOverride(latency_ns=1.0)}), "nodes.7"),
    ],
)
def test_a_mistake_in_the_overrides_names_the_key(
    tree: Tree, overrides: TopologyOverrides, path: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        topology.read(tree("lab-dram-cxl"), overrides)
    assert caught.value.path == f"topology.{path}"


def test_a_possible_node_without_memory_may_be_in_a_tier(tree: Tree) -> None:
    root = tree("lab-dram-cxl", {f"{NODES}/online": "0", f"{NODES}/node0/distance": "10"})
    overrides = TopologyOverrides((TierOverride("cxl", (1,)),))
    tiers = topology.read(root, overrides)
    assert [t.name for t in tiers.tiers] == ["dram"]
    assert any("no memory on node 1 now" in note for note in tiers.notes)


def with_dax(root: Path, parents: str, gib: int, node: int = 0) -> Path:
    """The tree with a dax device of so many GiB that is system RAM of a node."""
    device = root / "sys/devices/platform" / parents / "dax9.0"
    device.mkdir(parents=True)
    (device / "target_node").write_text(f"{node}\n")
    (device / "size").write_text(f"{gib << 30}\n")
    (device / "driver").symlink_to("/sys/bus/dax/drivers/kmem")
    link = root / "sys/bus/dax/devices/dax9.0"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(device)
    return root


CXL_REGION = "ACPI0017:00/root0/decoder0.1/region9/dax_region9"
NVDIMM = "ACPI0012:00/ndbus0/region9/dax9"


@pytest.mark.parametrize("parents", [CXL_REGION, NVDIMM])
@pytest.mark.parametrize("name", ["one-node", "two-socket-cxl"])
def test_a_node_with_cpus_and_a_devices_memory_is_what_its_cpus_say(
    tree: Tree, name: str, parents: str
) -> None:
    """CXL or persistent memory that was onlined into a node of DRAM (target_node 0).

    The node was called cxl or pmem, and socket 0's pages would have gone to socket 1.
    """
    root = tree(name)
    before = topology.read(root)
    meminfo = root / NODES / "node0/meminfo"
    text = meminfo.read_text()
    total = text.split("MemTotal:")[1].split("kB")[0].strip()
    meminfo.write_text(text.replace(total, str((64 + 128) << 20)))
    after = topology.read(with_dax(root, parents, 128))
    assert [(t.name, t.nodes) for t in after.tiers] == [(t.name, t.nodes) for t in before.tiers]
    assert after.nodes[0].kind is MemoryKind.DRAM
    assert after.nodes[0].latency_ns == before.nodes[0].latency_ns
    assert any("node 0: 131072 MiB of its 196608 MiB are of dax9.0" in n for n in after.notes)


def test_a_node_with_cpus_whose_only_memory_is_a_devices_is_that_devices(tree: Tree) -> None:
    """A socket without DRAM: what is there can be told."""
    root = tree("two-socket-cxl")
    size = topology.read(root).nodes[1].size_bytes
    found = topology.read(with_dax(root, CXL_REGION, (size >> 30) + 1, node=1))
    assert found.nodes[1].kind is MemoryKind.CXL
