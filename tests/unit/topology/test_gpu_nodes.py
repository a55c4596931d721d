# SPDX-License-Identifier: Apache-2.0
"""Memory of coherent GPUs is known without NVML, and ordinary pages never go there unasked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fakeheat import ArrayHeat, pages

from tierd import topology
from tierd.cli import main
from tierd.config.whole import check_against, loads
from tierd.core.errors import ConfigError
from tierd.core.migration import Direction, MigrationPlan
from tierd.core.overrides import TopologyOverrides
from tierd.core.tiermap import MemoryKind, NodeUsage, TierMap
from tierd.engine.build import make_policy, nothing_to_do, tier_reader
from tierd.policy.inputs import Inputs, Traffic
from tierd.policy.limits import Budget
from tierd.topology.render import as_json, as_text, capture, unpack

Tree = Callable[..., Path]
NODES = "sys/devices/system/node"
STATUS = "proc/driver/nvidia/gpus/0009:01:00.0/numa_status"
INITIATORS = f"{NODES}/has_generic_initiator"
IOMEM = "proc/iomem"
HIDDEN = "00000000-00000000 : System RAM\n  00000000-00000000 : System RAM (NVIDIA)"
CXL_NODE = 2
"""A node of the GH200 tree that `with_cxl` gives a CXL card's memory."""
GPU_NODE = 1
TIER = TopologyOverrides(gpu_nodes="tier")


def with_cxl(root: Path) -> Path:
    """The tree with a CXL card on node 2, so that there is something to move between."""
    device = root / "sys/devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax0.0"
    device.mkdir(parents=True)
    (device / "target_node").write_text(f"{CXL_NODE}\n")
    (device / "driver").symlink_to("../../../../../../../../bus/dax/drivers/kmem")
    link = root / "sys/bus/dax/devices/dax0.0"
    link.parent.mkdir(parents=True)
    link.symlink_to(device)
    (root / NODES / f"node{CXL_NODE}/meminfo").write_text("Node 2 MemTotal: 134144000 kB\n")
    (root / NODES / "has_memory").write_text("0-2\n")
    return root


def kinds(tiers: TierMap) -> dict[int, MemoryKind]:
    every = [*tiers.nodes.values(), *(each.memory for each in tiers.excluded)]
    return {node.node: node.kind for node in every}


def excluded(tiers: TierMap) -> list[int]:
    return [each.memory.node for each in tiers.excluded]


# What tells a GPU's node: each sign alone is enough.
SIGNS = {
    "the driver's file": {IOMEM: None, INITIATORS: None},
    "the resource's name": {STATUS: None, INITIATORS: None},
    "the resource's name, with addresses hidden": {STATUS: None, INITIATORS: None, IOMEM: HIDDEN},
    "the firmware": {STATUS: None, IOMEM: None},
    "a driver that does not answer, and the firmware": {STATUS: "", IOMEM: None},
}


@pytest.mark.parametrize("sign", SIGNS)
def test_each_sign_alone_tells_a_gpus_node(tree: Tree, sign: str) -> None:
    root = with_cxl(tree("gh200", SIGNS[sign]))
    tiers = topology.read(root)
    assert kinds(tiers) == {0: MemoryKind.DRAM, 1: MemoryKind.GPU, 2: MemoryKind.CXL}
    assert excluded(tiers) == [GPU_NODE]
    assert [(t.name, t.nodes) for t in tiers.tiers] == [("dram", (0,)), ("cxl", (CXL_NODE,))]


def test_without_any_sign_it_is_far_memory_as_before(tree: Tree) -> None:
    """What the signs are for: distance alone takes a GPU's memory for a CXL card's."""
    root = tree("gh200", {STATUS: None, IOMEM: None, INITIATORS: None})
    assert kinds(topology.read(root)) == {0: MemoryKind.DRAM, 1: MemoryKind.CXL}


