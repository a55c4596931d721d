# SPDX-License-Identifier: Apache-2.0
"""Everything that can happen to borrowers and lenders, at random, with every byte checked.

The real client library and the real harvester core on the stand-in, in virtual time. At
any moment, also in the middle of copies: lenders allocate a little or everything at once,
links break, borrowers and the daemon are killed and come back, a lender's GPU is lost.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from simulate import read_topology
from standin import CHUNK, World

from tierd_gpu.harvest import Harvester
from tierd_gpu.session import Session
from tierd_gpu.settings import HarvestSettings

HOME = 64
"""Chunks that a GPU holds."""
FLOOR = 4
TICK_NS = 1_200_000
PUMPS = 8
LENDERS = (2, 3)
LAUNCH_FAILED = 719


@dataclass
class App:
    """One borrower; what it wrote last is what it must read."""

    gpu: int
    slot: int
    client: Any
    base: int
    session: Session | None = None
    wrote: dict[int, int] = field(default_factory=dict)
    at: int = 0
    busy_ns: int = 0
    calls_ns: int = 0
    waiting: list[bytes] = field(default_factory=list)


@dataclass
class Seen:
    """What a storm showed.

    Attributes:
        moves: chunk moves carried out.
        mishaps: how often each thing happened.
        checked: reads whose contents were compared.
        wrong: reads that gave other bytes than were written.
        lost: reads that the driver refused because the memory was lost.
        refused: allocations of lenders that failed.
        crossed: moves that took a lender below its floor, though it took nothing itself
            since the daemon decided on them.
        bounce: most moves of a chunk towards home without a use.
        unbacked: most chunks of others that one GPU alone had.
    """

    moves: int = 0
    mishaps: Counter[str] = field(default_factory=Counter)
    checked: int = 0
    wrong: int = 0
    lost: int = 0
    refused: int = 0
    crossed: int = 0
    bounce: int = 0
    unbacked: int = 0
    revoke_ns: int = 0
    revocations: int = 0


class Storm:
    """One world with two borrowers and two lenders, until a GPU is lost."""

    def __init__(self, rng: random.Random, seen: Seen, settings: HarvestSettings) -> None:
        self.rng, self.seen, self.settings = rng, seen, settings
        self.world = World(
            gpu_bytes=HOME * CHUNK, manual=True, batch=2, context_bytes=settings.context_bytes
        )
        self.lib = self.world.lib
        self.topology = read_topology(self.world)
        self.core = Harvester(self.topology, settings)
        self.held: dict[int, list[tuple[int, int]]] = {gpu: [] for gpu in LENDERS}
        self.lender = {gpu: self.world.tenant() for gpu in LENDERS}
        for gpu in LENDERS:
            with self.world.on(gpu, self.lender[gpu]):
                pass  # its context
        self.plain = {gpu: deque([0, 0], maxlen=2) for gpu in LENDERS}
        self.links: list[tuple[int, int]] = []
        self.daemon = True
        self.gone: set[int] = set()
        self.number = 0
        self.digest, self.status = self.lib.ffi.new("uint64_t *"), self.lib.ffi.new("int *")
        self.buffer = self.lib.ffi.new("uint8_t[]", 16384)
        self.apps = [self.start(gpu) for gpu in (0, 1)]

    def start(self, gpu: int) -> App:
        """A borrower that needs half as much again as its GPU has."""
        slot = self.world.tenant()
        client = self.world.client(gpu, slot, chunks=3 * HOME // 2)
        out = self.lib.ffi.new("uint64_t *")
        self.lib.cu.fg_tenant_use(slot)
        assert self.lib.tg.tg_alloc(client, 3 * HOME // 2 * CHUNK, out) == 0
        app = App(gpu, slot, client, int(out[0]))
        if self.daemon:
            self.attach(app)
        return app

    def attach(self, app: App) -> None:
        """The daemon's side of a connection."""
        self.number += 1
        self.lib.cu.fg_tenant_use(app.slot)
        self.lib.tg.tg_attach(app.client)
        app.session = Session(self.core, self.number, 0)
        app.waiting = []

    def run(self, moves: int) -> None:
        """Until so many moves were made, then a lender is lost and all is read."""
        try:
            before = self.seen.moves
            while self.seen.moves - before < moves:
                self.turn()
            self.mishap_lost()
            for _ in range(40):
                self.turn()
            for app in self.apps:
                for chunk in list(app.wrote):
                    self.access(app, chunk, write=False)
        finally:
            self.world.close()

    def turn(self) -> None:
        """One interval: work, mishaps, messages, moves."""
        rng = self.rng
        for app in self.apps:
            self.work(app)
        for name, share in (
            ("grow", 0.15), ("shrink", 0.15), ("everything", 0.01), ("link", 0.01),
            ("client", 0.001), ("daemon", 0.002),
        ):  # fmt: skip
            if rng.random() < share and (name != "daemon" or self.daemon):
                getattr(self, f"mishap_{name}")()
        before = self.done()
        for app in list(self.apps):
            self.feed(app)
        for _ in range(PUMPS):
            self.pump()
        self.seen.moves += self.done() - before
        if self.daemon:
            self.decide()
        elif rng.random() < 0.1:
            self.mishap_daemon()
        if self.links and rng.random() < 0.2:
            self.lib.cu.fg_link_set(*self.links.pop(), 1)

    def work(self, app: App) -> None:
        """Mostly round and round; sometimes anywhere; a third of it writes."""
        chunks = 3 * HOME // 2
        if self.rng.random() < 0.02:
            app.at = self.rng.randrange(chunks)
        for _ in range(12):
            if app.busy_ns > self.lib.cu.fg_now():
                return  # its last kernel still runs
            app.at = (app.at + 1) % chunks
            self.access(app, app.at, write=app.at not in app.wrote or self.rng.random() < 0.3)

    def access(self, app: App, chunk: int, *, write: bool) -> None:
        """One kernel, whose read is compared with what was written."""
        tg, address = self.lib.tg, app.base + chunk * CHUNK
        value = self.rng.randrange(1 << 30) if write else None
        cu, status = self.lib.cu, self.status
        cu.fg_tenant_use(app.slot)
        cu.fg_take_spent()
        assert tg.tg_acquire(app.client, address, CHUNK) == 0
        end = cu.fg_kernel(app.gpu, address, CHUNK, write, value or 0, 1000, cu.fg_now(),
                           self.digest, status)  # fmt: skip
        tg.tg_release(app.client, address, CHUNK)
        if status[0]:
            assert status[0] == LAUNCH_FAILED
            self.seen.lost += 1
            app.wrote.pop(chunk, None)
            return
        app.busy_ns = int(end) + int(cu.fg_take_spent())
        if value is not None:
            app.wrote[chunk] = value
            return
        self.seen.checked += 1
        self.seen.wrong += self.digest[0] != cu.fg_hash_of(app.wrote[chunk])

    def pump(self) -> None:
        """Start and end moves a little later; none may take a lender below its floor."""
        cu = self.lib.cu
        cu.fg_take_spent()
        self.world.advance(self.rng.randrange(1, 2 * TICK_NS // PUMPS))
        for app in self.apps:
            if app.calls_ns > cu.fg_now():
                continue  # its thread is not back from the driver
            before = [self.room(gpu) for gpu in LENDERS]
            cu.fg_tenant_use(app.slot)
            self.lib.tg.tg_pump(app.client)
            app.calls_ns = int(cu.fg_now())
            cu.fg_take_spent()
            for gpu, had in zip(LENDERS, before, strict=True):
                grown = int(self.world.stats(gpu).plain_bytes) > min(self.plain[gpu])
                self.seen.crossed += had > self.room(gpu) < FLOOR and not grown

    def room(self, gpu: int) -> int:
        """Chunks that an allocation gets without an eviction."""
        stats = self.world.stats(gpu)
        return int(stats.free_bytes + stats.spare_bytes + stats.unused_bytes) // CHUNK

    def decide(self) -> None:
        """One turn of the daemon; what it says arrives in the next interval."""
        core, now = self.core, int(self.lib.cu.fg_now())
        for gpu in range(self.world.gpus):
            stats = self.world.stats(gpu)
            free, own = int(stats.free_bytes), int(stats.plain_bytes)
            core.set_memory(gpu, free, own, lost=bool(stats.lost))
            if gpu in LENDERS:
                self.plain[gpu].append(own)
            if self.rng.random() < 0.05:
                # A lender that once took everything would never be asked again.
                core.gpus[gpu].most_own = 0
        core.tick(now)
        for app in self.apps:
            if app.session is None:
                continue
            self.lib.cu.fg_tenant_use(app.slot)
            while (size := self.lib.tg.tg_drain(app.client, self.buffer, 16384)) > 0:
                app.session.receive(bytes(self.lib.ffi.buffer(self.buffer, size)), now)
            app.waiting = app.session.answer(now)
        for tenant in core.tenants.values():
            self.seen.bounce = max(self.seen.bounce, int(tenant.bounce.max()))
        for gpu in LENDERS:
            self.seen.unbacked = max(self.seen.unbacked, core.gpus[gpu].borrowed)
        self.count()

    def count(self) -> None:
        """Take the core's figures; a daemon that is killed takes them with it."""
        seen, core = self.seen, self.core
        seen.revoke_ns = max([seen.revoke_ns, *core.revoke_ns])
        seen.revocations += len(core.revoke_ns)
        core.revoke_ns.clear()

    def feed(self, app: App) -> None:
        """The daemon's messages arrive."""
        self.lib.cu.fg_tenant_use(app.slot)
        for message in app.waiting:
            assert self.lib.tg.tg_feed(app.client, message, len(message)) == 0
        app.waiting = []

    def done(self) -> int:
        """Moves that the clients of now have carried out."""
        out, total = self.lib.ffi.new("struct tg_stats *"), 0
        for app in self.apps:
            self.lib.tg.tg_stats_get(app.client, out)
            total += int(out.moves_done)
        return total

    def allocate(self, gpu: int, chunks: int) -> None:
        """A lender's own allocation, which must not be refused."""
        if chunks <= 0 or gpu in self.gone:
            return
        out = self.lib.ffi.new("CUdeviceptr *")
        with self.world.on(gpu, self.lender[gpu]):
            if self.lib.cu.cuMemAlloc_v2(out, chunks * CHUNK):
                self.seen.refused += 1
            else:
                self.held[gpu].append((int(out[0]), chunks))

    def others(self, gpu: int) -> int:
        """Chunks of a GPU that are evictable or nobody's."""
        return HOME - int(self.world.stats(gpu).plain_bytes) // CHUNK

    def mishap_grow(self) -> None:
        """A lender needs a little more."""
        gpu = self.rng.choice(LENDERS)
        self.allocate(gpu, min(self.rng.randrange(1, 9), self.others(gpu)))
        self.seen.mishaps["grow"] += 1

    def mishap_shrink(self) -> None:
        """A lender gives some of its memory back."""
        gpu = self.rng.choice(LENDERS)
        while gpu not in self.gone and self.held[gpu] and self.rng.random() < 0.7:
            at, _ = self.held[gpu].pop(self.rng.randrange(len(self.held[gpu])))
            with self.world.on(gpu, self.lender[gpu]):
                assert self.lib.cu.cuMemFree_v2(at) == 0
        self.seen.mishaps["shrink"] += 1

    def mishap_everything(self) -> None:
        """A lender allocates all that is not its own yet, in one call."""
        gpu = self.rng.choice(LENDERS)
        self.allocate(gpu, self.others(gpu))
        self.seen.mishaps["everything"] += 1

    def mishap_link(self) -> None:
        """A link breaks under whatever it carries."""
        ends = (self.rng.choice((0, 1)), self.rng.choice(LENDERS))
        if ends not in self.links and not self.gone:
            self.lib.cu.fg_link_set(*ends, 0)
            self.links.append(ends)
            self.seen.mishaps["link"] += 1

    def leave(self, app: App) -> None:
        """A borrower is gone, and the daemon notices."""
        if app.session is not None:
            app.session.close()
            app.session = None

    def mishap_client(self) -> None:
        """A borrower is killed; another one starts."""
        app = self.apps.pop(self.rng.randrange(2))
        before = self.done()
        self.world.drop(app.client, close=False)
        self.lib.cu.fg_tenant_kill(app.slot)
        self.leave(app)
        self.apps.append(self.start(app.gpu))
        self.seen.moves += self.done() - before
        self.seen.mishaps["client"] += 1

    def mishap_daemon(self) -> None:
        """The daemon is killed, or a new one starts."""
        if self.daemon:
            self.seen.mishaps["daemon"] += 1
            self.core = Harvester(self.topology, self.settings)
            for app in self.apps:
                app.session, app.waiting = None, []
                self.lib.cu.fg_tenant_use(app.slot)
                self.lib.tg.tg_detach(app.client)
        else:
            for app in self.apps:
                self.attach(app)
        self.daemon = not self.daemon

    def mishap_lost(self) -> None:
        """A lender's GPU falls off the bus."""
        gpu = self.rng.choice(LENDERS)
        self.gone.add(gpu)
        self.lib.cu.fg_device_lose(gpu)
        self.seen.mishaps["lost"] += 1
