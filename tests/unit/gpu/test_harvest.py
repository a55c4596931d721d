# SPDX-License-Identifier: Apache-2.0
"""Leases, revocation and limits of the harvester, with clients that obey or do not."""

from __future__ import annotations

import errno
import random
import time
from dataclasses import replace

import numpy as np
import pytest

from tierd_gpu import reclaim, wire
from tierd_gpu.harvest import Harvester
from tierd_gpu.links import CHUNK_BYTES, HOST, Gpu, GpuTopology
from tierd_gpu.metrics import samples
from tierd_gpu.placed import PlacedChunks
from tierd_gpu.session import MAX_CHUNKS, Session
from tierd_gpu.settings import HarvestSettings
from tierd_gpu.tenant import Tenant, TenantSpec
from tierd_gpu.wire import Kind, WireError

MS = 1_000_000
TOTAL = 512
SETTINGS = HarvestSettings(
    floor_bytes=8 * CHUNK_BYTES,
    refill_bytes=16 * CHUNK_BYTES,
    context_bytes=0,
    observe_ns=0,
    own_margin=0.0,
)


def topology(count: int = 3) -> GpuTopology:
    rate = np.full((count + 1, count + 1), 25e9)
    rate[-1, :] = rate[:, -1] = 12e9
    gpus = tuple(Gpu(i, bytes([i] * 16), f"gpu{i}", TOTAL * CHUNK_BYTES) for i in range(count))
    return GpuTopology(gpus, rate, np.ones((count, count), np.int64))


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
        tenant = self.core.join(TenantSpec(session, 0, home, max_chunks=chunks))
        self.core.chunks(session, np.array([(0, chunks, 1, 0)], wire.CHUNKS))
        return tenant

    def free(self, gpu: int) -> int:
        used = sum(int(t.count[gpu]) for t in self.core.tenants.values())
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

    def obey(self, most: int = 10**6) -> int:
        """Carry out what was ordered; returns how many commands."""
        count = 0
        for session, tenant in self.core.tenants.items():
            for chunk, dest, _, seq in tenant.take_orders().tolist():
                count += 1
                self.moves.append((session, chunk, dest))
                self.place(session, chunk, dest, seq=seq)
                for gpu in range(len(self.own)):
                    self.least[gpu] = min(self.least[gpu], self.free(gpu))
            if count >= most:
                break
        return count


def parked(host: Host, chunks: int = 100) -> Tenant:
    """A tenant at home 0 with `chunks` chunks on GPU 1."""
    tenant = host.join(1, 0, chunks + 10)
    for chunk in range(chunks):
        host.park(1, chunk, 1)
    return tenant


def test_a_lender_keeps_the_most_that_it_ever_used_and_the_refill() -> None:
    host = Host()
    tenant = host.join(1, 0, 2000)
    for chunk in range(800):
        host.place(1, chunk, HOST)
    host.own[1] = 100
    host.tick()
    assert tenant.lease[1] == TOTAL - 100 - 16
    host.own[1] = 300
    host.tick()
    host.own[1] = 100
    host.tick()
    assert tenant.lease[1] == TOTAL - 300 - 16


def test_a_lender_is_watched_before_it_lends() -> None:
    host = Host(replace(SETTINGS, observe_ns=5 * MS))
    tenant = host.join(1, 0, 100)
    for chunk in range(50):
        host.place(1, chunk, HOST)
    host.tick()
    assert tenant.lease[1] == 0
    host.tick(6)
    assert tenant.lease[1] > 0


def test_a_lender_that_takes_everything_gets_everything_back() -> None:
    host = Host()
    tenant = parked(host, 200)
    host.tick()
    for _ in range(200):
        host.own[1] = TOTAL - int(tenant.count[1])
        host.tick()
        host.obey()
    assert tenant.count[1] == 0
    assert host.core.counts["revocations"] >= 1


