# SPDX-License-Identifier: Apache-2.0
"""How a lender gets its memory back, from clients that obey or do not."""

from __future__ import annotations

import random
from dataclasses import replace

from gpu_host import MS, SETTINGS, TOTAL, Host, parked

from tierd_gpu.links import CHUNK_BYTES, HOST
from tierd_gpu.tuning import PLAN


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


def test_a_revocation_takes_what_is_needed_last() -> None:
    host = Host()
    tenant = parked(host)
    for _ in range(3):
        host.use(1, list(range(50)))
    host.own[1] = TOTAL - 100 - host.core.settings.refill_bytes // CHUNK_BYTES + 10
    for _ in range(4):
        host.tick()
        host.obey()
    assert tenant.count[1] == 90
    assert {chunk for _, chunk, _ in host.moves} <= set(range(50, 100))


def test_a_short_revocation_takes_no_more_than_was_asked_for() -> None:
    host = Host()
    tenant = parked(host)
    host.own[1] = TOTAL - 100 - host.core.settings.refill_bytes // CHUNK_BYTES + 10
    for _ in range(4):
        host.tick()
        host.obey()
    assert tenant.count[1] == 90
    assert host.core.counts["revocations_hurried"] == 0


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
            assert tenant.bounce.max() <= PLAN.bounces + 1
    assert sum(int(t.uses) for t in tenants) == 6400
