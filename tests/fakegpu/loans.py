# SPDX-License-Identifier: Apache-2.0
"""Programs with loans and lenders that grow and shrink at random, in virtual time.

The real client library and the real harvester core on the stand-in driver. Programs fill what
they are granted and give back when they are asked to: at once, late, or never. Every block is
compared with what was written, whatever was taken from it meanwhile.
"""

from __future__ import annotations

import errno
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
LENDERS = (2, 3)
TURN_NS = 2_000_000
MANNERS = ("obeys", "late", "never")


@dataclass
class Program:
    """One program; `blocks` are (address, chunks, what was written), by neighbour."""

    gpu: int
    slot: int
    client: Any
    manner: str
    session: Session
    blocks: dict[int, deque[tuple[int, int, int]]] = field(
        default_factory=lambda: {gpu: deque() for gpu in LENDERS}
    )
    waiting: list[bytes] = field(default_factory=list)


@dataclass
class Seen:
    """What was seen.

    Attributes:
        revocations, obeyed, late: as the daemon counts them, by the programs' manner.
        longest_ns: the longest revocation of a program that obeys.
        checked, wrong: blocks read, and of them with other bytes than were written.
        refused: allocations of lenders that failed.
        over: allocations that went above the grant, or were refused within it.
        full: allocations within the grant for which the lender had left no memory.
        lenders, evicted: allocations of lenders, and blocks that the driver evicted for them.
    """

    revocations: Counter[str] = field(default_factory=Counter)
    obeyed: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    longest_ns: int = 0
    checked: int = 0
    wrong: int = 0
    lenders: int = 0
    refused: int = 0
    over: int = 0
    full: int = 0
    evicted: int = 0