def test_a_lender_that_takes_whatever_is_given_back_has_all_of_it_within_the_bound() -> None:
    bound = 20 * MS
    host = Host(replace(SETTINGS, revoke_bound_ns=bound))
    tenant = parked(host)
    refill = host.core.settings.refill_bytes // CHUNK_BYTES
    for _ in range(40):
        # Its own use grows into what was given back: always one chunk short.
        host.own[1] = max(host.own[1], TOTAL - int(tenant.count[1]) - refill + 1)
        host.tick()
        host.obey()
    assert tenant.count[1] == 0
    assert host.core.counts["revocations"] == len(host.core.revoke_ns) == 1
    assert host.core.revoke_ns[0] <= bound
    assert host.core.counts["revocations_hurried"] == 1


def test_a_short_revocation_takes_no_more_than_was_asked_for() -> None:
    host = Host()
    tenant = parked(host)
    host.own[1] = TOTAL - 100 - host.core.settings.refill_bytes // CHUNK_BYTES + 10
    for _ in range(4):
        host.tick()
        host.obey()
    assert tenant.count[1] == 90
    assert host.core.counts["revocations_hurried"] == 0


def test_a_newcomer_gets_its_share_from_one_that_has_everything() -> None:
    host = Host()
    first = host.join(1, 0, 2000)
    for chunk in range(480):
        host.park(1, chunk, 2)
    host.tick()
    assert first.lease[2] >= 480
    second = host.join(2, 1, 2000)
    for chunk in range(1000):
        host.place(2, chunk, HOST)
    for _ in range(300):
        host.tick()
        host.obey()
    assert second.lease[2] == pytest.approx(248, abs=2)
    assert first.count[2] <= first.lease[2] <= 250


def test_no_tenant_has_more_than_its_quota() -> None:
    host = Host(replace(SETTINGS, quota_share=0.25))
    tenant = host.join(1, 0, 2000)
    for chunk in range(1500):
        host.place(1, chunk, HOST)
    host.tick()
    assert tenant.lease[1] == TOTAL // 4


def test_what_is_parked_can_go_to_the_host_within_the_revoke_bound() -> None:
    settings = replace(
        SETTINGS,
        durable=False,
        revoke_bound_ns=5 * MS,
    )
    host = Host(settings)
    tenant = host.join(1, 0, 1200)
    for chunk in range(TOTAL):
        host.place(1, chunk, 0)
    for chunk in range(TOTAL, 1200):
        host.place(1, chunk, HOST)
    most = [0, 0, 0]
    for turn in range(400):
        host.tick()
        host.use(1, [(turn * 8 + i) % 1200 for i in range(8)])
        host.core.plan(1, host.now)
        host.obey()
        for gpu in (1, 2):
            assert host.core.parked_ns(gpu) <= 0.6 * settings.revoke_bound_ns
            most[gpu] = max(most[gpu], int(tenant.count[gpu]))
    never_there = 0.6 * settings.revoke_bound_ns / host.core.cost.alone_ns(1, HOST, first=True)
    assert most[1] > 0
    assert most[1] > never_there  # what the host had once goes there sooner


def test_no_command_takes_a_lender_below_its_floor_and_no_chunk_bounces() -> None:
    rng = random.Random(5)
    host = Host()
    tenants = [host.join(1, 0, 900), host.join(2, 1, 700)]
    host.own[2] = 200
    for session, tenant in enumerate(tenants, 1):
        for chunk in range(tenant.spec.max_chunks):
            host.place(session, chunk, tenant.spec.home if chunk < 480 else HOST)
    for turn in range(200):
        host.own[2] = min(host.free(2) + host.own[2], rng.choice([200, 200, 260, 400]))
        before = host.free(2)
        host.tick()
        for session, tenant in enumerate(tenants, 1):
            size = tenant.spec.max_chunks
            start = turn * 16 if rng.random() < 0.9 else rng.randrange(size)
            host.use(session, [(start + i) % size for i in range(16)])
            host.core.plan(session, host.now)
        host.least[2] = before
        host.obey()
        floor = SETTINGS.floor_bytes // CHUNK_BYTES
        assert host.least[2] >= min(before, floor)
        for tenant in tenants:
            assert tenant.bounce.max() <= SETTINGS.bounce_limit + 1
    assert sum(int(t.uses) for t in tenants) == 6400


