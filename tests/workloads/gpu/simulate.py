# SPDX-License-Identifier: Apache-2.0
"""Runs tenants on the stand-in in virtual time, with the real client library and core.

The client library's messages go to `tierd_gpu.session` and back as bytes, a control
interval late each way; the socket is all that is left out. Everything is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from events import EVENT, Events  # isort: skip
from standin import CHUNK, World  # isort: skip
from tierd_gpu.harvest import Harvester
from tierd_gpu.links import HOST, Gpu, GpuTopology
from tierd_gpu.service import SAMPLE_NS
from tierd_gpu.session import Session
from tierd_gpu.settings import HarvestSettings, Techniques

INTERVAL_NS = 400_000
"""Time between two turns of the control loop, and what a message takes each way."""
PUMP_NS = 25_000
"""A client's thread may begin a turn at multiples of this."""
GPU_BYTES, BATCH, CONTEXT_BYTES = 16 << 30, 64, 523 << 20
"""Of a whole GPU; blocks that managed memory takes at once, and what a context takes."""
LIMIT_NS = 600_000_000_000


@dataclass(frozen=True)
class Job:
    """One tenant: where it computes and its trace.

    Attributes:
        chunks: managed memory of a borrower; 0 for a lender, which allocates itself.
        loop_from: of a lender, the event that a new lap starts at.
        launched: an unmodified program: its launches tell what it uses, nothing else does.
    """

    name: str
    gpu: int
    trace: Events
    chunks: int = 0
    loop_from: int = 0
    launched: bool = False


@dataclass
class Outcome:
    """What a run gave.

    Attributes:
        time_ns: job → virtual time it took (borrowers), or of a mean lap (lenders).
        refused: allocations of lenders that failed.
        counts: the core's counters.
        revoke_ns: how long each revocation took.
        worst_alloc_ns: job → the longest of its allocations.
        errors: calls of a client, or accesses, that failed.
        stats: GPU → the stand-in's counters.
        virtual_ns: when the run ended.
        moved_chunks: moves that clients carried out.
        floor_crossed: turns in which a lender had less than its floor.
    """

    time_ns: dict[str, float] = field(default_factory=dict)
    worst_alloc_ns: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    errors: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    revoke_ns: list[int] = field(default_factory=list)
    stats: dict[int, dict[str, int]] = field(default_factory=dict)
    virtual_ns: int = 0
    moved_chunks: int = 0
    floor_crossed: int = 0


def read_topology(world: World) -> GpuTopology:
    """The stand-in's links, as the harvester would measure them."""
    count = world.gpus
    ffi, cu = world.lib.ffi, world.lib.cu
    rate = np.zeros((count + 1, count + 1))
    out = ffi.new("double *")
    for a in range(count + 1):
        for b in range(count + 1):
            if a != b:
                cu.fg_path(8 if a == count else a, 8 if b == count else b, ffi.NULL, out)
                rate[a, b] = out[0]
    gpus = tuple(
        Gpu(g, bytes([0xFA] * 15 + [g]), f"gpu{g}", int(world.stats(g).total_bytes))
        for g in range(count)
    )
    return GpuTopology(gpus, rate, np.zeros((count, count), np.int64))


DRIVER = None
"""System under test: the driver's own eviction, no client library."""
HOST_ONLY = Techniques(peers=False, reuse=False, in_place=False)
"""Pre-eviction and prefetch to the host only, oldest first: the prior approach."""


