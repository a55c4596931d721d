# SPDX-License-Identifier: Apache-2.0
"""Probing nodes: one rule a test. Figures are looked at in the lab, where time is modelled."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tierd._native import ffi, lib
from tierd.core.tiermap import MemoryKind, MemoryNode, NodeUsage, Provenance, Quantity, TierMap
from tierd.topology.probe import FREE, Probed, Prober, probe, probed_of

GIB = 1 << 30


def tiers(*numbers: int) -> TierMap:
    figures = Quantity(100.0, Provenance.DEFAULT), Quantity(1e11, Provenance.DEFAULT)
    nodes = {n: MemoryNode(n, GIB, frozenset({0}), MemoryKind.DRAM, *figures) for n in numbers}
    return TierMap((), nodes)


def native(node: int, size: int, blocks: int) -> int:
    made = ffi.new("struct tierd_probe **")
    result = int(lib.tierd_probe_open(node, size, blocks, made))
    if result >= 0:
        lib.tierd_probe_close(made[0])
    return result


needs_nodes = pytest.mark.skipif(
    native(0, 1 << 20, 8) == -errno.ENOSYS, reason="this kernel has no memory policies"
)


@needs_nodes
def test_a_node_is_measured_and_the_thread_may_run_where_it_could() -> None:
    before = os.sched_getaffinity(0)
    while not (found := probe(tiers(0), {0: NodeUsage(GIB, GIB, 0)})):
        pass  # other threads took the CPU
    assert os.sched_getaffinity(0) == before
    assert found[0].latency_ns is not None
    assert found[0].bandwidth_bytes_per_s is not None
    assert found[0].latency_ns > 0
    assert found[0].bandwidth_bytes_per_s > 0


def test_a_node_that_is_not_there_is_left_out() -> None:
    assert probe(tiers(900), {900: NodeUsage(GIB, GIB, 0)}) == {}


def test_a_node_with_little_free_memory_is_left_alone() -> None:
    assert probe(tiers(0), {0: NodeUsage(GIB, FREE, 1)}) == {}
    assert probe(tiers(0), {}) == {}


def test_a_few_slow_blocks_are_told_from_the_others_and_from_interrupts() -> None:
    block_ns = np.full(64, 430 * 32, np.uint32)
    block_ns[5] = block_ns[9] = 430 * 32 + 50_000
    block_ns[7] = 0  # interrupted by another thread
    found = probed_of(block_ns, 8e9)
    assert found == Probed(430.0, pytest.approx(430 + 2 * 50_000 / 32 / 63), 2, 8e9)
    # Of a near node a block takes 4 us: 12 us more are an interrupt.
    block_ns = np.full(64, 118 * 32, np.uint32)
    block_ns[5] += 12_000
    assert probed_of(block_ns, 8e9).slow_blocks == 0


def test_a_thread_that_may_use_other_cpus_now_is_an_errno(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, "no such CPU")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert Prober()(tiers(0).nodes[0], tiers(0)) == errno.EINVAL


@pytest.mark.parametrize(
    ("node", "size", "blocks"),
    [(-1, 1 << 20, 1), (1024, 1 << 20, 1), (0, 64, 1), (0, 1 << 20, 0), (0, 4096, 2),
     (0, 1 << 20, 1 << 62)],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(node: int, size: int, blocks: int) -> None:
    assert native(node, size, blocks) == -errno.EINVAL


@needs_nodes
def test_a_buffer_that_cannot_be_locked_is_for_one_measurement() -> None:
    """Without CAP_IPC_LOCK, which root has, and with a small RLIMIT_MEMLOCK."""
    script = (
        "import resource, os\n"
        "resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))\n"
        "from tierd.core.process import give_up_all\n"
        "give_up_all()\n"
        "from test_probe import Prober, Probed, tiers\n"
        "prober = Prober()\n"
        "found = [prober(tiers(0).nodes[0], tiers(0)) for _ in range(20)]\n"
        "assert any(isinstance(each, Probed) for each in found), found\n"
        "assert not prober._buffers\n"
    )
    command = [sys.executable, "-c", script]
    subprocess.run(command, check=True, cwd=Path(__file__).parent)


@needs_nodes
def test_a_buffer_is_kept_while_its_node_is_there() -> None:
    prober = Prober()
    for _ in range(3):
        prober(tiers(0).nodes[0], tiers(0))
        assert prober._buffers.keys() == {0}
    assert prober(tiers(900).nodes[900], tiers(900)) == errno.EINVAL
    assert not prober._buffers