def test_the_figures_tell_leases_lost_gpus_and_the_longest_revocation() -> None:
    host = Host()
    tenant = parked(host)
    host.tick()
    host.core.set_memory(2, 0, lost=True)
    host.core.revoke_ns.extend([3 * MS, 9 * MS])
    told = {(s.name, s.labels.get("gpu")): s.value for s in samples(host.core)}
    assert told["tierd_gpu_leased_bytes", "1"] == tenant.lease[1] * CHUNK_BYTES > 0
    assert told["tierd_gpu_borrowed_bytes", "1"] == 100 * CHUNK_BYTES
    assert (told["tierd_gpu_lost", "1"], told["tierd_gpu_lost", "2"]) == (0, 1)
    assert told["tierd_gpu_revocation_longest_seconds", None] == pytest.approx(0.009)


def test_a_broken_link_is_left_alone_for_a_while() -> None:
    host = Host()
    parked(host, 20)
    host.tick()
    tenant = host.core.tenants[1]
    tenant.take_orders()
    host.core.order(tenant, 3, 0, now_ns=host.now)
    order = tenant.take_orders().tolist()[-1]
    host.place(1, 3, 1, seq=order[3], status=errno.ENOLINK)
    assert tenant.blocked(host.now)[1, 0]
    assert not tenant.blocked(host.now + SETTINGS.backoff_ns)[1, 0]
    assert tenant.busy[3] == 0


def test_a_way_that_broke_is_lent_over_again_when_its_time_is_over() -> None:
    host = Host()
    tenant = parked(host, 20)
    tenant.blocked_until[0, 1] = 5 * MS
    host.tick()
    assert tenant.lease[1] == 0
    host.tick(5)
    assert tenant.lease[1] > 0


def test_what_a_tenant_says_of_a_way_holds_for_itself_alone() -> None:
    host = Host()
    liar, other = host.join(1, 0, 100), host.join(2, 0, 100)
    for chunk in range(50):
        host.place(1, chunk, HOST)
        host.place(2, chunk, HOST)
    for gpu in (1, 2):
        host.core.order(liar, 0, gpu, now_ns=host.now)
        host.place(1, 0, HOST, seq=int(liar.busy[0]), status=errno.ENODEV)
        liar.blocked_until[0, gpu] = 10**12
    host.tick()
    assert liar.lease[:-1].tolist() == [0, 0, 0]
    assert (other.lease[1:-1] > 0).all()
    assert not other.blocked(host.now).any()


def claims(host: Host, session: int, gpu: int, chunks: int) -> Tenant:
    """A tenant that says without a command that its chunks are on a GPU."""
    liar = host.join(session, 0, chunks)
    for chunk in range(chunks):
        host.place(session, chunk, gpu)
    return liar


def figures(host: Host) -> list[tuple[str, str, float]]:
    """What the metrics say of GPUs but for leases, whose shares depend on who asks."""
    return [
        (each.name, each.labels.get("gpu", ""), each.value)
        for each in samples(host.core)
        if each.name.startswith("tierd_gpu_") and each.name != "tierd_gpu_leased_bytes"
        if "gpu" in each.labels
    ]