class Simulation:
    """One run of some jobs under one system."""

    def __init__(
        self,
        jobs: list[Job],
        techniques: Techniques | None,
        *,
        settings: HarvestSettings | None = None,
        topology: str = "v100x4",
        gpu_bytes: int = 0,
    ) -> None:
        blocks = sum(job.chunks for job in jobs) + 40_000
        # What the driver takes of a GPU shrinks with it.
        share = gpu_bytes / GPU_BYTES if gpu_bytes else 1.0
        context_bytes = int(CONTEXT_BYTES * share)
        self.world = World(
            topology, gpu_bytes=gpu_bytes, blocks=blocks, manual=True,
            batch=max(1, int(BATCH * share)), context_bytes=context_bytes,
        )  # fmt: skip
        self.lib = self.world.lib
        self._sample_ns = 0
        self.jobs = jobs
        self.core: Harvester | None = None
        self.sessions: list[tuple[Any, int, Session]] = []
        if techniques is not None:
            settings = replace(
                settings or HarvestSettings(), techniques=techniques, context_bytes=context_bytes
            )
            self.core = Harvester(read_topology(self.world), settings)
        self.tenants = self.lib.ffi.new("struct rp_tenant[]", len(jobs))
        self._traces: list[Events] = []
        self._later: list[tuple[int, Callable[[World], object]]] = []
        for index, job in enumerate(jobs):
            self._add(index, job)

    def _add(self, index: int, job: Job) -> None:
        tenant = self.tenants[index]
        slot = self.world.tenant()
        trace = np.ascontiguousarray(job.trace, EVENT)
        self._traces.append(trace)
        tenant.slot, tenant.gpu = slot, job.gpu
        tenant.trace = self.lib.ffi.cast("struct rp_event *", trace.ctypes.data)
        tenant.count = len(trace)
        tenant.loop, tenant.first = not job.chunks, job.loop_from
        tenant.launched = job.launched
        if not job.chunks:
            return
        if self.core is None:
            tenant.base = self.world.managed(job.gpu, job.chunks, slot)
            return
        client = self.world.client(job.gpu, slot, chunks=job.chunks)
        out = self.lib.ffi.new("uint64_t *")
        self.lib.cu.fg_tenant_use(slot)
        if self.lib.tg.tg_alloc(client, job.chunks * CHUNK, out):
            raise MemoryError(job.name)
        tenant.client, tenant.base = client, out[0]
        self.lib.tg.tg_attach(client)
        self.sessions.append((client, slot, Session(self.core, index, 0)))

    def at(self, when_ns: int, what: Callable[[World], object]) -> None:
        """Have something happen to the world once that time has come."""
        self._later.append((when_ns, what))

    def run(self) -> Outcome:
        """Until every borrower is done."""
        waiting: list[tuple[Any, int, list[bytes]]] = []
        now = 0
        floor = 0
        while now < LIMIT_NS:
            now += INTERVAL_NS
            left = self.lib.rp.rp_run(self.tenants, len(self.jobs), now, PUMP_NS)
            if not left:
                break
            for when, what in [item for item in self._later if item[0] <= now]:
                what(self.world)
                self._later.remove((when, what))
            if self.core is not None:
                for client, slot, messages in waiting:
                    self.lib.cu.fg_tenant_use(slot)
                    for message in messages:
                        if self.lib.tg.tg_feed(client, message, len(message)):
                            raise AssertionError("the client refused a message")
                waiting = self._turn(now)
        return self._outcome(floor)

    def _turn(self, now: int) -> list[tuple[Any, int, list[bytes]]]:
        core = self.core
        assert core is not None
        for gpu in range(self.world.gpus):
            stats = self.world.stats(gpu)
            free, own = int(stats.free_bytes), int(stats.plain_bytes)
            if now >= self._sample_ns or stats.lost:
                core.set_memory(gpu, free, own, lost=bool(stats.lost))
        if now >= self._sample_ns:
            self._sample_ns = now + SAMPLE_NS
        core.tick(now)
        buffer = self.lib.ffi.new("uint8_t[]", 16384)
        answers = []
        for client, slot, session in self.sessions:
            self.lib.cu.fg_tenant_use(slot)
            while (size := self.lib.tg.tg_drain(client, buffer, 16384)) > 0:
                session.receive(bytes(self.lib.ffi.buffer(buffer, size)), now)
            answers.append((client, slot, session.answer(now)))
        return answers

    def _outcome(self, floor: int) -> Outcome:
        out = Outcome(floor_crossed=floor, virtual_ns=int(self.lib.cu.fg_now()))
        for index, job in enumerate(self.jobs):
            tenant = self.tenants[index]
            if job.chunks:
                out.time_ns[job.name] = float(tenant.done_at)
            elif tenant.laps:
                out.time_ns[job.name] = tenant.done_at / tenant.laps
            out.worst_alloc_ns[job.name] = int(tenant.worst_alloc_ns)
            out.refused += int(tenant.refused)
            out.errors += int(tenant.errors)
        for gpu in range(self.world.gpus):
            stats = self.world.stats(gpu)
            names = [name for name, _ in self.lib.ffi.typeof("struct fg_gpu_stats").fields]
            out.stats[gpu] = {name: int(getattr(stats, name)) for name in names}
        if self.core is not None:
            out.counts = dict(self.core.counts)
            out.revoke_ns = list(self.core.revoke_ns)
        client_stats = self.lib.ffi.new("struct tg_stats *")
        for client, slot, _ in self.sessions:
            self.lib.cu.fg_tenant_use(slot)
            self.lib.tg.tg_stats_get(client, client_stats)
            out.moved_chunks += int(client_stats.moves_done)
        self.world.close()
        return out


__all__ = ["DRIVER", "HOST", "HOST_ONLY", "Job", "Outcome", "Simulation", "read_topology"]