def test_hidden_addresses_are_noted_and_do_not_add_to_what_the_driver_tells(tree: Tree) -> None:
    root = tree("gh200", {STATUS: None, INITIATORS: None, IOMEM: HIDDEN})
    assert any("hides its addresses" in note for note in topology.read(root).notes)
    (root / STATUS).parent.mkdir(parents=True, exist_ok=True)
    (root / STATUS).write_text("Node:      1\nStatus:    online\n")
    assert not any("hides" in note for note in topology.read(root).notes)


def test_memory_that_is_not_the_kernels_is_noted_and_nothing_else(tree: Tree) -> None:
    """Offline, or kept by the driver (CDMM): the kernel has no memory on the GPU's node."""
    root = tree("gh200", {f"{NODES}/has_memory": "0", IOMEM: None})
    (root / NODES / "node1/meminfo").write_text("Node 1 MemTotal:              0 kB\n")
    tiers = topology.read(root)
    assert sorted(tiers.nodes) == [0]
    assert not tiers.excluded
    assert any("node 1 has no memory; the driver keeps it" in note for note in tiers.notes)
    (root / STATUS).write_text("Node:      -1\nStatus:    offline\n")
    assert not any("GPU" in note for note in topology.read(root).notes)


@pytest.mark.parametrize("name", ["gb10", "mi300a"])
def test_memory_with_cpus_is_dram_whatever_else_uses_it(tree: Tree, name: str) -> None:
    tiers = topology.read(tree(name))
    assert set(kinds(tiers).values()) == {MemoryKind.DRAM}
    assert len(tiers.tiers) == 1
    assert not tiers.excluded


def test_a_kind_in_the_configuration_makes_no_ordinary_memory_of_a_gpus(tree: Tree) -> None:
    written = loads('[topology.nodes.1]\nkind = "cxl"').topology
    tiers = topology.read(tree("gh200"), written)
    assert kinds(tiers)[GPU_NODE] is MemoryKind.GPU
    assert excluded(tiers) == [GPU_NODE]


def test_a_node_that_the_configuration_calls_a_gpus_is_one(tree: Tree) -> None:
    written = loads('[topology.nodes.2]\nkind = "gpu"').topology
    assert excluded(topology.read(tree("distances-only"), written)) == [2]


def test_a_captured_tree_has_the_signs(tree: Tree, tmp_path: Path) -> None:
    for name, extra in (("a", {INITIATORS: None}), ("b", {STATUS: None, INITIATORS: None})):
        root = tree("gh200", extra)
        assert topology.read(unpack(capture(root), tmp_path / name)) == topology.read(root)
        (root / NODES / "node1/memory135168").unlink(missing_ok=True)
        root.rename(tmp_path / f"done-{name}")


# Excluding any node.