def test_claims_change_no_figure_of_a_gpu_nor_what_others_may_park() -> None:
    seen = []
    for place in (HOST, 1):
        host = Host(replace(SETTINGS, durable=False))
        honest = host.join(1, 2, 200)
        for chunk in range(100):
            host.park(1, chunk, 1)
        for chunk in range(100, 200):
            host.place(1, chunk, HOST)
        host.join(2, 0, 400)
        for chunk in range(400):
            host.place(2, chunk, place)
        for _ in range(30):
            # NVML does not see what is only said.
            host.now += MS
            for gpu in range(3):
                used = 100 if gpu == 1 else 0
                host.core.set_memory(gpu, (TOTAL - used) * CHUNK_BYTES)
            host.core.tick(host.now)
        seen.append(
            (figures(host), honest.lease.tolist(), host.core.parked_ns(1), host.core.room(1))
        )
        assert host.core.gpus[1].borrowed == 100
    assert seen[0] == seen[1]


def test_borrowed_memory_is_never_more_than_is_in_use() -> None:
    host = Host()
    parked(host, 100)
    host.core.set_memory(1, (TOTAL - 40) * CHUNK_BYTES)
    assert host.core.gpus[1].borrowed == 100
    assert host.core.gpus[1].borrowed_bytes == 40 * CHUNK_BYTES
    host.core.set_memory(1, TOTAL * CHUNK_BYTES)
    assert host.core.gpus[1].borrowed_bytes == 0


def test_an_answer_lends_only_what_its_own_command_sent() -> None:
    host = Host()
    tenant = host.join(1, 0, 10)
    for chunk in range(4):
        host.place(1, chunk, HOST)
    host.core.order(tenant, 0, 1, now_ns=0)
    host.place(1, 1, 1, seq=int(tenant.busy[0]))  # another chunk
    host.core.order(tenant, 2, 1, now_ns=0)
    host.place(1, 2, 2, seq=int(tenant.busy[2]))  # another GPU
    host.place(1, 3, 1, seq=77)  # no command at all
    assert [gpu.borrowed for gpu in host.core.gpus] == [0, 0, 0]
    host.park(1, 0, 1)
    assert host.core.gpus[1].borrowed == 1
    host.place(1, 0, 1)  # told again: it is still there
    assert host.core.gpus[1].borrowed == 1
    host.place(1, 0, 0)
    host.place(1, 0, 1)
    assert host.core.gpus[1].borrowed == 0


def test_a_tenant_that_gives_nothing_back_hurries_nobody() -> None:
    host = Host()
    deaf, other = parked(host, 100), host.join(2, 2, 200)
    for chunk in range(100):
        host.park(2, chunk, 1)
    host.own[1] = TOTAL - 200 - 16 + 8
    for _ in range(60):
        host.tick()
        deaf.out.clear()
        host.obey()
    assert deaf.count[1] == 100
    assert deaf.lease[1] == 0
    assert other.count[1] == 96
    assert other.lease[1] == 96


def test_a_command_without_an_answer_is_forgotten() -> None:
    host = Host()
    tenant = parked(host, 4)
    host.core.order(tenant, 0, 0, now_ns=host.now)
    assert host.core.cost.waiting[1, 0] == 1
    host.now += SETTINGS.answer_ns + 1
    host.core.plan(1, host.now)
    assert host.core.counts["unanswered"] == 1
    assert host.core.cost.waiting[1, 0] == 0


def test_a_tenant_that_leaves_leaves_nothing() -> None:
    host = Host()
    tenant = parked(host, 30)
    for chunk in range(10):
        host.core.order(tenant, chunk, 0, now_ns=0)
    host.core.leave(1)
    assert host.core.cost.waiting.sum() == 0
    assert host.core.gpus[1].borrowed == 0


CLAIMED = 41_000
"""Chunks that a GPU of 80 GiB holds."""


def cost_of_a_tick(core: Harvester, now: int) -> tuple[int, int, float]:
    """(chunk numbers read, commands decided, milliseconds) of one tick."""
    before = sum(t.placed.read for t in core.tenants.values())
    started = time.perf_counter()
    core.tick(now)
    took_ms = (time.perf_counter() - started) * 1e3
    read = sum(t.placed.read for t in core.tenants.values()) - before
    return read, sum(len(t.out) for t in core.tenants.values()), took_ms


