# SPDX-License-Identifier: Apache-2.0
"""GPUs through the real NVML binding on the stand-in, and as tiers; message layouts."""

from __future__ import annotations

import ctypes
import re

import cffi
import numpy as np
import pytest
from standin import NVML, TOP, World

from tierd_gpu import wire
from tierd_gpu.cli import as_json, as_text
from tierd_gpu.links import HOST, GpuTopology
from tierd_gpu.nvml import Nvml, available


def read(name: str) -> tuple[GpuTopology, list[int | None]]:
    with World(name, gpu_bytes=64 << 20, blocks=64):
        ctypes.CDLL(str(NVML))  # the binding opens it by its name, which is now loaded
        with Nvml() as nvml:
            return nvml.topology(), nvml.free_bytes()


def test_four_v100_have_single_and_doubled_links() -> None:
    found, free = read("v100x4")
    assert found.nvlinks.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 2], [2, 1, 2, 0]]
    assert found.bytes_per_s[0, 3] == 48e9
    assert found.bytes_per_s[0, 1] == 25e9
    assert found.bytes_per_s[0, HOST] == pytest.approx(12e9)
    assert free == [64 << 20] * 4


def test_eight_h100_reach_each_other_through_switches() -> None:
    found, _ = read("h100x8")
    off = ~np.eye(8, dtype=bool)
    assert (found.nvlinks[off] == 18).all()
    assert len(set(found.bytes_per_s[:8, :8][off].tolist())) == 1
    assert found.bytes_per_s[0, 1] > 400e9


def test_without_nvlink_peers_are_reached_over_pcie_and_that_is_said() -> None:
    found, _ = read("pcie4")
    assert not found.nvlinks.any()
    assert 0 < found.bytes_per_s[0, 1] < found.bytes_per_s[0, HOST]
    assert found.notes == ("no NVLink: peers are reached over PCIe",)


def test_a_lost_gpu_is_told_as_lost() -> None:
    with World("v100x4", gpu_bytes=64 << 20, blocks=64) as world:
        ctypes.CDLL(str(NVML))
        with Nvml() as nvml:
            topology = nvml.topology()
            world.lib.cu.fg_device_lose(2)
            free = nvml.free_bytes()
    assert free[2] is None
    assert "gpu 2: Stand-in v100x4, 64.0 MiB, lost" in as_text(topology, free)
    assert len(as_json(topology, free)["links"]) == 20  # type: ignore[arg-type]


def test_doctors_line_names_gpus_and_links() -> None:
    for name, words in (("v100x4", "up to 2 NVLinks a pair"), ("pcie4", "no NVLink")):
        with World(name, gpu_bytes=64 << 20, blocks=64):
            ctypes.CDLL(str(NVML))
            told = available()
        assert told.ok
        assert told.reason.startswith(f"4 x Stand-in {name}")
        assert words in told.reason


def test_message_layouts_are_those_of_the_c_header() -> None:
    text = (TOP / "daemon/native/gpu/wire.h").read_text(encoding="utf-8")
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    ffi = cffi.FFI()
    ffi.cdef(plain)
    names = {
        "hello": wire.HELLO, "chunks": wire.CHUNKS, "use": wire.USE, "state": wire.STATE,
        "alive": wire.ALIVE, "welcome": wire.WELCOME, "gpu": wire.GPU, "move": wire.MOVE,
        "lease": wire.LEASE, "header": wire.HEADER,
    }  # fmt: skip
    for name, layout in names.items():
        fields = ffi.typeof(f"struct tgw_{name}").fields
        assert layout.itemsize == ffi.sizeof(f"struct tgw_{name}"), name
        offsets = [layout.fields[field][1] for field in layout.names]  # type: ignore[index]
        assert offsets == [field.offset for _, field in fields], name
    for kind in wire.Kind:
        assert re.search(rf"\bTGW_{kind.name} = {kind.value},", text), kind
    for op in wire.Op:
        assert re.search(rf"\bTGW_OP_{op.name} = {op.value},", text), op
    for flag in wire.StateFlag:
        assert re.search(rf"\bTGW_{flag.name} = {flag.value},", text), flag
