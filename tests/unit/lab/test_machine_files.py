# SPDX-License-Identifier: Apache-2.0
"""Machine files: what the shipped ones say, and every mistake is one clear error."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.core.errors import ConfigError
from tierd.core.tiermap import MemoryKind
from tierd_lab.machine import Machine, find_machine, machine_files, machine_folders, parse_machine
from tierd_lab.nodes import MIB
from tierd_lab.qemu import qemu_options

GOOD = """
[[node]]
kind = "dram"
size = "1GiB"
cpus = "0-1"
latency = "118ns"
bandwidth = "200GiB/s"

[[node]]
kind = "cxl"
size = "2GiB"
initiator = 0
latency = "430ns"
bandwidth = "20GiB/s"
"""


def parse(text: str) -> Machine:
    return parse_machine(tomllib.loads(text), name="test", file=Path("test.toml"))


def mistake(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.file == "test.toml"
    return f"{caught.value.message} | {caught.value.hint}"


def test_all_four_machines_are_shipped_and_valid() -> None:
    """Each is found by its name, and says what it is."""
    assert {"dram-cxl", "hbm-dram-cxl", "two-socket-cxl", "flat"} <= set(machine_files())
    for name in machine_files():
        assert Machine.load(name).description


def test_dram_cxl_is_the_reference_machine() -> None:
    """1 GiB at 118 ns and 2 GiB at 430 ns."""
    dram, cxl = Machine.load("dram-cxl").nodes
    assert (dram.kind, dram.size_bytes, dram.cpus) == (MemoryKind.DRAM, 1024 * MIB, (0, 1))
    assert (cxl.kind, cxl.size_bytes, cxl.cpus) == (MemoryKind.CXL, 2048 * MIB, ())
    assert (dram.latency_ns, cxl.latency_ns) == ({0: 118}, {0: 430})
    assert cxl.initiator == 0


def test_qemu_options_of_dram_cxl() -> None:
    """The whole command line of the reference machine."""
    assert " ".join(qemu_options(Machine.load("dram-cxl"))) == (
        "-machine hmat=on"
        " -object memory-backend-ram,id=tierd0,size=1024M"
        " -object memory-backend-ram,id=tierd1,size=2048M"
        " -numa node,nodeid=0,memdev=tierd0,cpus=0,cpus=1"
        " -numa node,nodeid=1,memdev=tierd1,initiator=0"
        " -numa dist,src=0,dst=1,val=20"
        " -numa hmat-lb,initiator=0,target=0,hierarchy=memory,"
        "data-type=access-latency,latency=118"
        " -numa hmat-lb,initiator=0,target=0,hierarchy=memory,"
        "data-type=access-bandwidth,bandwidth=204800M"
        " -numa hmat-lb,initiator=0,target=1,hierarchy=memory,"
        "data-type=access-latency,latency=430"
        " -numa hmat-lb,initiator=0,target=1,hierarchy=memory,"
        "data-type=access-bandwidth,bandwidth=20480M"
    )


def test_qemu_options_of_flat_have_no_hmat() -> None:
    """One node that says nothing of its speed."""
    assert " ".join(qemu_options(Machine.load("flat"))) == (
        "-machine hmat=off"
        " -object memory-backend-ram,id=tierd0,size=2048M"
        " -numa node,nodeid=0,memdev=tierd0,cpus=0,cpus=1"
    )


def test_hbm_is_nearer_by_distance_and_not_by_latency() -> None:
    """What tells the two ladders apart."""
    options = qemu_options(Machine.load("hbm-dram-cxl"))
    assert "dist,src=0,dst=1,val=12" in options
    assert "dist,src=1,dst=2,val=24" in options
    prefix = "hmat-lb,initiator=0,target=1,hierarchy=memory,data-type="
    assert f"{prefix}access-latency,latency=118" in options
    assert f"{prefix}access-bandwidth,bandwidth=409600M" in options


def test_two_sockets_tell_each_pair() -> None:
    """Every initiator has a latency to every node, its own the lower one."""
    machine = Machine.load("two-socket-cxl")
    options = qemu_options(machine)
    latencies = [option for option in options if "access-latency" in option]
    assert len(latencies) == 8
    for node in machine.nodes:
        other = 1 - node.initiator
        assert node.latency_ns[node.initiator] < node.latency_ns[other]
        assert machine.distances[node.initiator] != machine.distances[other]


def test_unsaid_figures_grow_with_the_distance() -> None:
    """From another socket: latency times the ratio of distances, bandwidth divided by it."""
    machine = parse("""
        [[node]]
        kind = "dram"
        size = "1GiB"
        cpus = "0"
        distance = { 1 = 30 }
        latency = "100ns"
        bandwidth = "90GiB/s"
        [[node]]
        kind = "dram"
        size = "1GiB"
        cpus = "1"
        latency = "100ns"
        bandwidth = "90GiB/s"
    """)
    assert machine.nodes[0].latency_ns == {0: 100, 1: 300}
    assert machine.nodes[1].bandwidth_bytes_per_s == {1: 90 * 2**30, 0: 30 * 2**30}


@given(st.lists(st.integers(1, 2**22), min_size=1, max_size=3))
def test_bandwidths_fit_the_matrix_of_16_bits(rates_mib: list[int]) -> None:
    """Rounded to one common step, no entry passes 0xFFFE, and none is lost."""
    text = GOOD.replace("200GiB/s", f"{rates_mib[0]}MiB/s").replace(
        "20GiB/s", f"{rates_mib[-1]}MiB/s"
    )
    options = [option for option in qemu_options(parse(text)) if "bandwidth=" in option]
    values = [int(option.rsplit("=", 1)[1].removesuffix("M")) for option in options]
    step = min(value & -value for value in values)
    assert all(1 <= value // step <= 0xFFFE for value in values)
    assert max(values) == pytest.approx(max(rates_mib[0], rates_mib[-1]), rel=0.001)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind =", "kin =", "node[0].kind: missing"),
        ("initiator", "initator", "node[1].initiator: missing"),
        ('kind = "cxl"', 'kind = "clx"', "node[1].kind: 'clx' is not known | did you mean 'cxl'?"),
        ('"1GiB"', '"1GB"', "node[0].size: must be a whole number of MiB"),
        ('"1GiB"', '"1"', "node[0].size: '1' has no known size unit"),
        ('"1GiB"', "1024", "node[0].size: must be a text, not 1024"),
        ('"1GiB"', '"128MiB"', "node[0].size: the node of CPU 0 needs at least 384MiB"),
        ('"0-1"', '"1-2"', "node[0].cpus: CPU 0 is in no node"),
        ('"0-1"', '"0-x"', "node[0].cpus: '0-x' is not a list of CPUs"),
        ('"0-1"', '"0,0"', "node[0].cpus: '0,0' names a CPU twice"),
        ('cpus = "0-1"', "", "node[0].cpus: missing: at least one node must have CPUs"),
        ("initiator = 0", 'cpus = "1"', "node[1].cpus: CPU 1 is already in node[0]"),
        ("initiator = 0", "initiator = 1", "node[1].initiator: node 1 has no CPUs"),
        ("initiator = 0", "initiator = 7", "node[1].initiator: node 7 has no CPUs"),
        ("initiator = 0", "initiator = true", "node[1].initiator: must be a whole number"),
        ('"430ns"', '"430"', "node[1].latency: '430' has no known unit of time"),
        ('"430ns"', '"1s"', "node[1].latency: must be between 1ns and 60us"),
        ('"20GiB/s"', '"20GiB"', "node[1].bandwidth: '20GiB' is not a rate"),
        ('bandwidth = "20GiB/s"', "", "node[1].bandwidth: missing: latency is given"),
        (
            'latency = "430ns"\nbandwidth = "20GiB/s"',
            "",
            "node[1].latency: missing: other nodes have one",
        ),
        (
            "initiator = 0",
            "initiator = 0\ndistance = { 2 = 20 }",
            "node[1].distance.2: is not a node; there are 2 nodes",
        ),
        (
            "initiator = 0",
            "initiator = 0\ndistance = { 0 = 10 }",
            "node[1].distance.0: 10 is not between 11 and 254",
        ),
        (
            "initiator = 0",
            "initiator = 0\ndistance = { 1 = 20 }",
            "node[1].distance.1: is the node itself",
        ),
        (
            "initiator = 0",
            'initiator = 0\nlatency_from = { 0 = "1us" }',
            "node[1].latency_from.0: is the node's own initiator: write latency",
        ),
        (
            "initiator = 0",
            'initiator = 0\nlatency_from = { 1 = "1us" }',
            "node[1].latency_from.1: node 1 has no CPUs",
        ),
    ],
)
def test_mistake_names_the_key(old: str, new: str, message: str) -> None:
    """One mistake, one error that begins with the file and the key's path."""
    assert old in GOOD
    head, tail = GOOD.rsplit(old, 1) if "[1]" in message else GOOD.split(old, 1)
    assert mistake(f"{head}{new}{tail}").startswith(f"test.toml: {message}")