@pytest.mark.parametrize("tenants", [1, 12])
def test_a_tick_costs_the_same_however_many_chunks_are_claimed(tenants: int) -> None:
    """Read are a few windows, ordered is a multiple of what may be under way."""
    core = Harvester(topology(), SETTINGS)
    for session in range(1, tenants + 1):
        core.join(TenantSpec(session, 0, 0, max_chunks=CLAIMED))
        core.chunks(session, np.array([(0, CLAIMED, 1, 0)], wire.CHUNKS))
        rows = np.zeros(CLAIMED, wire.STATE)
        rows["chunk"], rows["place"] = np.arange(CLAIMED), 1
        core.state(session, rows, 0)
    for gpu in range(3):
        core.set_memory(gpu, 0)
    costs = []
    for turn in range(1, 20):
        costs.append(cost_of_a_tick(core, turn * MS))
        read, ordered, _ = costs[-1]
        assert read <= reclaim.IN_TURN * reclaim.WINDOW
        assert ordered <= reclaim.TICK_COMMANDS * SETTINGS.outstanding
        for tenant in core.tenants.values():
            under_way = (reclaim.UNDER_WAY + 1) * SETTINGS.outstanding
            assert len(tenant.orders) <= under_way
            tenant.out.clear()
    assert sum(ordered for _, ordered, _ in costs) > SETTINGS.outstanding
    print(f"{tenants} x {CLAIMED} claimed: longest tick {max(ms for *_, ms in costs):.2f} ms")


def test_a_table_of_four_million_chunks_costs_a_tick_nothing() -> None:
    core = Harvester(topology(), SETTINGS)
    tenant = core.join(TenantSpec(1, 0, 0, max_chunks=MAX_CHUNKS))
    core.chunks(1, np.array([(0, MAX_CHUNKS, 1, 0)], wire.CHUNKS))
    rows = np.zeros(4000, wire.STATE)
    rows["chunk"], rows["place"] = np.arange(4000) * 1000, 1
    core.state(1, rows, 0)
    costs = []
    for turn in range(1, 20):
        for gpu in range(3):
            core.set_memory(gpu, 0)
        costs.append(cost_of_a_tick(core, turn * MS))
        started = time.perf_counter()
        core.plan(1, turn * MS)
        planned_ms = (time.perf_counter() - started) * 1e3
        assert costs[-1][0] <= 2 * 4000
        tenant.out.clear()
    assert tenant.placed.read <= 19 * 2 * 4000
    print(f"2^22 chunks: tick {max(ms for *_, ms in costs):.2f} ms, plan {planned_ms:.2f} ms")


@pytest.mark.parametrize("seed", range(5))
def test_counts_of_places_are_those_of_the_table(seed: int) -> None:
    """Random ranges and states; every figure that is kept is what counting would give."""
    rng = random.Random(seed)
    host = Host()
    tenant = host.join(1, 0, 300)
    for _ in range(2000):
        kind = rng.random()
        if kind < 0.05:
            first, count = rng.randrange(300), rng.randrange(60)
            row = (first, min(count, 300 - first), rng.random() < 0.6, 0)
            host.core.chunks(1, np.array([row], wire.CHUNKS))
        elif kind < 0.6:
            host.place(1, rng.randrange(300), rng.randrange(-1, 3))
        elif tenant.live[chunk := rng.randrange(300)]:
            host.park(1, chunk, rng.randrange(1, 3))
        for place in (HOST, 0, 1, 2):
            here = tenant.live & (tenant.place == place)
            assert tenant.placed.window(place, 10**6).tolist() == np.flatnonzero(here).tolist()
            kept = (tenant.count, tenant.lent_count, tenant.lent_first)
            which = (here, here & tenant.lent, here & tenant.lent & ~tenant.hosted)
            assert [int(k[place]) for k in kept] == [np.count_nonzero(w) for w in which]


