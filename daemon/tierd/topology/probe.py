# SPDX-License-Identifier: Apache-2.0
"""The latency and bandwidth of nodes, measured.

A measurement takes some two milliseconds and 4 MiB a node (`daemon/native/probe.c`). A node that
has little free memory is left out: a buffer bound to it could make the kernel reclaim. So is one
that the process may not use. The bandwidth is what a stream of one CPU gets.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tierd._native import ffi, lib
from tierd.core.tiermap import Measured, MemoryNode, NodeUsage, TierMap

log = logging.getLogger(__name__)

BYTES: Final = 4 << 20
"""Of the buffer, half of it more than most L2 caches: some CPUs cannot be asked to flush."""
BLOCKS: Final = 64
"""Blocks of dependent reads that are timed."""
FREE: Final = 64 << 20
"""Least free memory, beyond the kernel's reserve, of a node that is measured."""
SLOW_BLOCK: Final = 3.0
"""A block that takes so many times as long as the middle one had a slow access in it."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What a measurement of a node found.

    Attributes:
        latency_ns: of a dependent read, the mean without slow blocks.
        mean_ns: with them.
        slow_blocks: of `BLOCKS`, those left out during which another thread had the CPU.
        bandwidth_bytes_per_s: of one CPU's stream.
    """

    latency_ns: float
    mean_ns: float
    slow_blocks: int
    bandwidth_bytes_per_s: float


def probe_node(node: MemoryNode, tiers: TierMap) -> Probed | int:
    """Measure a node from a CPU that it is nearest to; the errno where that fails.

    EAGAIN: other threads had the CPU for half of it.
    """
    block_ns, bandwidth = np.zeros(BLOCKS, np.uint32), ffi.new("double *")
    with _near(node, tiers):
        result = int(
            lib.tierd_probe_node(
                node.node, BYTES, ffi.from_buffer("uint32_t[]", block_ns), BLOCKS, bandwidth
            )
        )
    if result != 0:
        return -result
    each = block_ns[block_ns > 0] / lib.TIERD_PROBE_STEPS
    slow = each > SLOW_BLOCK * np.median(each)
    return Probed(
        float(each[~slow].mean()), float(each.mean()), int(slow.sum()), float(bandwidth[0])
    )


def can_hold(usage: NodeUsage | None) -> bool:
    """Whether a buffer on the node takes nothing that the kernel would have to reclaim."""
    return usage is not None and usage.free_bytes - usage.reserve_bytes >= FREE


def probe(tiers: TierMap, usage: Mapping[int, NodeUsage]) -> dict[int, Measured]:
    """What is measured, by node; nodes that cannot be are left out."""
    found = {}
    for number, node in tiers.nodes.items():
        if not can_hold(usage.get(number)):
            continue
        probed = probe_node(node, tiers)
        if isinstance(probed, int):
            log.info('event=not_probed node=%d reason="%s"', number, os.strerror(probed))
            continue
        found[number] = Measured(probed.latency_ns, probed.bandwidth_bytes_per_s)
        log.info(
            "event=probed node=%d latency_ns=%.0f stream_bytes_per_s=%.3g",
            number,
            probed.latency_ns,
            probed.bandwidth_bytes_per_s,
        )
    return found


@contextlib.contextmanager
def _near(node: MemoryNode, tiers: TierMap) -> Iterator[None]:
    """Run on a CPU that the node is nearest to, if this thread may."""
    before = os.sched_getaffinity(0)
    near = set(node.cpus)
    for initiator in node.initiators:
        if initiator in tiers.nodes:
            near |= tiers.nodes[initiator].cpus
    near &= before
    try:
        if near:
            os.sched_setaffinity(0, near)
        yield
    finally:
        os.sched_setaffinity(0, before)