class Loaned:
    """One world: programs on two GPUs, lenders on the others."""

    def __init__(self, rng: random.Random, settings: HarvestSettings, seen: Seen) -> None:
        self.rng, self.seen = rng, seen
        self.world = World(gpu_bytes=HOME * CHUNK, manual=True, batch=2)
        self.lib = self.world.lib
        self.core = Harvester(read_topology(self.world), settings)
        self.buffer = self.lib.ffi.new("uint8_t[]", 16384)
        self.state = self.lib.ffi.new("struct tg_loan *")
        self.out = self.lib.ffi.new("uint64_t *")
        self.at = self.lib.ffi.new("CUdeviceptr *")
        self.lender = {gpu: self.world.tenant() for gpu in LENDERS}
        self.held: dict[int, list[tuple[int, int]]] = {gpu: [] for gpu in LENDERS}
        self.programs = [
            self.start(number, manner) for number, manner in enumerate(MANNERS[:1] * 3 + MANNERS)
        ]

    def start(self, number: int, manner: str) -> Program:
        """A program that wants more than there is on both neighbours."""
        slot = self.world.tenant()
        client = self.world.client(number % 2, slot, role=0, chunks=1)
        self.lib.cu.fg_tenant_use(slot)
        self.lib.tg.tg_attach(client)
        session = Session(self.core, number + 1, number)
        program = Program(number % 2, slot, client, manner, session)
        for gpu in LENDERS:
            self.lib.tg.tg_loan_want(client, gpu, HOME * CHUNK)
        return program

    def close(self) -> None:
        """Frees everything."""
        self.world.close()

    def turn(self) -> None:
        """Two milliseconds: lenders, programs, messages, decisions."""
        for gpu in LENDERS:
            self.lend(gpu)
        for program in self.programs:
            self.lib.cu.fg_tenant_use(program.slot)
            for message in program.waiting:
                assert self.lib.tg.tg_feed(program.client, message, len(message)) == 0
            program.waiting = []
            for gpu in LENDERS:
                self.live(program, gpu)
            self.lib.tg.tg_pump(program.client)
        self.world.advance(TURN_NS)
        self.decide()

    def lend(self, gpu: int) -> None:
        """The lender takes a little, or a lot in one call, or gives something back."""
        lot, free = self.rng.random(), HOME - int(self.world.stats(gpu).plain_bytes) // CHUNK
        with self.world.on(gpu, self.lender[gpu]):
            if self.held[gpu] and lot < 0.12 + 0.4 * (free < HOME // 3):
                at, _ = self.held[gpu].pop(self.rng.randrange(len(self.held[gpu])))
                assert self.lib.cu.cuMemFree_v2(at) == 0
            elif lot > 0.84:
                chunks = min(free, self.rng.randrange(1, 30 if lot > 0.99 else 6))
                before = int(self.world.stats(gpu).evicted_of_others)
                self.seen.lenders += chunks > 0
                if chunks and self.lib.cu.cuMemAlloc_v2(self.at, chunks * CHUNK):
                    self.seen.refused += 1
                elif chunks:
                    self.held[gpu].append((int(self.at[0]), chunks))
                self.seen.evicted += int(self.world.stats(gpu).evicted_of_others) - before

    def live(self, program: Program, gpu: int) -> None:
        """Give back what is due, fill what is granted, read something."""
        tg, blocks = self.lib.tg, program.blocks[gpu]
        tg.tg_loan_state(program.client, gpu, self.state)
        owed = self.state.held > self.state.granted
        waits = {"obeys": 0.3, "late": 0.985, "never": 1.0}[program.manner]
        soon = self.state.due_ns - self.lib.cu.fg_now() < 5 * TURN_NS
        if owed and (self.rng.random() >= waits or (program.manner == "obeys" and soon)):
            while blocks and self.state.held > self.state.granted:
                at, _, value = blocks.popleft()
                self.check(program, at, value)
                assert tg.tg_loan_free(program.client, at) == 0
                tg.tg_loan_state(program.client, gpu, self.state)
        elif not owed and self.rng.random() < 0.5:
            self.fill(program, gpu, self.rng.randrange(1, 5))
        if blocks and self.rng.random() < 0.1:
            at, _, value = self.rng.choice(blocks)
            self.check(program, at, value)

    def fill(self, program: Program, gpu: int, chunks: int) -> None:
        """A block of so many chunks, if there is a grant for it."""
        fits = self.state.held + chunks * CHUNK <= self.state.granted
        status = self.lib.tg.tg_loan_alloc(program.client, gpu, chunks * CHUNK, self.out)
        self.seen.full += fits and status == -errno.ENOMEM  # the lender has it all by now
        none = (-errno.ENOSPC, -errno.ENOTCONN)  # the latter before the daemon's first word
        self.seen.over += status not in ((0, -errno.ENOMEM) if fits else none)
        if status == 0:
            value = self.rng.randrange(1 << 30)
            at = int(self.out[0])
            self.world.kernel(program.gpu, at, write=value, slot=program.slot)
            program.blocks[gpu].append((at, chunks, value))

    def check(self, program: Program, at: int, value: int) -> None:
        """What was written is read, wherever it is."""
        found = self.world.kernel(program.gpu, at, slot=program.slot)
        self.seen.checked += 1
        self.seen.wrong += found != self.lib.cu.fg_hash_of(value)

    def decide(self) -> None:
        """The daemon's turn; what it says arrives in the next one."""
        core, now = self.core, int(self.lib.cu.fg_now())
        for gpu in range(self.world.gpus):
            stats = self.world.stats(gpu)
            core.set_memory(gpu, int(stats.free_bytes), int(stats.plain_bytes))
            if self.rng.random() < 0.02:
                core.gpus[gpu].most_own = 0  # else a lender that took all once lends no more
        before = {key: len(loan.pending) for key, loan in core.loans.loans.items()}
        for program in self.programs:
            self.lib.cu.fg_tenant_use(program.slot)
            while (size := self.lib.tg.tg_drain(program.client, self.buffer, 16384)) > 0:
                self.hear(program, bytes(self.lib.ffi.buffer(self.buffer, size)), now)
        for (number, gpu), loan in core.loans.loans.items():
            before[number, gpu] = len(loan.pending)
        core.tick(now)
        for (number, gpu), loan in core.loans.loans.items():
            manner = self.programs[number - 1].manner
            self.seen.revocations[manner] += max(0, len(loan.pending) - before[number, gpu])
        for program in self.programs:
            program.waiting = program.session.answer(now)

    def hear(self, program: Program, message: bytes, now: int) -> None:
        """One message of a program, with what it ends."""
        counts, ages = self.core.counts, self.core.loans.returned_ns
        obeyed, late, revoked = (
            counts[f"loan_{name}"] for name in ("revocations_obeyed", "returns_late", "revocations")
        )
        program.session.receive(message, now)
        self.seen.obeyed[program.manner] += counts["loan_revocations_obeyed"] - obeyed
        self.seen.late[program.manner] += counts["loan_returns_late"] - late
        self.seen.revocations[program.manner] += counts["loan_revocations"] - revoked
        if program.manner == "obeys":
            self.seen.longest_ns = max([self.seen.longest_ns, *ages])
        ages.clear()

    def finish(self) -> None:
        """All that is still held is read once more."""
        for program in self.programs:
            for blocks in program.blocks.values():
                for at, _, value in blocks:
                    self.check(program, at, value)