def test_every_parked_chunk_has_its_turn() -> None:
    placed = PlacedChunks(1000, 2)
    for chunk in range(1000):
        placed.add(1, chunk)
    seen = [placed.window(1, 300).tolist() for _ in range(4)]
    assert all(len(each) == 300 for each in seen)
    assert set().union(*seen) == set(range(1000))
    assert placed.read == 1200


def test_the_tables_of_one_users_clients_have_a_bound_together() -> None:
    core = Harvester(topology(), SETTINGS)
    Session(core, 1, 1000).receive(hello(chunks=MAX_CHUNKS - 64), 0)
    Session(core, 2, 1000).receive(hello(chunks=64), 0)
    with pytest.raises(WireError, match="chunks"):
        Session(core, 3, 1000).receive(hello(chunks=1), 0)
    Session(core, 4, 2000).receive(hello(chunks=64), 0)


def hello(
    uuid: bytes = bytes([0] * 16),
    chunks: int = 64,
    version: int = wire.VERSION,
    visible: tuple[int, ...] = (0, 1, 2),
) -> bytes:
    record = np.zeros(1, wire.HELLO)
    record["version"], record["role"], record["max_chunks"] = version, 1, chunks
    record["uuid"][0] = np.frombuffer(uuid, np.uint8)
    record["visible"] = len(visible)
    for place, gpu in enumerate(visible):
        record["visible_uuid"][0][place] = gpu
    return wire.encode(Kind.HELLO, record)[0]


def test_a_session_starts_with_hello_and_says_where_the_gpus_are() -> None:
    core = Harvester(topology(), SETTINGS)
    session = Session(core, 7, 1000)
    session.receive(hello(), 0)
    kinds = [wire.decode(message)[0] for message in session.answer(0)]
    assert kinds == [Kind.WELCOME, Kind.GPUS, Kind.LEASE]
    assert core.tenants[7].spec.uid == 1000


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x00" * 7,
        np.array([(2, 0, 8)], wire.HEADER).tobytes(),
        np.array([(1, 5, 8)], wire.HEADER).tobytes(),
        np.array([(55, 0, 8)], wire.HEADER).tobytes(),
        hello(bytes([9] * 16)),
        hello(chunks=0),
        hello(chunks=1 << 31),
        hello(version=1),
    ],
)
def test_what_is_no_greeting_ends_the_session(message: bytes) -> None:
    with pytest.raises(WireError):
        Session(Harvester(topology(), SETTINGS), 1, 0).receive(message, 0)


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (hello(version=1), errno.EPROTONOSUPPORT),
        (hello()[:80], errno.EPROTO),
        (hello(bytes([9] * 16)), errno.ENODEV),
        (hello(chunks=MAX_CHUNKS + 1), errno.ENOSPC),
        (wire.bare(wire.Kind.PING), errno.EPROTO),
    ],
)
def test_a_greeting_that_is_refused_has_a_reason(message: bytes, status: int) -> None:
    with pytest.raises(WireError) as caught:
        Session(Harvester(topology(), SETTINGS), 1, 0).receive(message, 0)
    assert caught.value.status == status


def old_hello() -> bytes:
    """What a client of version 1 says."""
    head = np.array([(1, 1, 72)], wire.HEADER).tobytes()
    return head + np.array([1, 1, 64, 0], "<u4").tobytes() + bytes(48)


def test_a_client_of_an_older_version_is_told_so() -> None:
    with pytest.raises(WireError, match=f"version 1, not {wire.VERSION}"):
        Session(Harvester(topology(), SETTINGS), 1, 0).receive(old_hello(), 0)


