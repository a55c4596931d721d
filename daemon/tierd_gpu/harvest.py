# SPDX-License-Identifier: Apache-2.0
"""The harvester's core: tenants, leases, and when which decision is made.

`use` and `state` take reports; `plan` decides for one tenant right after its report
(prefetch, room at home: `tierd_gpu.plan`); `tick` decides what lenders give and
take back (`tierd_gpu.reclaim`) and runs every 2 ms.
"""

from __future__ import annotations

import errno
from collections import Counter, deque
from dataclasses import dataclass

import numpy as np

from tierd_gpu import plan, reclaim
from tierd_gpu.account import Account
from tierd_gpu.cost import CostModel
from tierd_gpu.links import CHUNK_BYTES, HOST, GpuTopology
from tierd_gpu.loans import Loans
from tierd_gpu.settings import HarvestSettings
from tierd_gpu.tenant import Order, Tenant, TenantSpec
from tierd_gpu.tuning import PLAN, RECLAIM
from tierd_gpu.wire import Records, StateFlag

BROKEN = (errno.ENOLINK, errno.ENODEV, errno.EIO)
NO_FLAGS = StateFlag(0)


@dataclass(slots=True)
class GpuState:
    """What is known of one GPU's memory.

    Attributes:
        memory: what is free, and what the driver holds unused.
        fresh: NVML was asked since the last tick.
        borrowed: chunks that commands sent here from other GPUs' tenants. What tenants say
            beside that is not counted.
        loaned: chunks that programs hold here of their loans.
        lendable: chunks that may be borrowed here.
        loanable: the same for loans, of which a lender in haste takes no more than it needs.
        lost: the driver says it is gone.
        most_own: bytes that its own use has reached at most.
        seen_ns: when NVML was asked first.
    """

    memory: Account
    fresh: bool = False
    borrowed: int = 0
    loaned: int = 0
    lendable: int = 0
    loanable: int = 0
    lost: bool = False
    most_own: int = 0
    seen_ns: int = -1

    @property
    def total(self) -> int:
        """Bytes."""
        return self.memory.total

    @property
    def free(self) -> int:
        """Bytes free, as NVML told last."""
        return self.memory.free

    @property
    def borrowed_bytes(self) -> int:
        """Bytes that others have here: never more than are in use."""
        parked = self.borrowed * CHUNK_BYTES
        return max(0, min(parked + self.loaned_bytes, self.total - self.free))

    @property
    def loaned_bytes(self) -> int:
        """Bytes of loans: no more than are used beside the chunks and by processes for
        themselves, for the driver may have evicted some."""
        used = self.total - self.free - self.borrowed * CHUNK_BYTES - (self.memory.own or 0)
        return max(0, min(self.loaned * CHUNK_BYTES, used))