def test_unknown_key_names_the_nearest() -> None:
    """At the top and in a node."""
    assert "node[1].latncy" in mistake(GOOD + 'latncy = "1ns"')
    assert "did you mean 'latency'?" in mistake(GOOD + 'latncy = "1ns"')
    assert mistake('descripton = "x"\n' + GOOD) == (
        "test.toml: descripton: unknown key | did you mean 'description'?"
    )


def test_distances_must_not_contradict() -> None:
    """A pair said twice says the same."""
    text = GOOD.replace('cpus = "0-1"', 'cpus = "0-1"\ndistance = { 1 = 20 }')
    assert parse(text.replace("initiator = 0", "initiator = 0\ndistance = { 0 = 20 }"))
    assert "node[1].distance.0: 21 contradicts node[0].distance.1" in mistake(
        text.replace("initiator = 0", "initiator = 0\ndistance = { 0 = 21 }")
    )


def test_file_without_nodes_is_an_error() -> None:
    """There is no machine without memory."""
    assert mistake("") == "test.toml: node: missing: a machine has at least one [[node]] | "


def test_unknown_machine_names_the_nearest() -> None:
    """As for keys."""
    with pytest.raises(ConfigError) as caught:
        Machine.load("dram-clx")
    assert caught.value.message == "there is no machine 'dram-clx'"
    assert caught.value.hint == "did you mean 'dram-cxl'?"


def test_machine_is_found_by_path_and_in_the_named_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path is taken as it is; $TIERD_MACHINES goes before the shipped files."""
    (tmp_path / "flat.toml").write_text(GOOD)
    assert len(Machine.load(tmp_path / "flat.toml").nodes) == 2
    assert len(Machine.load("flat").nodes) == 1
    monkeypatch.setenv("TIERD_MACHINES", str(tmp_path))
    assert machine_folders()[0] == tmp_path
    assert find_machine("flat") == tmp_path / "flat.toml"
    assert len(Machine.load("flat").nodes) == 2


@pytest.mark.parametrize("text", ["[[node]", "\xff"])
def test_unreadable_file_is_an_error(tmp_path: Path, text: str) -> None:
    """Not TOML, not UTF-8, not there."""
    file = tmp_path / "bad.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        Machine.load(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        Machine.load(tmp_path / "none.toml")
