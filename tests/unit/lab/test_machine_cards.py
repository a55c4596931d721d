# SPDX-License-Identifier: Apache-2.0
"""Cards, cache and instruction counting in a machine's file, and what QEMU is told of them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tierd.core.errors import ConfigError, UnavailableError
from tierd_lab import accel, plugin
from tierd_lab.cards import CacheSpec, CardSpec, decoders
from tierd_lab.host import Kernel
from tierd_lab.machine import Machine, parse_machine
from tierd_lab.ram import GIB, PhysicalRange, node_ranges

MIB = 2**20
NODES = """
[[node]]
kind = "dram"
size = "1GiB"
cpus = "0"

[[node]]
kind = "cxl"
size = "2GiB"
initiator = 0
"""


def parse(text: str, nodes: str = NODES) -> Machine:
    return parse_machine(tomllib.loads(text + nodes), name="test", file=Path("test.toml"))


def mistake(text: str, nodes: str = NODES) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, nodes)
    return caught.value.message


def test_a_machine_without_cards_is_not_watched() -> None:
    """And QEMU gets no plugin, no window, and may use KVM."""
    machine = parse("")
    assert (machine.cards, machine.cache, machine.icount) == ((), None, None)
    assert machine.needs_tcg == ""
    assert plugin.plugin_options(machine, Path("/run")) == []


def test_the_shipped_machine_has_a_model_card_and_counts_instructions() -> None:
    machine = Machine.load("dram-cxl-card")
    assert machine.cards == (CardSpec("model", 1, 0, 2 * GIB),)
    assert machine.icount is not None
    plain = Machine.load("dram-cxl")
    assert [node.size_bytes for node in machine.nodes] == [n.size_bytes for n in plain.nodes]
    assert [node.latency_ns for node in machine.nodes] == [n.latency_ns for n in plain.nodes]


def test_cards_in_front_of_parts_of_a_node() -> None:
    """Two cards, one of each kind, that share a node between them."""
    machine = parse("""
        [[card]]
        kind = "rtl"
        node = 1
        size = "512MiB"
        [[card]]
        kind = "model"
        node = 1
        offset = "768MiB"
        log2_width = 12
        ring = 64
    """)
    assert machine.cards == (
        CardSpec("rtl", 1, 0, 512 * MIB),
        CardSpec("model", 1, 768 * MIB, 1280 * MIB, 12, 64),
    )
    sizes = [node.size_bytes for node in machine.nodes]
    assert decoders(machine.cards[0], sizes) == (PhysicalRange(GIB, 512 * MIB),)
    assert decoders(machine.cards[1], sizes) == (
        PhysicalRange(GIB + 768 * MIB, 256 * MIB),
        PhysicalRange(4 * GIB, GIB),
    )


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([2 * GIB], [[(0, 2 * GIB)]]),
        ([GIB, 2 * GIB], [[(0, GIB)], [(GIB, GIB), (4 * GIB, GIB)]]),
        ([GIB, GIB, 512 * MIB], [[(0, GIB)], [(GIB, GIB)], [(2 * GIB, 512 * MIB)]]),
        (
            [GIB, 2 * GIB, 512 * MIB],
            [[(0, GIB)], [(GIB, GIB), (4 * GIB, GIB)], [(5 * GIB, 512 * MIB)]],
        ),
        ([4 * GIB], [[(0, 2 * GIB), (4 * GIB, 2 * GIB)]]),
    ],
)
def test_memory_is_split_around_the_pci_hole(
    sizes: list[int], expected: list[list[tuple[int, int]]]
) -> None:
    """QEMU's q35: up to 2.75 GiB all below, else 2 GiB below and the rest from 4 GiB on."""
    found = [[(piece.base, piece.size) for piece in node] for node in node_ranges(sizes)]
    assert found == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[card]]\nkind = "fpga"\nnode = 1', "card[0].kind: 'fpga' is not known"),
        ('[[card]]\nkind = "model"\nnode = 2', "card[0].node: must be a node; there are 2"),
        ('[[card]]\nkind = "model"', "card[0].node: must be a node"),
        ('[[card]]\nkind = "model"\nnode = 1\nsize = "3GiB"', "card[0].size: reaches beyond"),
        ('[[card]]\nkind = "model"\nnode = 1\nofset = "1GiB"', "card[0].ofset: unknown key"),
        ('[[card]]\nkind = "rtl"\nnode = 1\nring = 64', "card[0].ring: the RTL is built with one"),
        ('[[card]]\nkind = "model"\nnode = 1\nring = 63', "card[0].ring: must be a power of 2"),
        ('[[card]]\nkind = "model"\nnode = 1\nlog2_width = 4', "card[0].log2_width: must be"),
        (
            '[[card]]\nkind = "model"\nnode = 1\noffset = "128MiB"',
            "card[0].offset: the card's memory at 0x48000000",
        ),
        (
            '[[card]]\nkind = "model"\nnode = 1\n[[card]]\nkind = "rtl"\nnode = 1\nsize = "1GiB"',
            "card[1].offset: another card has this memory of node 1",
        ),
        ("cache = 2", "cache: must be written as a [cache] table"),
        ("[cache]\nways = 3", "cache.size: must be 3 ways x 64 bytes x a power of 2"),
        ("[cache]\nways = 0", "cache.ways: must be between 1 and 64"),
        ("[cache]\nline = 63", "cache.line: must be a power of 2"),
        ('[cache]\nsets = "1MiB"', "cache.sets: unknown key"),
        ("icount = 11", "icount: must be between 0 and 10"),
        ('icount = "1"', "icount: must be a whole number"),
    ],
)
def test_a_mistake_names_its_key(text: str, message: str) -> None:
    assert message in mistake(text)


