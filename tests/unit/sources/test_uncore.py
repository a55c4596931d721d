# SPDX-License-Identifier: Apache-2.0
"""What memory controllers count, on a made-up host: one rule a test."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tierd.core.tiermap import MemoryKind, MemoryNode, Provenance, Quantity
from tierd.sources.ebpf.perf import EventAttr, Layout
from tierd.sources.uncore import DEVICES, Uncore, events

FIGURE = Quantity(1.0, Provenance.HMAT)
MIB = 1 << 20
LINE_MIB = "6.103515625e-5"


def node(number: int, kind: MemoryKind, cpus: range = range(0), near: int = 0) -> MemoryNode:
    return MemoryNode(number, 1 << 30, frozenset(cpus), kind, FIGURE, FIGURE, initiators=(near,))


TWO_SOCKETS = {
    each.node: each
    for each in (
        node(0, MemoryKind.DRAM, range(2), 0),
        node(1, MemoryKind.DRAM, range(2, 4), 1),
        node(2, MemoryKind.HBM, near=1),
        node(3, MemoryKind.CXL, near=0),
    )
}


def pmu(root: Path, name: str, number: int, **events_: tuple[str, str, str]) -> None:
    """A PMU on CPUs 0 and 2; events by name: encoding, scale, unit."""
    folder = root / DEVICES / name
    (folder / "events").mkdir(parents=True)
    (folder / "format").mkdir()
    (folder / "type").write_text(f"{number}\n")
    (folder / "cpumask").write_text("0,2\n")
    (folder / "format/event").write_text("config:0-7\n")
    (folder / "format/umask").write_text("config:8-15,32-33\n")
    for event, (encoding, scale, unit) in events_.items():
        (folder / "events" / event).write_text(encoding + "\n")
        (folder / "events" / f"{event}.scale").write_text(scale + "\n")
        (folder / "events" / f"{event}.unit").write_text(unit + "\n")


def cas(root: Path, name: str, number: int) -> None:
    read = ("event=0x04,umask=0x103", LINE_MIB, "MiB")
    write = ("event=0x04,umask=0x0c", LINE_MIB, "MiB")
    pmu(root, name, number, cas_count_read=read, cas_count_write=write)


@dataclass
class Kernel:
    """Opens events as files whose content a test sets."""

    root: Path
    opened: list[tuple[EventAttr, int, Path]] = field(default_factory=list)

    def count(self, attr: EventAttr, cpu: int) -> int:
        file = self.root / f"count{len(self.opened)}"
        file.write_bytes(struct.pack("=Q", 7))
        self.opened.append((attr, cpu, file))
        # Each read goes on where the last one ended: the next 8 bytes are the next count.
        return os.open(file, os.O_RDONLY)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Path]:
    for cpu in range(4):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{cpu // 2}\n")
    yield tmp_path


def test_an_event_is_encoded_by_its_pmus_format(host: Path) -> None:
    cas(host, "uncore_imc_0", 17)
    read, write = events(host)
    assert (read.attr.type, read.attr.config) == (17, 0x04 | 0x03 << 8 | 1 << 32)
    assert write.attr.config == 0x04 | 0x0C << 8
    assert read.cpus == (0, 2)
    assert read.bytes_each == 64


def test_a_counter_counts_at_once_and_samples_nothing() -> None:
    made = EventAttr(17, 0x304, 0, 0).encode(counting=True)  # type: ignore[arg-type]
    assert len(made) == Layout.ATTR_SIZE
    kind, size, config, *rest = struct.unpack_from("=IIQQQQQ", made)
    assert (kind, size, config) == (17, Layout.ATTR_SIZE, 0x304)
    assert not any(rest)
    assert not any(made[48:56])


def test_free_running_counters_are_taken_where_there_are_no_others(host: Path) -> None:
    data = ("event=0xff,umask=0x20", LINE_MIB, "MiB")
    pmu(host, "uncore_imc_free_running_0", 18, data_read=data, data_write=data)
    assert {each.pmu for each in events(host)} == {"uncore_imc_free_running_0"}
    cas(host, "uncore_imc_0", 17)
    assert {each.pmu for each in events(host)} == {"uncore_imc_0"}


def test_other_pmus_and_those_that_cannot_be_read_are_left_out(host: Path) -> None:
    cas(host, "uncore_imc_0", 17)
    cas(host, "uncore_cha_0", 18)
    cas(host, "uncore_imc_1", 19)
    (host / DEVICES / "uncore_imc_1/format/umask").unlink()
    assert {each.pmu for each in events(host)} == {"uncore_imc_0"}


def test_a_value_that_its_field_cannot_hold_leaves_the_pmu_out(host: Path) -> None:
    wide = ("event=0x104", LINE_MIB, "MiB")
    pmu(host, "uncore_imc_0", 17, cas_count_read=wide, cas_count_write=wide)
    assert events(host) == []


def test_a_controllers_lines_are_its_sockets_nodes_of_its_kind(host: Path) -> None:
    cas(host, "uncore_imc_0", 17)
    cas(host, "uncore_imc_1", 18)
    cas(host, "uncore_hbm_0", 19)
    kernel = Kernel(host)
    uncore = Uncore(TWO_SOCKETS, root=host, count=kernel.count)
    assert uncore.read(1.0) == {}
    for attr, cpu, file in kernel.opened:
        # Each controller of socket 1 counts twice what those of socket 0 do.
        file.write_bytes(struct.pack("=QQ", 7, 7 + (1000 if attr.type < 19 else 50) * (1 + cpu)))
    # Two controllers of two events each, CPU 0 (times 1) and CPU 2 (times 3).
    assert uncore.read(2.0) == pytest.approx(
        {0: 4 * 1000 * 64 / 2, 1: 4 * 3000 * 64 / 2, 2: 2 * 150 * 64 / 2}
    )


def test_clusters_of_a_socket_share_alike(host: Path) -> None:
    cas(host, "uncore_imc_0", 17)
    (host / DEVICES / "uncore_imc_0/cpumask").write_text("0\n")
    halves = {
        0: node(0, MemoryKind.DRAM, range(1), 0),
        1: node(1, MemoryKind.DRAM, range(1, 2), 1),
    }
    kernel = Kernel(host)
    uncore = Uncore(halves, root=host, count=kernel.count)
    uncore.read(1.0)
    for _, _, file in kernel.opened:
        file.write_bytes(struct.pack("=QQ", 7, 1007))
    assert uncore.read(1.0) == pytest.approx({0: 64_000, 1: 64_000})


def test_a_part_of_the_controllers_tells_nothing(host: Path) -> None:
    cas(host, "uncore_imc_0", 17)
    kernel = Kernel(host)

    def refuse(attr: EventAttr, cpu: int) -> int:
        if cpu == 2:
            raise PermissionError(13, "no")
        return kernel.count(attr, cpu)

    uncore = Uncore(TWO_SOCKETS, root=host, count=refuse)
    assert uncore.refused == 2
    assert not uncore
    assert uncore.read(1.0) == {}


def test_a_host_without_such_pmus_tells_nothing(host: Path) -> None:
    uncore = Uncore(TWO_SOCKETS, root=host, count=Kernel(host).count)
    assert not uncore
    assert uncore.read(1.0) == {}
