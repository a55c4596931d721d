# SPDX-License-Identifier: Apache-2.0
"""Simulated NeoProf cards in a guest: what they see against the plugin's exact counts.

One boot for each machine: the Verilated card (in `make soak` a model card, too) in front of the
whole CXL node, instruction-counted; and two model cards in front of parts, with two CPUs that run
in parallel against the host's clock.
"""

from __future__ import annotations

import errno
import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from neoprof_build import make

from neoprof import Card, regs
from tierd_lab import Counts, Guest, Machine, plugin
from tierd_lab.cards import MIB, CardSpec, decoders
from tierd_lab.ram import node_ranges

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
HOTSET = ROOT / "build/workloads/hotset"
PAGE = 4096
TOUCH = "import mmap; m = mmap.mmap(-1, 640 << 20); m[::4096] = bytes(640 << 8)"
SHIPPED = Machine.load("dram-cxl-card")
TWO_CPUS = replace(SHIPPED.nodes[0], cpus=(0, 1))
MACHINES = {
    "model": SHIPPED,
    "rtl": replace(SHIPPED, cards=(replace(SHIPPED.cards[0], kind="rtl"),)),
    "parts": replace(
        SHIPPED,
        icount=None,
        nodes=(TWO_CPUS, *SHIPPED.nodes[1:]),
        cards=(
            CardSpec("model", 1, 1280 * MIB, 256 * MIB),
            CardSpec("model", 1, 1536 * MIB, 256 * MIB, log2_width=17, ring=64),
        ),
    ),
}


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """The workloads, the plugin and both card libraries."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "tests/workloads")], check=True)
    done = make("lab-rtl")
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module", params=[pytest.param("model", marks=pytest.mark.soak), "rtl"])
def whole(request: pytest.FixtureRequest, built: None) -> Iterator[Guest]:
    """A guest with one card in front of the whole CXL node."""
    with Guest(MACHINES[request.param], cwd=ROOT) as guest:
        yield guest


@pytest.fixture(scope="module")
def parts(built: None) -> Iterator[Guest]:
    """A guest with two cards that leave parts of the node to nobody."""
    with Guest(MACHINES["parts"], cwd=ROOT) as guest:
        yield guest


def ask(guest: Guest, *words: str, timeout: float = 900) -> list[dict[str, Any]]:
    """What guest_card.py says."""
    result = guest.run([sys.executable, str(HERE / "guest_card.py"), *words], timeout=timeout)
    assert result.status == 0, f"{result.stdout[-2000:]}\n{result.stderr[-3000:]}"
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def covered(machine: Machine, card: int, pages: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which page frames lie behind a card."""
    mask = np.zeros(pages, dtype=bool)
    for piece in decoders(machine.cards[card], [node.size_bytes for node in machine.nodes]):
        mask[piece.base // PAGE : (piece.base + piece.size) // PAGE] = True
    return mask


def frames_of_units(machine: Machine, card: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Page frame number by unit number of a card."""
    pieces = decoders(machine.cards[card], [node.size_bytes for node in machine.nodes])
    return np.concatenate(
        [np.arange(piece.base // PAGE, (piece.base + piece.size) // PAGE) for piece in pieces]
    )


def check_registers(guest: Guest) -> None:
    """What `registers` says is what the library says, and what the machine's file says."""
    (told,) = ask(guest, "registers")
    machine = guest.machine
    assert told["alive"] is True
    assert told["version"] == 1
    assert len(told["cards"]) == len(machine.cards)
    for spec, seen in zip(machine.cards, told["cards"], strict=True):
        clock = plugin.CYCLES_PER_100US
        with Card(
            "rtl" if spec.kind == "rtl" else "model",
            library=plugin.card_library(spec.kind),
            log2_width=spec.log2_width,
            ring_size=spec.ring,
            cycles_per_100us=clock,
        ) as card:
            assert seen["values"] == {
                name: card.read(getattr(regs, name)) for name in seen["values"]
            }
        names = ("VENDOR_ID", "VENDOR_GEOMETRY", "VENDOR_TIMEBASE")
        assert seen["block"] == [seen["values"][name] for name in names]
        low, high = seen["halves"]
        assert low | high << 32 == seen["values"]["VENDOR_ID"]
        assert seen["errors"] == {
            "misaligned": errno.EINVAL,
            "no_such_register": errno.EIO,
            "read_only": errno.EIO,
            "size": errno.EINVAL,
            "block_too_long": errno.EINVAL,
            "no_such_op": errno.EOPNOTSUPP,
        }
        words = struct.unpack("<84I", bytes.fromhex(seen["hdm"]))
        sizes = [node.size_bytes for node in machine.nodes]
        for number, piece in enumerate(decoders(spec, sizes)):
            decoder = words[4 + 8 * number : 12 + 8 * number]
            assert decoder[0] | decoder[1] << 32 == piece.base
            assert decoder[2] | decoder[3] << 32 == piece.size
            assert decoder[4] & 1 << 10
    assert told["no_such_lab_op"] == errno.EOPNOTSUPP
    # The rule for where QEMU puts memory, against what the guest's kernel says.
    (block,) = told["nodes"].pop("block")
    ranges = node_ranges([node.size_bytes for node in machine.nodes])
    assert told["nodes"] == {
        str(node): [
            address
            for piece in pieces
            for address in range(piece.base, piece.base + piece.size, block)
        ]
        for node, pieces in enumerate(ranges)
    }


def test_registers_through_the_window_are_the_librarys(whole: Guest) -> None:
    check_registers(whole)


def test_every_miss_arrives_and_the_hot_list_has_the_top_pages(whole: Guest) -> None:
    """A scattered hot set in CXL memory.

    A top page is one whose exact count of requests passed the threshold. The threshold lies
    inside the hot pages' own spread, where a count that is wrong by a few decides.
    """
    threshold = 290
    before, told = ask(
        whole,
        *("profile", str(threshold), "numactl", "--membind=1"),
        *(str(HOTSET), "--size", "128M", "--scattered", "--rate", "100000", "--seconds", "3"),
        *("--interval", "3", "--no-check"),
    )
    assert whole.traffic is not None
    counts = whole.traffic.counts()
    assert told["watched"] is True
    assert whole.traffic.watching is False
    behind = covered(whole.machine, 0, counts.reads.size)
    (card,) = told["cards"]
    snapshot = card["snapshot"]
    reads, writes = int(counts.reads[behind].sum()), int(counts.writes[behind].sum())
    print({"reads": reads, "writes": writes, "before": before, **snapshot})
    assert reads > 200_000
    assert writes > 200_000
    assert (snapshot["READ_BEATS"], snapshot["WRITE_BEATS"]) == (reads, writes)
    assert snapshot["OFFERED"] == snapshot["COUNTED"] == reads + writes
    assert snapshot["SKIPPED_TYPE"] == snapshot["SKIPPED_RANGE"] == 0
    assert snapshot["SKIPPED_SAMPLE"] == snapshot["REPORTS_REFUSED"] == snapshot["SATURATED"] == 0
    assert (counts.node_reads[1], counts.node_writes[1]) == (reads, writes)
    assert counts.node_reads[0] + counts.node_writes[0] > 0
    assert counts.cards[0]["unmapped"] == counts.cards[0]["skipped_cycles"] == 0
    assert counts.clock == "virtual"

    requests = counts.requests
    top = set(np.flatnonzero((requests > threshold) & behind).tolist())
    hot = set(frames_of_units(whole.machine, 0)[card["hot"]].tolist())
    assert len(hot) == len(card["hot"]) == snapshot["REPORTS"], "a page is reported once"
    precision, recall = len(hot & top) / len(hot), len(hot & top) / len(top)
    near = int(((requests > threshold * 0.9) & (requests <= threshold) & behind).sum())
    print({"precision": precision, "recall": recall, "top": len(top), "just_below": near})
    assert len(top) > 500
    assert near > 50, "the threshold does not cut through the hot pages"
    assert precision >= 0.98
    assert recall >= 0.98


@pytest.fixture(scope="module")
def touched(parts: Guest) -> tuple[list[dict[str, Any]], Counts]:
    """What both cards and the exact counts say of 640 MiB that reach into both parts."""
    words = ("profile", "32", "numactl", "--membind=1", sys.executable, "-S", "-c", TOUCH)
    _, told = ask(parts, *words)
    assert parts.traffic is not None
    return told["cards"], parts.traffic.counts()


def test_registers_of_two_cards(parts: Guest) -> None:
    check_registers(parts)


def test_two_cards_in_front_of_parts_of_a_node(parts: Guest, touched: Any) -> None:
    """Each sees its own part, both together and the rest are the whole node."""
    cards, counts = touched
    rest = np.zeros(counts.reads.size, dtype=bool)
    for piece in node_ranges([node.size_bytes for node in parts.machine.nodes])[1]:
        rest[piece.base // PAGE : (piece.base + piece.size) // PAGE] = True
    node = int(counts.requests[rest].sum())
    assert node == counts.node_reads[1] + counts.node_writes[1]
    seen = 0
    for number, card in enumerate(cards):
        behind = covered(parts.machine, number, counts.reads.size)
        snapshot = card["snapshot"]
        assert snapshot["READ_BEATS"] == counts.reads[behind].sum() > 0
        assert snapshot["WRITE_BEATS"] == counts.writes[behind].sum() > 0
        assert snapshot["OFFERED"] == snapshot["COUNTED"]
        seen += snapshot["COUNTED"]
        rest &= ~behind
    outside = int(counts.requests[rest].sum())
    assert outside > 0
    assert seen + outside == node
    assert counts.clock == "host"


def test_a_small_hot_list_overflows_and_says_so(touched: Any) -> None:
    """The second card has 64 slots: it holds 63 entries, the rest is refused and counted."""
    (large, small), _ = touched
    assert len(small["hot"]) == 63
    assert small["snapshot"]["REPORTS_REFUSED"] > 0
    assert len(large["hot"]) > 63


def test_a_window_whose_host_has_gone_is_an_error_and_no_hang(parts: Guest) -> None:
    assert parts.traffic is not None
    process = parts.start([sys.executable, str(HERE / "guest_card.py"), "gone"], timeout_s=600)
    with parts.changed:
        parts.changed.wait_for(lambda: "ready" in process.stdout or not process.running, 300)
    parts.traffic.hang_up()
    result = process.wait()
    assert result.status == 0, result.stderr[-2000:]
    told = json.loads(result.stdout.splitlines()[-1])
    assert told == {"error": errno.ENODEV, "again": errno.ENODEV, "alive": False}
    assert parts.kernel_complaints() == []
