# SPDX-License-Identifier: Apache-2.0
"""Probing nodes: one rule a test. Figures are looked at in the lab, where time is modelled."""

from __future__ import annotations

import errno
import os

import pytest

from tierd._native import ffi, lib
from tierd.core.tiermap import MemoryKind, MemoryNode, NodeUsage, Provenance, Quantity, TierMap
from tierd.topology.node_meminfo import FREE, probe

GIB = 1 << 30


def tiers(*numbers: int) -> TierMap:
    figures = Quantity(100.0, Provenance.DEFAULT), Quantity(1e11, Provenance.DEFAULT)
    nodes = {n: MemoryNode(n, GIB, frozenset({0}), MemoryKind.DRAM, *figures) for n in numbers}
    return TierMap((), nodes)


def works() -> bool:
    one, other = ffi.new("double *"), ffi.new("double *")
    return int(lib.tierd_probe_node(0, 1 << 20, 256, one, other)) == 0


needs_nodes = pytest.mark.skipif(not works(), reason="this kernel has no memory policies")


@needs_nodes
def test_a_node_is_measured_and_the_thread_may_run_where_it_could() -> None:
    before = os.sched_getaffinity(0)
    found = probe(tiers(0), {0: NodeUsage(GIB, GIB, 0)})
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


@pytest.mark.parametrize(
    ("node", "size", "steps"), [(-1, 4096, 1), (1024, 4096, 1), (0, 64, 1), (0, 4096, 0)]
)
def test_what_makes_no_sense_is_refused(node: int, size: int, steps: int) -> None:
    one, other = ffi.new("double *"), ffi.new("double *")
    assert lib.tierd_probe_node(node, size, steps, one, other) == -errno.EINVAL