class Harvester:
    """All tenants and GPUs; see the module's text."""

    def __init__(self, topology: GpuTopology, settings: HarvestSettings | None = None) -> None:
        self.topology = topology
        self.settings = settings or HarvestSettings()
        self.cost = CostModel(topology)
        self.gpus = [GpuState(Account(gpu.total_bytes, gpu.total_bytes)) for gpu in topology.gpus]
        self.places = len(topology.gpus) + 1
        self.tenants: dict[int, Tenant] = {}
        self.counts: Counter[str] = Counter()
        self.loans = Loans(self.settings.revoke_bound_ns, self.counts)
        self.ticks = 0
        self.now_ns = 0
        """When the last tick was."""
        self.revoke_ns: deque[int] = deque(maxlen=RECLAIM.times_kept)
        """How long each of the last revocations took."""

    def join(self, spec: TenantSpec) -> Tenant:
        """A tenant comes.

        Raises:
            ValueError: there is no such GPU.
        """
        if not 0 <= spec.home < len(self.gpus):
            raise ValueError(f"no GPU {spec.home}")
        tenant = Tenant(spec, self.places)
        self.tenants[spec.session] = tenant
        return tenant

    def leave(self, session: int) -> None:
        """A tenant is gone, and with it whatever was under way for it."""
        tenant = self.tenants.pop(session, None)
        if tenant is None:
            return
        for sequence in list(tenant.orders):
            self._settle(tenant, sequence)
        for gpu in self.gpus:
            gpu.memory.freed(session, 0, tenant.spec.max_chunks)
        self.loans.leave(session)
        self.count_borrowed()

    def set_memory(
        self, gpu: int, free: int, own: int | None = None, *, lost: bool = False
    ) -> None:
        """What NVML tells of a GPU now: free memory, and what processes have for themselves."""
        self.gpus[gpu].memory.tell(free, own)
        self.gpus[gpu].fresh = True
        self.gpus[gpu].lost = lost

    def chunks(self, session: int, records: Records) -> None:
        """Chunks that came or went (`wire.CHUNKS`).

        Raises:
            ValueError: outside the tenant's table.
        """
        tenant = self.tenants[session]
        for first, count, live, _ in records.tolist():
            tenant.set_range(first, count, bool(live))
            for gpu in self.gpus:
                gpu.memory.freed(session, first, count)

    def use(self, session: int, records: Records) -> None:
        """Uses (`wire.USE`); those of chunks that do not exist are counted and dropped."""
        tenant = self.tenants[session]
        chunk = records["chunk"].astype(np.int64)
        good = chunk < tenant.end
        good[good] &= tenant.live[chunk[good]]
        if not good.all():
            self.counts["uses_unknown"] += int(len(good) - np.count_nonzero(good))
            records, chunk = records[good], chunk[good]
        away, home = tenant.in_place[chunk], tenant.spec.home
        waited = self.cost.in_place_ns(tenant.place[chunk[away]], home, records["pages"][away])
        tenant.use(
            chunk,
            records["pages"].astype(np.int64),
            records["time_ns"].astype(np.float64),
            float(waited.sum()),
        )

    def state(self, session: int, records: Records, now_ns: int) -> None:
        """Where chunks are and what became of commands (`wire.STATE`)."""
        tenant = self.tenants[session]
        for chunk, place, flags, status, sequence, _, when in records.tolist():
            if chunk >= tenant.end or not tenant.live[chunk] or not HOST <= place < len(self.gpus):
                self.counts["states_unknown"] += 1
                self._settle(tenant, sequence)
                continue
            found = self._settle(tenant, sequence)
            sent = found is not None and (found.chunk, found.dest) == (chunk, place)
            old = int(tenant.place[chunk])
            if place != old >= 0 and tenant.has(chunk, old):
                self.gpus[old].memory.went(session, chunk)
            tenant.set_state(chunk, place, flags, when, sent=sent)
            if old != place >= 0 and tenant.has(chunk, place):
                self.gpus[place].memory.came(session, chunk)
            if found is None:
                continue
            if not status:
                self.counts["done_move"] += 1
                continue
            self.counts[f"refused_{errno.errorcode.get(status, status)}"] += 1
            if status in BROKEN:
                tenant.block(found.source, found.dest, now_ns + PLAN.backoff_ns)
        self.count_borrowed()

    def loan(self, session: int, records: Records, now_ns: int) -> None:
        """What programs say of their loans (`wire.LOAN`).

        Raises:
            ValueError: there is no such GPU.
        """
        tenant = self.tenants[session]
        for gpu, _, wanted, held in records.tolist():
            if not 0 <= gpu < len(self.gpus):
                raise ValueError(f"no GPU {gpu}")
            most = self.gpus[gpu].total // CHUNK_BYTES
            chunks = [min(most, -(-size // CHUNK_BYTES)) for size in (wanted, held)]
            tenant.visited[gpu] |= held > 0
            loan = self.loans.of(session, tenant.spec.uid, gpu)
            self.loans.tell(loan, chunks[0], chunks[1], now_ns)
        self.count_borrowed()

    def _settle(self, tenant: Tenant, sequence: int) -> Order | None:
        found = tenant.answered(sequence)
        if found is not None:
            self.cost.waiting[found.source, found.dest] -= 1
        return found

    def order(
        self, tenant: Tenant, chunk: int, dest: int, *, now_ns: int, flags: StateFlag = NO_FLAGS
    ) -> None:
        """Decide one command."""
        self.cost.waiting[tenant.place[chunk], dest] += 1
        tenant.order(chunk, dest, int(flags), now_ns)
        self.counts["ordered_move"] += 1

    def plan(self, session: int, now_ns: int) -> None:
        """Decide for one tenant, after its report."""
        tenant = self.tenants[session]
        self._expire(tenant, now_ns)
        plan.plan(self, tenant, now_ns)

    def tick(self, now_ns: int) -> None:
        """Decide for lenders: sample, lease, take back."""
        for tenant in self.tenants.values():
            self._expire(tenant, now_ns)
        self.ticks, self.now_ns = self.ticks + 1, now_ns
        reclaim.tick(self, now_ns)

    def _expire(self, tenant: Tenant, now_ns: int) -> None:
        """Commands that got no answer in time are forgotten."""
        oldest = next(iter(tenant.orders.items()), None)
        while oldest and now_ns - oldest[1].sent_ns > PLAN.answer_ns:
            self._settle(tenant, oldest[0])
            self.counts["unanswered"] += 1
            oldest = next(iter(tenant.orders.items()), None)

    def count_borrowed(self) -> None:
        """Count what others have on each GPU."""
        for index, gpu in enumerate(self.gpus):
            gpu.borrowed = sum(
                int(t.lent_count[index]) for t in self.tenants.values() if t.spec.home != index
            )
            gpu.loaned = self.loans.lent(index)

    def parked_ns(self, gpu: int) -> float:
        """Time in which everything that others have on a GPU, or send there, is on the host."""
        again, first = (self.cost.alone_ns(gpu, HOST, first=first) for first in (False, True))
        total = 0.0
        for tenant in self.tenants.values():
            if tenant.spec.home != gpu:
                known = int(tenant.lent_count[gpu] - tenant.lent_first[gpu])
                total += known * again + int(tenant.lent_first[gpu] + tenant.toward[gpu]) * first
        return total

    def room(self, gpu: int) -> int:
        """Chunks that can come to a GPU without any other having to leave it."""
        present = sum(tenant.held(gpu) for tenant in self.tenants.values())
        present += self.gpus[gpu].loaned_bytes // CHUNK_BYTES
        return self.gpus[gpu].memory.room(present)

    def context_chunks(self, tenant: Tenant, gpu: int) -> int:
        """What a tenant's first chunk on a GPU costs beside itself: it needs a context."""
        return 0 if tenant.visited[gpu] else -(-self.settings.context_bytes // CHUNK_BYTES)

    def room_for(self, tenant: Tenant, gpu: int) -> int:
        """Chunks that a tenant may still send to a neighbour."""
        if self.gpus[gpu].lost or gpu == tenant.spec.home:
            return 0
        leased = int(tenant.lease[gpu] - tenant.count[gpu] - tenant.toward[gpu])
        above = self.room(gpu) - self.settings.floor_bytes // CHUNK_BYTES
        above -= self.context_chunks(tenant, gpu)
        under_way = sum(int(t.toward[gpu]) for t in self.tenants.values())
        return max(0, min(leased, above - under_way))

    def may_bounce(self, tenant: Tenant, chunk: int, now_ns: int) -> bool:
        """Whether a chunk may be moved once more without having been used."""
        if tenant.bounce[chunk] < PLAN.bounces:
            return True
        if now_ns - tenant.arrived_ns[chunk] > PLAN.bounce_window_ns:
            tenant.bounce[chunk] = 0
            return True
        self.counts["bounce_limited"] += 1
        return False

    def homeless(self, tenant: Tenant) -> int:
        """Chunks of a tenant that its home has no room for: what it would borrow."""
        return int(tenant.count.sum() - tenant.count[tenant.spec.home])
