# SPDX-License-Identifier: Apache-2.0
"""The latency and bandwidth of nodes, measured.

A measurement takes a millisecond and a buffer of 4 MiB a node (`daemon/native/probe.c`). A node
that has little free memory is left out: a buffer bound to it could make the kernel reclaim. So is
one that the process may not use. The bandwidth is what a stream of one CPU gets.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tierd._native import ffi, lib
from tierd.core.tiermap import Measured, MemoryNode, NodeUsage, TierMap
from tierd.core.tuning import HEALTH

log = logging.getLogger(__name__)

BYTES: Final = 4 << 20
"""Size of the buffer; half of it is what the largest L2 caches have: some CPUs cannot flush."""
BLOCKS: Final = 64
"""Blocks of dependent reads that are timed."""
FREE: Final = 64 << 20
"""Least free memory, beyond the kernel's reserve, of a node that is measured."""
TURNS: Final = 3
"""Times that a measurement is tried which other threads disturb."""


class Probed(NamedTuple):
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


class Prober:
    """Measures nodes.

    It keeps a buffer on each between one measurement and the next, where that may be locked.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, Any] = {}

    def __call__(self, node: MemoryNode, tiers: TierMap) -> Probed | int:
        """Measure a node from a CPU that it is nearest to, where one is known.

        Returns:
            What was found, or the errno of what failed; EAGAIN: other threads had the CPU for half
            of it.
        """
        for gone in self._buffers.keys() - tiers.nodes.keys():
            del self._buffers[gone]
        block_ns, bandwidth = np.zeros(BLOCKS, np.uint32), ffi.new("double *")
        times = ffi.from_buffer("uint32_t[]", block_ns)
        try:
            with _near(node, tiers):
                result = self._measure(node.node, times, bandwidth)
        except OSError as error:  # the CPUs that this thread may use have changed
            return error.errno or errno.EIO
        return -result if result != 0 else probed_of(block_ns, float(bandwidth[0]))

    def _measure(self, node: int, times: Any, bandwidth: Any) -> int:
        buffer = self._buffers.get(node)
        if buffer is None:
            made = ffi.new("struct tierd_probe **")
            opened = int(lib.tierd_probe_open(node, BYTES, BLOCKS, made))
            if opened < 0:
                return opened
            buffer = ffi.gc(made[0], lib.tierd_probe_close)
            if opened == 0:
                self._buffers[node] = buffer
        result = int(lib.tierd_probe_run(buffer, times, bandwidth))
        if result not in (0, -errno.EAGAIN):
            self._buffers.pop(node, None)
        return result


def probed_of(block_ns: npt.NDArray[np.uint32], bandwidth_bytes_per_s: float) -> Probed:
    """What times of blocks come to, uint32[n], ns; 0 for a block that was interrupted."""
    whole = block_ns[block_ns > 0].astype(np.float64)
    middle = float(np.median(whole))
    slow = whole > max(HEALTH.slow_block_factor * middle, middle + HEALTH.slow_read_ns)
    each = whole / lib.TIERD_PROBE_STEPS
    return Probed(
        float(each[~slow].mean()), float(each.mean()), int(slow.sum()), bandwidth_bytes_per_s
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
        for _ in range(TURNS):
            probed = Prober()(node, tiers)
            if probed != errno.EAGAIN:
                break
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