def test_any_node_can_be_excluded(tree: Tree) -> None:
    written = loads("[topology]\nexclude = [2, 1]").topology
    tiers = topology.read(tree("two-socket-cxl"), written)
    assert [(t.name, t.nodes) for t in tiers.tiers] == [("dram", (0,)), ("cxl", (3,))]
    assert excluded(tiers) == [1, 2]
    assert sorted(tiers.nodes) == [0, 3]
    assert tiers.tiers[1].capacity_bytes == tiers.nodes[3].size_bytes


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("exclude = [0, 1, 2, 3]", "topology.exclude"),
        ("exclude = [9]", "topology.exclude[0]"),
        (
            'exclude = [3, 2]\ntiers = [{ name = "far", nodes = [2] }]',
            "topology.exclude[1]",
        ),
        ("exclude = [1, 1]", "topology.exclude[1]"),
        ("exclude = [-1]", "topology.exclude[0]"),
        ('gpu_nodes = "use"', "topology.gpu_nodes"),
    ],
)
def test_mistakes_in_excluding_are_named_by_their_key(tree: Tree, text: str, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        topology.read(tree("two-socket-cxl"), loads(f"[topology]\n{text}").topology)
    assert caught.value.path == path


def test_an_excluded_node_is_one_that_this_host_has(tree: Tree) -> None:
    config = loads("[topology]\nexclude = [2]")
    check_against(config, topology.read(tree("two-socket-cxl"), config.topology))


def test_it_is_shown_why_a_node_is_in_no_tier(tree: Tree) -> None:
    tiers = topology.read(tree("gh200"))
    assert (
        "node 1 (gpu, 95.5 GiB): memory of GPU 0009:01:00.0, excluded by topology.gpu_nodes"
        in as_text(tiers)
    )
    (shown,) = as_json(tiers)["excluded"]
    assert (shown["node"], shown["kind"], shown["devices"]) == (1, "gpu", ("0009:01:00.0",))
    assert shown["reason"] == tiers.excluded[0].reason
    assert tiers.excluded[0].reason in nothing_to_do(tiers)


def test_the_command_takes_the_configurations_word(
    tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tierd.toml"
    file.write_text('[topology]\ngpu_nodes = "tier"\n')
    assert main(["topology", "--root", str(tree("gh200")), "--config", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "gpu   gpu   1" in shown
    assert "Nodes in no tier" not in shown


@pytest.mark.parametrize("serve", ["true", "false"])
def test_the_service_reads_as_the_command_does(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, serve: str
) -> None:
    """Whether GPUs are served or not, and without NVML."""
    root, read = tree("gh200"), topology.read
    monkeypatch.setattr("tierd.topology.read", lambda overrides=None: read(root, overrides))
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    tiers = tier_reader(loads(f"[gpu]\nserve = {serve}"))()
    assert tiers == read(root)
    assert kinds(tiers)[GPU_NODE] is MemoryKind.GPU


# A whole decision round.

CROWDED = ((4000, 0.0, 0), (3000, 500.0, 1), (3000, 0.0, 1), (3000, 500.0, 2), (3000, 0.0, 2))
"""Cold pages in DRAM, hot and cold ones on the other nodes: (pages, heat, node)."""


def decided(tiers: TierMap, policy: str, free: float) -> MigrationPlan:
    """What a policy plans where DRAM has no more than `free` of its memory free."""
    usage = {
        number: NodeUsage(node.size_bytes, int(node.size_bytes * (0.9 if number else free)), 0)
        for number, node in tiers.nodes.items()
    }
    inputs = Inputs(
        ArrayHeat(pages(*CROWDED)),
        tiers,
        usage,
        Budget(1 << 40),
        traffic=Traffic(0, 5.0, lines_per_count=1000.0),
    )
    return make_policy(loads(f'[policy]\nname = "{policy}"')).decide(inputs)


@pytest.mark.parametrize("free", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("policy", ["watermark", "cost"])
@pytest.mark.parametrize("name", ["gh200", "gb10", "mi300a"])
def test_no_ordinary_page_is_planned_onto_a_gpu_or_away_from_one(
    tree: Tree, name: str, policy: str, free: float
) -> None:
    tiers = topology.read(tree(name))
    for tier in tiers.tiers:
        for target in (tiers.promotion_tier(tier.rank), tiers.demotion_tier(tier.rank)):
            assert target is None
    plan = decided(tiers, policy, free)
    assert not len(plan)  # all that is left is one tier


@pytest.mark.parametrize("free", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("policy", ["watermark", "cost"])
def test_pages_move_past_a_gpu_between_the_others(tree: Tree, policy: str, free: float) -> None:
    tiers = topology.read(with_cxl(tree("gh200")))
    plan = decided(tiers, policy, free)
    assert len(plan)
    assert {*plan.source.tolist(), *plan.dest.tolist()} <= {0, CXL_NODE}


@pytest.mark.parametrize("policy", ["watermark", "cost"])
def test_asked_for_by_the_configuration_a_gpu_is_a_tier(tree: Tree, policy: str) -> None:
    tiers = topology.read(tree("gh200"), TIER)
    assert [(t.name, t.kind, t.nodes) for t in tiers.tiers] == [
        ("dram", MemoryKind.DRAM, (0,)),
        ("gpu", MemoryKind.GPU, (1,)),
    ]
    plan = decided(tiers, policy, 0.0)
    down = plan.dest[plan.direction == Direction.DEMOTE]
    assert len(down)
    assert set(np.unique(down).tolist()) == {GPU_NODE}
