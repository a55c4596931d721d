# SPDX-License-Identifier: Apache-2.0
"""What a GPU lends, and to whom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_host import MS, SETTINGS, TOTAL, Host, hello, parked

from tierd_gpu import wire
from tierd_gpu.links import CHUNK_BYTES, HOST
from tierd_gpu.metrics import samples
from tierd_gpu.session import Session


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


def test_a_way_that_broke_is_lent_over_again_when_its_time_is_over() -> None:
    host = Host()
    tenant = parked(host, 20)
    tenant.blocked_until[0, 1] = 5 * MS
    host.tick()
    assert tenant.lease[1] == 0
    host.tick(5)
    assert tenant.lease[1] > 0


def test_borrowed_memory_is_never_more_than_is_in_use() -> None:
    host = Host()
    parked(host, 100)
    host.core.set_memory(1, (TOTAL - 40) * CHUNK_BYTES)
    assert host.core.gpus[1].borrowed == 100
    assert host.core.gpus[1].borrowed_bytes == 40 * CHUNK_BYTES
    host.core.set_memory(1, TOTAL * CHUNK_BYTES)
    assert host.core.gpus[1].borrowed_bytes == 0


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
