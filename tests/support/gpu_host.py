# SPDX-License-Identifier: Apache-2.0
"""The harvester with made-up GPUs, and clients that do what they are told at once."""

from __future__ import annotations

import numpy as np

from tierd_gpu import wire
from tierd_gpu.harvest import Harvester
from tierd_gpu.links import CHUNK_BYTES, HOST, Gpu, GpuTopology
from tierd_gpu.loans import Loan
from tierd_gpu.settings import HarvestSettings
from tierd_gpu.tenant import Tenant, TenantSpec
from tierd_gpu.wire import Kind

MS = 1_000_000
TOTAL = 512
"""Chunks of each GPU."""
SETTINGS = HarvestSettings(
    floor_bytes=8 * CHUNK_BYTES,
    refill_bytes=16 * CHUNK_BYTES,
    context_bytes=0,
    observe_ns=0,
    own_margin=0.0,
)


def topology(count: int = 3) -> GpuTopology:
    """25 GB/s between GPUs, 12 to the host."""
    rate = np.full((count + 1, count + 1), 25e9)
    rate[-1, :] = rate[:, -1] = 12e9
    gpus = tuple(Gpu(i, bytes([i] * 16), f"gpu{i}", TOTAL * CHUNK_BYTES) for i in range(count))
    return GpuTopology(gpus, rate, np.ones((count, count), np.int64))


def hello(
    uuid: bytes = bytes([0] * 16),
    chunks: int = 64,
    version: int = wire.VERSION,
    visible: tuple[int, ...] = (0, 1, 2),
) -> bytes:
    """The greeting of a client that computes on the GPU `uuid`."""
    record = np.zeros(1, wire.HELLO)
    record["version"], record["role"], record["max_chunks"] = version, 1, chunks
    record["uuid"][0] = np.frombuffer(uuid, np.uint8)
    record["visible"] = len(visible)
    for place, gpu in enumerate(visible[: wire.MAX_GPUS]):
        record["visible_uuid"][0][place] = gpu
    return wire.encode(Kind.HELLO, record)[0]


class Host:
    """Clients that do what they are told at once, and GPUs with that much memory."""

    def __init__(self, settings: HarvestSettings = SETTINGS, gpus: int = 3) -> None:
        self.core = Harvester(topology(gpus), settings)
        self.own = [0] * gpus
        self.now = 0
        self.least = [TOTAL] * gpus
        self.moves: list[tuple[int, int, int]] = []
        """(session, chunk, destination) of what was carried out."""

    def join(self, session: int, home: int, chunks: int) -> Tenant:
        """A program with chunks."""
        tenant = self.core.join(TenantSpec(session, 0, home, max_chunks=chunks))
        self.core.chunks(session, np.array([(0, chunks, 1, 0)], wire.CHUNKS))
        return tenant

    def join_loans(self, session: int, *, uid: int = 0) -> None:
        """A program that has loans and no chunks."""
        self.core.join(TenantSpec(session, uid, 0, borrows=False, max_chunks=64))

    def say(self, session: int, wanted: int, held: int, gpu: int = 1) -> Loan:
        """What a program says of its loan, in chunks."""
        row = (gpu, 0, wanted * CHUNK_BYTES, held * CHUNK_BYTES)
        self.core.loan(session, np.array([row], wire.LOAN), self.now)
        return self.core.loans.loans.get((session, gpu)) or Loan(session, 0, gpu)

    def free(self, gpu: int) -> int:
        used = sum(int(t.count[gpu]) for t in self.core.tenants.values())
        used += sum(loan.held for loan in self.core.loans.on(gpu))
        return TOTAL - self.own[gpu] - used

    def place(
        self,
        session: int,
        chunk: int,
        place: int,
        *,
        seq: int = 0,
        status: int = 0,
    ) -> None:
        row = (chunk, place, 0, status, seq, 0, self.now)
        self.core.state(session, np.array([row], wire.STATE), self.now)

    def park(self, session: int, chunk: int, gpu: int) -> None:
        """A command sends a chunk of the host to a neighbour."""
        tenant = self.core.tenants[session]
        self.place(session, chunk, HOST)
        self.core.order(tenant, chunk, gpu, now_ns=self.now)
        seq = int(tenant.busy[chunk])
        tenant.out.clear()
        self.place(session, chunk, gpu, seq=seq)

    def use(self, session: int, chunks: list[int]) -> None:
        rows = []
        for chunk in chunks:
            self.now += 50_000
            rows.append((chunk, 512, 0, self.now))
        self.core.use(session, np.array(rows, wire.USE))

    def tick(self, ms: float = 1.0) -> None:
        self.now += int(ms * MS)
        for gpu in range(len(self.own)):
            # What chunks left behind is theirs until somebody else needs it.
            left = len(self.core.gpus[gpu].memory.left)
            free = max(0, self.free(gpu) - left)
            self.core.set_memory(gpu, free * CHUNK_BYTES, self.own[gpu] * CHUNK_BYTES)
        self.core.tick(self.now)

    def obey(self) -> None:
        """Carry out what was ordered."""
        for session, tenant in self.core.tenants.items():
            for chunk, dest, _, seq in tenant.take_orders().tolist():
                self.moves.append((session, chunk, dest))
                self.place(session, chunk, dest, seq=seq)
                for gpu in range(len(self.own)):
                    self.least[gpu] = min(self.least[gpu], self.free(gpu))


def parked(host: Host, chunks: int = 100) -> Tenant:
    """A tenant at home 0 with `chunks` chunks on GPU 1."""
    tenant = host.join(1, 0, chunks + 10)
    for chunk in range(chunks):
        host.park(1, chunk, 1)
    return tenant
