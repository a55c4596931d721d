# SPDX-License-Identifier: Apache-2.0
"""Runs harvester, server and NVML together."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from tierd.core.errors import UnavailableError
from tierd_gpu.harvest import Harvester
from tierd_gpu.links import GpuTopology
from tierd_gpu.server import GpuServer, ServerSettings
from tierd_gpu.settings import HarvestSettings

TICK_NS = 2_000_000
IDLE_TICK_NS = 50_000_000
SAMPLE_NS = 10_000_000
"""NVML is asked this often. Moves are counted and need no question; a lender's own
allocations do. A lender that takes memory at 20 GB/s has taken the reserve (200 MB) by the
next time; a call takes 6 us."""


class MemoryReader(Protocol):
    """What the service asks of NVML."""

    def free_bytes(self) -> list[int | None]:
        """Free memory of each GPU; None for one that is lost."""
        ...

    def own_bytes(self) -> list[int | None]:
        """Memory that processes have for themselves; None where NVML does not tell it."""
        ...


class GpuService:
    """The loop; `step` does one turn.

    Raises:
        UnavailableError: no GPU can be served, or the socket cannot be made.
    """

    def __init__(
        self,
        topology: GpuTopology,
        memory: MemoryReader,
        server: ServerSettings,
        settings: HarvestSettings | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        if not topology.gpus:
            raise UnavailableError("no GPU here can be served", hint="; ".join(topology.notes))
        self.core = Harvester(topology, settings)
        self.memory = memory
        self._clock = clock
        self._ticked_ns = self._sampled_ns = 0
        self.server = GpuServer(self.core, server, clock)

    def step(self) -> None:
        """Wait for messages until the next tick is due; tick when it is."""
        pace = TICK_NS if self.server.clients else IDLE_TICK_NS
        due = self._ticked_ns + pace - self._clock()
        self.server.step(max(0, due) / 1e9)
        now = self._clock()
        if now - self._ticked_ns < pace:
            return
        self._ticked_ns = now
        if now - self._sampled_ns >= SAMPLE_NS:
            self._sampled_ns = now
            own = self.memory.own_bytes()
            for index, free in enumerate(self.memory.free_bytes()):
                self.core.set_memory(index, free or 0, own[index], lost=free is None)
            # A program says that it takes memory before it does: whatever the figures show of
            # that was said by now.
            self.server.step(0.0)
        self.core.tick(now)
        self.server.flush()

    def close(self) -> None:
        """Hang up; clients fall back to the driver's behaviour."""
        self.server.close()