@pytest.mark.parametrize(
    ("visible", "seen"), [((), set()), ((0,), set()), ((0, 2), {2}), ((1,), {1})]
)
@pytest.mark.parametrize("durable", [True, False])
def test_nothing_is_sent_to_a_gpu_that_a_tenant_cannot_see(
    visible: tuple[int, ...], seen: set[int], durable: bool
) -> None:
    """Nor leased there; whatever else the tenant sees, its home it does."""
    host = Host(replace(SETTINGS, durable=durable))
    Session(host.core, 1, 0).receive(hello(chunks=1200, visible=(*visible, 77)), 0)
    tenant = host.core.tenants[1]
    host.core.chunks(1, np.array([(0, 1200, 1, 0)], wire.CHUNKS))
    for chunk in range(1200):
        host.place(1, chunk, 0 if chunk < 500 else HOST)
    for turn in range(300):
        host.tick()
        host.use(1, [(turn * 8 + i) % 1200 for i in range(8)])
        host.core.plan(1, host.now)
        host.obey()
        for gpu in {1, 2} - seen:
            assert tenant.lease[gpu] == 0
    went = {dest for _, _, dest in host.moves}
    assert 0 in went
    assert went - {HOST, 0} <= seen
    if seen and not durable:
        assert went & seen


def test_what_is_believed_on_an_unseen_gpu_is_taken_home_or_to_the_host() -> None:
    host = Host()
    Session(host.core, 1, 0).receive(hello(chunks=64, visible=(0,)), 0)
    tenant = host.core.tenants[1]
    host.core.chunks(1, np.array([(0, 64, 1, 0)], wire.CHUNKS))
    for chunk in range(64):
        host.place(1, chunk, 1)
    for _ in range(20):
        host.tick()
        host.obey()
    assert tenant.count[1] == 0
    assert {dest for _, _, dest in host.moves} <= {HOST, 0}


def test_a_tenant_that_says_it_sees_more_gpus_than_there_are_places_is_refused() -> None:
    record = np.frombuffer(hello()[8:], wire.HELLO).copy()
    record["visible"] = wire.MAX_GPUS + 1
    (message,) = wire.encode(Kind.HELLO, record)
    with pytest.raises(WireError, match="17 visible GPUs"):
        Session(Harvester(topology(), SETTINGS), 1, 0).receive(message, 0)


def test_one_tenants_reports_change_nothing_of_another() -> None:
    core = Harvester(topology(), SETTINGS)
    sessions = [Session(core, number, number) for number in (1, 2)]
    for session in sessions:
        session.receive(hello(), 0)
        (chunks,) = wire.encode(Kind.CHUNKS, np.array([(0, 64, 1, 0)], wire.CHUNKS))
        session.receive(chunks, 0)
        (state,) = wire.encode(Kind.STATE, np.array([(5, 1, 0, 0, 0, 0, 0)], wire.STATE))
        session.receive(state, 0)
    core.order(core.tenants[2], 5, 0, now_ns=0)
    (forged,) = wire.encode(Kind.STATE, np.array([(5, -1, 0, 0, 1, 1, 0)], wire.STATE))
    sessions[0].receive(forged, 0)
    assert core.tenants[2].place[5] == 1
    assert core.tenants[2].busy[5] == 1


def test_records_of_chunks_that_do_not_exist_are_counted_and_dropped() -> None:
    core = Harvester(topology(), SETTINGS)
    session = Session(core, 1, 0)
    session.receive(hello(), 0)
    (state,) = wire.encode(Kind.STATE, np.array([(63, 1, 0, 0, 0, 0, 0)], wire.STATE))
    (use,) = wire.encode(Kind.USE, np.array([(1 << 30, 1, 0, 0)], wire.USE))
    session.receive(state, 0)
    session.receive(use, 0)
    assert core.counts["states_unknown"] == 1
    assert core.counts["uses_unknown"] == 1
    (outside,) = wire.encode(Kind.CHUNKS, np.array([(60, 5, 1, 0)], wire.CHUNKS))
    with pytest.raises(WireError):
        session.receive(outside, 0)
