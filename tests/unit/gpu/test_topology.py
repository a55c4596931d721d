# SPDX-License-Identifier: Apache-2.0
"""GPUs through the real NVML binding on the stand-in, and as tiers; message layouts."""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path

import cffi
import numpy as np
import pytest
from standin import NVML, TOP, World

from tierd.cli import main
from tierd_gpu import wire
from tierd_gpu.cli import as_json, as_text
from tierd_gpu.links import HOST, GpuTopology
from tierd_gpu.nvml import Nvml, available
from tierd_gpu.server import ServerSettings
from tierd_gpu.service import GpuService


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


GB10 = "0:nvmlDeviceGetMemoryInfo=3"
ODD = {
    "no memory of its own": (GB10, "GPU 0 (Stand-in pcie4) is left out: it has no memory"),
    "a memory of nothing": ("0:total=0", "GPU 0 (Stand-in pcie4) is left out: it has no memory"),
    "divided by MIG": ("0:mig=1", "GPU 0 (Stand-in pcie4) is left out: it is divided by MIG"),
    "lost": (
        "0:nvmlDeviceGetHandleByIndex_v2=15",
        "GPU 0 is left out: NVML says GPU is lost",
    ),
    "lost when asked for its memory": (
        "0:nvmlDeviceGetMemoryInfo=15",
        "GPU 0 (Stand-in pcie4) is left out: of its memory NVML says GPU is lost",
    ),
    "without a name": (
        f"{GB10} 0:nvmlDeviceGetName=999",
        "GPU 0 (no name) is left out: it has no memory",
    ),
}
"""What NVML says of GPU 0, and what becomes of it."""


@pytest.mark.parametrize("how", ODD)
def test_a_gpu_that_cannot_be_served_is_named_and_the_others_are_served(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    says, note = ODD[how]
    monkeypatch.setenv("FAKEGPU_NVML", says)
    found, free = read("pcie4")
    assert [gpu.uuid[-1] for gpu in found.gpus] == [1, 2, 3]
    assert [gpu.index for gpu in found.gpus] == [0, 1, 2]
    assert free == [64 << 20] * 3
    assert found.notes[0].startswith(note)
    assert "gpu 0 is NVML's GPU 1" in found.notes
    assert f"note: {note}" in as_text(found, free)


@pytest.mark.parametrize(
    ("says", "kept"),
    [
        ("0:nvmlDeviceGetMigMode=13", 4),  # a driver from before there was MIG
        ("0:nvmlDeviceGetNumaNodeId=13 0:nvmlDeviceGetNvLinkVersion=3", 4),
        ("0:nvmlDeviceGetPciInfo_v3=999 1:nvmlDeviceGetPciInfo_v3=999", 4),
        ("0:nvmlDeviceGetMaxPcieLinkGeneration=3 0:nvmlDeviceGetMaxPcieLinkWidth=3", 4),
    ],
)
def test_a_figure_that_is_missing_leaves_nobody_out(
    says: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKEGPU_NVML", says)
    found, _ = read("v100x4")
    assert len(found.gpus) == kept
    assert (found.bytes_per_s[~np.eye(5, dtype=bool)] > 0).all()


def test_links_that_do_not_answer_are_no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    says = " ".join(f"{gpu}:nvmlDeviceGetNvLinkState=3" for gpu in range(4))
    monkeypatch.setenv("FAKEGPU_NVML", says)
    found, _ = read("v100x4")
    assert not found.nvlinks.any()
    assert "no NVLink: peers are reached over PCIe" in found.notes


EVERY_GPU_LIKE_GB10 = " ".join(f"{gpu}:nvmlDeviceGetMemoryInfo=3" for gpu in range(4))


def test_where_no_gpu_can_be_served_that_is_said_and_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("FAKEGPU_NVML", EVERY_GPU_LIKE_GB10)
    with World("pcie4", gpu_bytes=64 << 20, blocks=64):
        ctypes.CDLL(str(NVML))
        told = available()
        assert main(["gpu", "show"]) == 0
        shown = capsys.readouterr().out
        assert main(["gpu", "show", "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert main(["gpu", "serve", "--socket", str(tmp_path / "gpu.sock")]) == 5
        refused = capsys.readouterr().err
    assert not told.ok
    assert told.reason.startswith("GPU 0 (Stand-in pcie4) is left out: it has no memory of its own")
    assert shown.startswith("no GPU can be served\n")
    assert listed["gpus"] == []
    assert len(listed["notes"]) == 4
    assert "no GPU here can be served" in refused
    assert not (tmp_path / "gpu.sock").exists()


def test_doctors_line_names_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKEGPU_NVML", GB10)
    with World("pcie4", gpu_bytes=64 << 20, blocks=64):
        ctypes.CDLL(str(NVML))
        told = available()
    assert told.ok
    assert told.reason.startswith("3 x Stand-in pcie4")
    assert "GPU 0 (Stand-in pcie4) is left out" in told.reason


def test_a_gpu_that_stops_answering_does_not_end_the_service(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with World("pcie4", gpu_bytes=64 << 20, blocks=64):
        ctypes.CDLL(str(NVML))
        with Nvml() as nvml:
            now = [1_000_000_000]
            service = GpuService(
                nvml.topology(),
                nvml,
                ServerSettings(tmp_path / "gpu.sock"),
                clock=lambda: now[0],
            )
            for says in ("", "1:nvmlDeviceGetMemoryInfo=3", "1:nvmlDeviceGetMemoryInfo=999", ""):
                monkeypatch.setenv("FAKEGPU_NVML", says)
                now[0] += 100_000_000
                service.step()
                assert [gpu.lost for gpu in service.core.gpus] == [False, bool(says), False, False]
            service.close()


def test_message_layouts_are_those_of_the_c_header() -> None:
    text = (TOP / "daemon/native/gpu/wire.h").read_text(encoding="utf-8")
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    plain = plain.replace("TGW_MAX_GPUS", str(wire.MAX_GPUS))
    assert f"#define TGW_VERSION {wire.VERSION}u" in text
    assert f"#define TGW_MAX_GPUS {wire.MAX_GPUS}\n" in text
    ffi = cffi.FFI()
    ffi.cdef(plain)
    names = {
        "hello": wire.HELLO, "chunks": wire.CHUNKS, "use": wire.USE, "state": wire.STATE,
        "alive": wire.ALIVE, "welcome": wire.WELCOME, "gpu": wire.GPU, "move": wire.MOVE,
        "lease": wire.LEASE, "loan": wire.LOAN, "grant": wire.GRANT,
        "refused": wire.REFUSED, "header": wire.HEADER,
    }  # fmt: skip
    for name, layout in names.items():
        fields = ffi.typeof(f"struct tgw_{name}").fields
        assert layout.itemsize == ffi.sizeof(f"struct tgw_{name}"), name
        offsets = [layout.fields[field][1] for field in layout.names]  # type: ignore[index]
        assert offsets == [field.offset for _, field in fields], name
    for kind in wire.Kind:
        assert re.search(rf"\bTGW_{kind.name} = {kind.value},", text), kind
    for flag in wire.StateFlag:
        assert re.search(rf"\bTGW_{flag.name} = {flag.value},", text), flag
