# SPDX-License-Identifier: Apache-2.0
"""Measures each node's latency, and what a stream of one CPU gets from it.

A few milliseconds and 4 MiB a node, once. A node that has little free memory is left out: a
buffer bound to it could make the kernel reclaim, and so is one that the process may not use.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Final

from tierd._native import ffi, lib
from tierd.core.nodes import Measured, NodeUsage
from tierd.core.tiermap import MemoryNode, TierMap

log = logging.getLogger(__name__)

BYTES: Final = 4 << 20
"""Of the buffer: some CPUs cannot be asked to flush, so it is larger than most L2 caches."""
STEPS: Final = 4096
FREE: Final = 64 << 20
"""Least free memory, beyond the kernel's reserve, of a node that is measured."""


def probe(tiers: TierMap, usage: Mapping[int, NodeUsage]) -> dict[int, Measured]:
    """What is measured, by node; nodes that cannot be are left out."""
    found = {}
    for number, node in tiers.nodes.items():
        figures = usage.get(number)
        if figures is None or figures.free_bytes - figures.reserve_bytes < FREE:
            continue
        with _near(node, tiers):
            latency, bandwidth = ffi.new("double *"), ffi.new("double *")
            result = lib.tierd_probe_node(number, BYTES, STEPS, latency, bandwidth)
        if result != 0:
            log.info('event=not_probed node=%d reason="%s"', number, os.strerror(-result))
            continue
        found[number] = Measured(float(latency[0]), float(bandwidth[0]))
        log.info(
            "event=probed node=%d latency_ns=%.0f stream_bytes_per_s=%.3g",
            number,
            latency[0],
            bandwidth[0],
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
