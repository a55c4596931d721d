# SPDX-License-Identifier: Apache-2.0
"""The table of a tenant's chunks, its commands under way, and what a tick reads of it."""

from __future__ import annotations

import errno
import random
import time

import numpy as np
import pytest
from gpu_host import MS, SETTINGS, Host, parked, topology

from tierd_gpu import wire
from tierd_gpu.harvest import Harvester
from tierd_gpu.links import HOST
from tierd_gpu.placed import PlacedChunks
from tierd_gpu.session import MAX_CHUNKS
from tierd_gpu.tenant import Tenant, TenantSpec
from tierd_gpu.tuning import PLAN, RECLAIM


def test_a_chunk_that_is_a_little_late_is_expected_soon_and_a_new_one_like_the_others() -> None:
    tenant = Tenant(TenantSpec(1, 0, 0, max_chunks=4), 2)
    tenant.set_range(0, 4, True)
    ms = 1_000_000

    def used(chunks: list[int], at_ms: float) -> None:
        count = len(chunks)
        tenant.use(np.array(chunks), np.full(count, 512), np.full(count, at_ms * ms))

    used([0, 1], 1)
    assert tenant.expected_next(np.array([0]), 3.0 * ms) == 3 * ms + 2 * 2 * ms
    used([0, 1], 11)
    used([2], 15)
    due = tenant.expected_next(np.array([0, 2]), 22.0 * ms)
    assert due.tolist() == [23 * ms, 25 * ms]
    assert tenant.expected_next(np.array([0]), 40.0 * ms) == 59 * ms


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
    assert not tenant.blocked(host.now + PLAN.backoff_ns)[1, 0]
    assert tenant.busy[3] == 0


def test_a_command_without_an_answer_is_forgotten() -> None:
    host = Host()
    tenant = parked(host, 4)
    host.core.order(tenant, 0, 0, now_ns=host.now)
    assert host.core.cost.waiting[1, 0] == 1
    host.now += PLAN.answer_ns + 1
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
    """(chunk numbers read, commands decided, milliseconds of CPU time) of one tick."""
    before = sum(t.placed.read for t in core.tenants.values())
    started = time.thread_time()
    core.tick(now)
    took_ms = (time.thread_time() - started) * 1e3
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
        assert read <= RECLAIM.tenants_in_turn * RECLAIM.window_chunks
        assert ordered <= RECLAIM.tick_commands
        for tenant in core.tenants.values():
            assert len(tenant.orders) <= RECLAIM.tenant_commands + PLAN.commands
            tenant.out.clear()
    assert sum(ordered for _, ordered, _ in costs) > PLAN.commands
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
        started = time.thread_time()
        core.plan(1, turn * MS)
        planned_ms = (time.thread_time() - started) * 1e3
        assert costs[-1][0] <= 2 * 4000
        tenant.out.clear()
    assert tenant.placed.read <= 19 * 2 * 4000
    print(f"2^22 chunks: tick {max(ms for *_, ms in costs):.2f} ms, plan {planned_ms:.2f} ms")
