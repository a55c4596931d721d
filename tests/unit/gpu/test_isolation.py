# SPDX-License-Identifier: Apache-2.0
"""What a tenant says changes nobody else's figures."""

from __future__ import annotations

import errno
from dataclasses import replace

import numpy as np
from gpu_host import MS, SETTINGS, TOTAL, Host, hello, topology

from tierd_gpu import wire
from tierd_gpu.harvest import Harvester
from tierd_gpu.links import CHUNK_BYTES, HOST
from tierd_gpu.metrics import samples
from tierd_gpu.session import Session
from tierd_gpu.wire import Kind


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