def test_a_node_with_a_card_and_a_card_table_for_it_are_two_cards_at_one_place() -> None:
    nodes = NODES + 'card = "model"\n'
    assert parse("", nodes).cards == (CardSpec("model", 1, 0, 2 * GIB),)
    assert "another card" in mistake('[[card]]\nkind = "rtl"\nnode = 1\n', nodes)


def test_counting_instructions_needs_one_cpu() -> None:
    assert "one CPU, and this one has 2" in mistake("icount = 3", NODES.replace('"0"', '"0-1"'))


def test_watched_and_counted_machines_need_tcg() -> None:
    """KVM asked for is a mistake, `auto` chooses TCG without a probe and says why."""
    kernel = Kernel("6.12.9", Path("/boot/vmlinuz-6.12.9"), headers=True)
    for text, why in (("icount = 3", "its clock"), ("[cache]", "its memory traffic")):
        machine = parse(text)
        chosen = accel.choose("auto", Path("/qemu"), "10", kernel, needs_tcg=machine.needs_tcg)
        assert (chosen.name, why in chosen.reason) == ("tcg", True)
        with pytest.raises(ConfigError, match=why):
            accel.choose("kvm", Path("/qemu"), "10", kernel, needs_tcg=machine.needs_tcg)


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files named like the built libraries."""
    monkeypatch.setenv("TIERD_NEOPROF_LIBRARY_DIR", str(tmp_path))
    for name in (
        "libtierd-lab.so",
        "libneoprof-model.so",
        "libneoprof-model-table.so",
        "libneoprof-rtl-lab.so",
    ):
        (tmp_path / name).touch()
    return tmp_path


def test_qemu_is_told_of_nodes_and_cards(libraries: Path) -> None:
    """Plugin arguments as fpga/sim/plugin/options.h has them."""
    machine = parse("""
        icount = 3
        [cache]
        size = "1MiB"
        ways = 8
        [[card]]
        kind = "rtl"
        node = 1
        [[card]]
        kind = "model"
        node = 0
        offset = "512MiB"
        ring = 64
    """)
    assert machine.cache == CacheSpec(MIB, 8, 64)
    options = plugin.plugin_options(machine, Path("/run/a,b"))
    assert options[:4] == [
        "-object",
        "memory-backend-file,id=window,share=on,mem-path=/run/a,,b/window,size=131072",
        "-device",
        "ivshmem-plain,memdev=window",
    ]
    assert options[5].split(",", 1) == [
        f"{libraries}/libtierd-lab.so",
        "window=/run/a,,b/window,dump=/run/a,,b/traffic,icount=3,cache=1048576:8:64,"
        "node=0:0x0:0x40000000,node=1:0x40000000:0x40000000,node=1:0x100000000:0x40000000,"
        f"card={libraries}/libneoprof-rtl-lab.so,clock=100,"
        "decoder=0x40000000:0x40000000:0,decoder=0x100000000:0x40000000:0,"
        f"card={libraries}/libneoprof-model.so,clock=100,ring=64,"
        "decoder=0x20000000:0x20000000:0",
    ]


def test_a_card_may_count_in_a_table(libraries: Path) -> None:
    machine = parse('[[card]]\nkind = "table"\nnode = 1\n')
    options = ",".join(plugin.plugin_options(machine, Path("/run")))
    assert f"card={libraries}/libneoprof-model-table.so,clock=100," in options


@pytest.mark.parametrize(
    ("name", "kind", "what"),
    [
        ("libtierd-lab.so", "model", "make -C fpga lab"),
        ("libneoprof-model.so", "model", "make -C fpga lab"),
        ("libneoprof-model-table.so", "table", "make -C fpga lab"),
        ("libneoprof-rtl-lab.so", "rtl", "make -C fpga lab-rtl"),
    ],
)
def test_a_missing_library_says_what_builds_it(
    libraries: Path, name: str, kind: str, what: str
) -> None:
    (libraries / name).unlink()
    machine = parse(f'[[card]]\nkind = "{kind}"\nnode = 1\n')
    with pytest.raises(UnavailableError) as caught:
        plugin.plugin_options(machine, Path("/run"))
    assert name in caught.value.message
    assert caught.value.hint == what


def test_modelled_time_is_told_to_the_plugin_and_the_clock_follows_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "plugin_path", lambda: tmp_path / "lab.so")
    speeds = 'latency = "118ns"\nbandwidth = "100GB/s"\n'
    nodes = "".join(f"{part}{speeds}" for part in NODES.strip().split("\n\n"))
    nodes = nodes.replace("[[node]]", "\n[[node]]").replace('"0"', '"0"\n', 1)
    nodes = nodes.replace("initiator = 0", "initiator = 0\n")
    for extra, told in (("", False), ("follow = true\n", True)):
        text = f"icount = 0\n[time]\ninstruction_ps = 500\n{extra}{nodes}"
        machine = parse_machine(tomllib.loads(text), name="timed")
        words = plugin.plugin_options(machine, tmp_path)[-1].split(",")
        assert "time=500:100" in words
        assert "speed=1:118000:100000" in words
        assert ("pace=200" in words) is told
        assert not any(word.startswith("profile=") for word in words)
    words = plugin.plugin_options(machine, tmp_path, profile=True)[-1].split(",")
    assert words.index(f"profile={tmp_path}/profile") > words.index("time=500:100")
