# SPDX-License-Identifier: Apache-2.0
"""The client library on the stand-in: what it refuses, reports, and never loses."""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from puppet import Puppet
from standin import CHUNK, HOST_BIT, DriverError, World, check

from tierd_gpu import wire
from tierd_gpu.wire import Kind, StateFlag

HOST = -1
MOVES = int(os.environ.get("TIERD_GPU_MOVES", "20000"))
"""Random moves in the byte tests; the long run (docs/operate/gpu.md) makes a million."""


@pytest.fixture
def world() -> Iterator[World]:
    with World(gpu_bytes=64 * CHUNK) as made:
        yield made


def test_a_chunk_is_moved_to_a_peer_and_back_with_its_bytes(world: World) -> None:
    puppet = Puppet(world, 0, 8)
    puppet.write(3, 77)
    assert puppet.do(3, 2) == 0
    assert world.lib.cu.fg_residency(puppet.address(3)) == 1 << 2
    assert puppet.do(3, 0) == 0
    assert puppet.read(3) == world.lib.cu.fg_hash_of(77)


def test_a_client_says_which_gpus_it_can_see(world: World) -> None:
    lib, client = world.lib, world.client(1, chunks=4)
    lib.tg.tg_attach(client)
    buffer = lib.ffi.new("uint8_t[]", wire.MAX_BYTES)
    size = lib.tg.tg_drain(client, buffer, wire.MAX_BYTES)
    kind, (hello,) = wire.decode(bytes(lib.ffi.buffer(buffer, size)))
    assert (kind, hello["version"]) == (Kind.HELLO, wire.VERSION)
    assert hello["uuid"].tolist() == [0xFA] * 15 + [1]
    seen = hello["visible_uuid"][: hello["visible"]].tolist()
    assert seen == [[0xFA] * 15 + [gpu] for gpu in range(world.gpus)]


def test_a_move_to_a_gpu_that_it_cannot_see_is_answered_and_the_connection_goes_on(
    world: World,
) -> None:
    puppet = Puppet(world, 0, 8)
    puppet.write(3, 77)
    assert puppet.do(3, 2) == 0
    for unknown in (9, world.gpus, 4000, -7):
        assert puppet.do(3, unknown) == errno.ENODEV
        assert puppet.place[3] == 2
    assert puppet.stats().moves_refused == 4
    assert puppet.do(3, 0) == 0
    assert puppet.read(3) == world.lib.cu.fg_hash_of(77)


def test_a_client_under_visible_devices_names_those_and_moves_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GPUs 2 and 0 are its ordinals 0 and 1; the daemon's numbers are those of all GPUs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    with World(gpu_bytes=64 * CHUNK) as world:
        lib, client = world.lib, world.client(0, chunks=4)
        lib.tg.tg_attach(client)
        buffer = lib.ffi.new("uint8_t[]", wire.MAX_BYTES)
        size = lib.tg.tg_drain(client, buffer, wire.MAX_BYTES)
        _, (hello,) = wire.decode(bytes(lib.ffi.buffer(buffer, size)))
        assert hello["uuid"][15] == 2
        assert [each[15] for each in hello["visible_uuid"][: hello["visible"]]] == [2, 0]
        puppet = Puppet(world, 0, 8)
        gpus = np.zeros(4, wire.GPU)
        for index in range(4):
            gpus["uuid"][index] = np.frombuffer(bytes([0xFA] * 15 + [index]), np.uint8)
        puppet.say(Kind.GPUS, gpus)
        puppet.say(Kind.LEASE, np.array([(gpu, 100, 0) for gpu in range(4)], wire.LEASE))
        puppet.write(3, 77)
        assert [puppet.do(3, gpu) for gpu in (1, 3)] == [errno.ENODEV] * 2
        assert puppet.place[3] == 2
        assert puppet.do(3, 0) == 0
        assert puppet.place[3] == 0
        assert world.lib.cu.fg_residency(puppet.address(3)) == 1 << 0
        assert puppet.read(3) == world.lib.cu.fg_hash_of(77)


def test_a_client_knows_why_it_was_refused(world: World) -> None:
    puppet = Puppet(world, 0, 4)
    message = wire.refused(errno.EACCES, "this user is not permitted")
    assert puppet.lib.tg.tg_feed(puppet.client, message, len(message)) == -errno.ECONNREFUSED
    assert puppet.stats().refused == errno.EACCES
    puppet.say(Kind.WELCOME, np.array([(wire.VERSION, 1, 100, 0)], wire.WELCOME))
    assert puppet.stats().refused == 0


def test_nothing_goes_to_a_peer_beyond_the_lease(world: World) -> None:
    puppet = Puppet(world, 0, 8, lease=2)
    for chunk in range(4):
        puppet.write(chunk, chunk)
    statuses = [puppet.do(chunk, 1) for chunk in range(4)]
    assert statuses == [0, 0, errno.EDQUOT, errno.EDQUOT]


def test_a_chunk_in_use_is_not_sent_away(world: World) -> None:
    puppet = Puppet(world, 0, 4)
    puppet.write(0, 1)
    puppet.use()
    world.lib.tg.tg_acquire(puppet.client, puppet.address(0), CHUNK)
    assert puppet.do(0, 1) == errno.EBUSY
    world.lib.tg.tg_release(puppet.client, puppet.address(0), CHUNK)
    assert puppet.do(0, 1) == 0


def test_neighbouring_chunks_that_go_the_same_way_go_in_one_call(world: World) -> None:
    """Whatever order they were told in; not across allocations, nor more than 32 MiB."""
    world.lib.cu.fg_set_manual(1)
    puppet = Puppet(world, 0, 40, inflight=1)
    for chunk in range(40):
        puppet.write(chunk, chunk)
    order = [7, 6, 8, 5, *range(9, 32)]
    puppet.order([(chunk, 1) for chunk in [*order, 35]])
    puppet.use()
    world.lib.tg.tg_pump(puppet.client)
    assert puppet.stats().inflight == 16
    puppet.settle()
    assert all(puppet.place[chunk] == 1 for chunk in [*order, 35])
    for chunk in order:
        assert puppet.read(chunk) == world.lib.cu.fg_hash_of(chunk)


def test_a_program_does_not_wait_for_a_call_that_waits_for_a_copy() -> None:
    """The call to the host is made without the client's lock; a free waits for it."""
    with World(gpu_bytes=64 * CHUNK) as world:
        puppet = Puppet(world, 0, 8)
        lib, sizes = world.lib, world.lib.ffi.new("size_t[2]")
        puppet.write(0, 1)
        lib.cu.fg_hold_prefetches(1)
        puppet.order([(0, HOST)])
        mover = threading.Thread(target=puppet.turn)
        mover.start()
        while not lib.cu.fg_prefetches_held():
            time.sleep(0.001)
        assert lib.tg.tg_acquire(puppet.client, puppet.address(1), CHUNK) == 0
        assert lib.tg.tg_mem_info(puppet.client, sizes, sizes + 1) == 0
        freed: list[int] = []
        free = threading.Thread(
            target=lambda: freed.append(lib.tg.tg_free(puppet.client, puppet.base))
        )
        free.start()
        free.join(0.05)
        assert not freed
        lib.cu.fg_hold_prefetches(0)
        free.join()
        mover.join()
        assert freed == [0]


def test_what_has_left_home_is_used_where_it_is_until_it_is_moved_again(world: World) -> None:
    for place in (HOST, 2):
        puppet = Puppet(world, 0, 4)
        for chunk in range(3):
            puppet.write(chunk, chunk)
        puppet.order([(c, place) for c in range(3)], int(StateFlag.IN_PLACE))
        puppet.settle()
        at = HOST_BIT if place == HOST else 1 << place
        faults = world.stats(0).faults
        puppet.write(1, 11)
        assert puppet.read(2) == world.lib.cu.fg_hash_of(2)
        assert [world.lib.cu.fg_residency(puppet.address(c)) for c in range(3)] == [at] * 3
        assert world.stats(0).faults == faults
        assert puppet.do(1, 0) == 0
        assert puppet.read(1) == world.lib.cu.fg_hash_of(11)
        assert world.lib.cu.fg_residency(puppet.address(1)) == 1


def test_a_use_in_mid_move_is_reported_at_home_and_keeps_the_bytes(world: World) -> None:
    world.lib.cu.fg_set_manual(1)
    puppet = Puppet(world, 0, 4)
    puppet.write(2, 9)
    puppet.order([(2, 3)])
    puppet.use()
    world.lib.tg.tg_pump(puppet.client)
    assert puppet.read(2) == world.lib.cu.fg_hash_of(9)
    puppet.settle()
    assert puppet.place[2] == 0
    assert puppet.read(2) == world.lib.cu.fg_hash_of(9)


def test_a_full_queue_answers_and_counts_what_it_drops(world: World) -> None:
    puppet = Puppet(world, 0, 4, inflight=1)
    puppet.write(0, 1)
    moves = [(0, 1)] * 8300
    puppet.order(moves)
    assert puppet.stats().moves_dropped == 8300 - 8192


def test_messages_that_are_none_are_refused(world: World) -> None:
    puppet = Puppet(world, 0, 4)
    feed = world.lib.tg.tg_feed
    assert feed(puppet.client, b"\x13\x00", 2) == -errno.EMSGSIZE
    bad = np.array([(99, 0, 8)], wire.HEADER).tobytes()
    assert feed(puppet.client, bad, len(bad)) == -errno.EPROTO
    move = np.array([(1 << 20, 1, 0, 1)], wire.MOVE)
    (message,) = wire.encode(Kind.MOVE, move)
    assert feed(puppet.client, message, len(message)) == -errno.EINVAL


def test_detaching_undoes_advice_and_leaves_the_bytes(world: World) -> None:
    puppet = Puppet(world, 0, 4)
    puppet.write(0, 3)
    puppet.do(0, 1)
    puppet.write(1, 4)
    puppet.do(1, 2, int(StateFlag.IN_PLACE))
    preferred = world.lib.ffi.new("int *")
    for expected in (2, -2):
        puppet.use()
        check(world.lib.cu.cuMemRangeGetAttribute(preferred, 4, 2, puppet.address(1), CHUNK))
        assert preferred[0] == expected
        world.lib.tg.tg_detach(puppet.client)
    assert puppet.read(0) == world.lib.cu.fg_hash_of(3)
    assert puppet.read(1) == world.lib.cu.fg_hash_of(4)
    assert world.lib.cu.fg_residency(puppet.address(1)) == 1


def test_the_free_memory_that_is_told_counts_what_was_borrowed_here(world: World) -> None:
    puppet = Puppet(world, 0, 4)
    rows = np.array([(0, 0, 7 * CHUNK)], wire.LEASE)
    free, total = world.lib.ffi.new("size_t *"), world.lib.ffi.new("size_t *")
    with world.on(0):
        out = world.lib.ffi.new("CUdeviceptr *")
        check(world.lib.cu.cuMemAlloc_v2(out, 20 * CHUNK))
    puppet.say(Kind.LEASE, rows)
    assert world.lib.tg.tg_mem_info(puppet.client, free, total) == 0
    assert (free[0], total[0]) == ((44 + 7) * CHUNK, 64 * CHUNK)


def test_every_byte_survives_random_moves() -> None:
    """Random commands and uses, faults of links and allocations; contents at every read."""
    rng = random.Random(11)
    with World(gpu_bytes=64 * CHUNK, manual=True) as world:
        puppet = Puppet(world, 0, 48, inflight=8)
        wrote: dict[int, int] = {}
        for chunk in range(48):
            wrote[chunk] = chunk
            puppet.write(chunk, chunk)
        done = 0
        while done < MOVES:
            _random_moves(rng, puppet)
            _random_uses(rng, puppet, wrote)
            if rng.random() < 0.02:
                _break_a_link(rng, puppet)
            done = int(puppet.stats().moves_done)
        puppet.settle()
        for chunk, value in wrote.items():
            assert puppet.read(chunk) == world.lib.cu.fg_hash_of(value)
        assert puppet.stats().moves_failed > 0


def _random_moves(rng: random.Random, puppet: Puppet) -> None:
    moves = [(rng.randrange(48), rng.choice([HOST, 0, 1, 2, 3])) for _ in range(64)]
    puppet.order(moves, rng.choice([0, int(StateFlag.URGENT), int(StateFlag.IN_PLACE)]))
    lib = puppet.lib
    for _ in range(rng.randrange(1, 12)):
        puppet.use()
        lib.tg.tg_pump(puppet.client)
        puppet.world.advance(rng.randrange(1000, 300_000))
    puppet.hear()


def _random_uses(rng: random.Random, puppet: Puppet, wrote: dict[int, int]) -> None:
    for _ in range(4):
        chunk = rng.randrange(48)
        if rng.random() < 0.5:
            assert puppet.read(chunk) == puppet.lib.cu.fg_hash_of(wrote[chunk])
        else:
            wrote[chunk] = rng.randrange(1 << 30)
            puppet.write(chunk, wrote[chunk])


def _break_a_link(rng: random.Random, puppet: Puppet) -> None:
    lib, peer = puppet.lib, rng.choice([1, 2, 3])
    moves = [(chunk, peer) for chunk in rng.sample(range(48), 16)]
    puppet.order(moves)
    puppet.use()
    lib.tg.tg_pump(puppet.client)
    puppet.world.advance(rng.randrange(1000, 200_000))
    lib.cu.fg_link_set(0, peer, 0)
    if rng.random() < 0.5:
        lib.cu.fg_fail_allocations(1)
    puppet.settle()
    lib.cu.fg_fail_allocations(0)
    lib.cu.fg_link_set(0, peer, 1)


def test_every_byte_survives_a_lender_that_takes_everything_at_once(world: World) -> None:
    puppet = Puppet(world, 0, 60)
    for chunk in range(60):
        puppet.write(chunk, chunk)
    puppet.order([(chunk, 1) for chunk in range(40)])
    puppet.use()
    for _ in range(30):
        world.lib.tg.tg_pump(puppet.client)
    lender = world.tenant()
    out = world.lib.ffi.new("CUdeviceptr *")
    with world.on(1, lender):
        check(world.lib.cu.cuMemAlloc_v2(out, 60 * CHUNK))
    puppet.settle()
    assert [puppet.read(c) for c in range(60)] == [world.lib.cu.fg_hash_of(c) for c in range(60)]


def test_a_lost_lender_costs_no_byte_that_has_left_it_and_lies_about_none(world: World) -> None:
    """What only the lost GPU had cannot be read; it is an error, never wrong bytes."""
    puppet = Puppet(world, 0, 8)
    for chunk in range(4):
        puppet.write(chunk, chunk)
        puppet.do(chunk, 1)
    for chunk in range(2):
        puppet.do(chunk, HOST)
    world.lib.cu.fg_device_lose(1)
    assert puppet.do(3, 2) != 0
    assert [puppet.read(c) for c in range(2)] == [world.lib.cu.fg_hash_of(c) for c in range(2)]
    for chunk in (2, 3):
        with pytest.raises(DriverError, match="719"):
            puppet.read(chunk)


def test_a_hint_moves_without_a_daemon(world: World) -> None:
    puppet = Puppet(world, 0, 4)
    puppet.write(0, 6)
    puppet.use()
    world.lib.tg.tg_detach(puppet.client)
    assert world.lib.tg.tg_hint(puppet.client, puppet.address(0), CHUNK, 2) == 0
    puppet.settle()
    assert world.lib.cu.fg_residency(puppet.address(0)) == HOST_BIT
    assert world.lib.tg.tg_hint(puppet.client, puppet.address(0), CHUNK, 1) == 0
    puppet.settle()
    assert world.lib.cu.fg_residency(puppet.address(0)) == 1


def test_a_failed_allocation_is_told_and_leaves_nothing(world: World) -> None:
    client: Any = world.client(0)
    out = world.lib.ffi.new("uint64_t *")
    world.lib.cu.fg_fail_allocations(1)
    assert world.lib.tg.tg_alloc(client, CHUNK, out) == -errno.ENOMEM
    assert world.lib.tg.tg_alloc(client, 3 * CHUNK, out) == 0
    assert world.lib.tg.tg_free(client, out[0] + CHUNK) == -errno.ENOENT
    assert world.lib.tg.tg_free(client, out[0]) == 0


def loan(puppet: Puppet, gpu: int = 2) -> tuple[int, int, int, int, int]:
    """(wanted, granted, held) in chunks, ns until it is due, status."""
    out = puppet.lib.ffi.new("struct tg_loan *")
    status = puppet.lib.tg.tg_loan_state(puppet.client, gpu, out)
    due = int(out.due_ns) - int(puppet.lib.cu.fg_now()) if out.due_ns else 0
    return out.wanted // CHUNK, out.granted // CHUNK, out.held // CHUNK, due, status


def lend(puppet: Puppet, chunks: int, due_ms: int = 0, gpu: int = 2) -> None:
    puppet.say(Kind.GRANT, np.array([(gpu, due_ms, chunks * CHUNK)], wire.GRANT))


def borrow(puppet: Puppet, chunks: int = 1, gpu: int = 2) -> int:
    """The address of a block of a loan, or a negative errno."""
    out = puppet.lib.ffi.new("uint64_t *")
    puppet.use()
    status = puppet.lib.tg.tg_loan_alloc(puppet.client, gpu, chunks * CHUNK - 1, out)
    return status or int(out[0])


def said(puppet: Puppet) -> list[tuple[int, int, int]]:
    """What the client says of its loans: (gpu, wanted, held) in chunks."""
    buffer, found = puppet.lib.ffi.new("uint8_t[]", wire.MAX_BYTES), []
    puppet.use()
    while (size := puppet.lib.tg.tg_drain(puppet.client, buffer, wire.MAX_BYTES)) > 0:
        kind, records = wire.decode(bytes(puppet.lib.ffi.buffer(buffer, size)))
        if kind is Kind.LOAN:
            found += [(r[0], r[2] // CHUNK, r[3] // CHUNK) for r in records.tolist()]
    return found


def test_a_block_of_a_loan_is_on_the_neighbour_and_used_there(world: World) -> None:
    puppet = Puppet(world, 0, 8)
    tg = puppet.lib.tg
    assert tg.tg_loan_want(puppet.client, 2, 40 * CHUNK) == 0
    assert said(puppet) == [(2, 40, 0)]
    assert borrow(puppet) == -errno.ENOSPC
    lend(puppet, 3)
    at = borrow(puppet, 2)
    assert said(puppet) == [(2, 40, 2)]
    assert loan(puppet) == (40, 3, 2, 0, 0)
    assert borrow(puppet, 2) == -errno.ENOSPC
    assert loan(puppet)[2] == 2
    world.kernel(0, at, write=5)
    assert world.kernel(0, at) == world.lib.cu.fg_hash_of(5)
    assert world.lib.cu.fg_residency(at) == 1 << 2
    assert tg.tg_loan_free(puppet.client, at + CHUNK) == -errno.ENOENT
    assert tg.tg_loan_free(puppet.client, at) == 0
    assert (loan(puppet)[2], said(puppet)) == (0, [(2, 40, 0)])
    for wrong in (-1, 0, world.gpus):
        assert borrow(puppet, gpu=wrong) == -errno.EINVAL


def test_a_grant_that_falls_wakes_the_program_and_says_when_it_is_due(world: World) -> None:
    world.lib.cu.fg_set_manual(1)
    puppet = Puppet(world, 0, 8)
    fd = puppet.lib.tg.tg_loan_fd(puppet.client)
    lend(puppet, 8)
    assert os.read(fd, 8)
    blocks = [borrow(puppet) for _ in range(8)]
    lend(puppet, 6, 40)
    assert os.read(fd, 8)
    world.advance(10_000_000)
    lend(puppet, 3, 40)
    assert loan(puppet)[1:3] == (3, 8)
    assert loan(puppet)[3] == pytest.approx(30e6, abs=1e6)
    for at in blocks[:2]:
        assert puppet.lib.tg.tg_loan_free(puppet.client, at) == 0
    assert loan(puppet)[3] == pytest.approx(40e6, abs=1e6)
    lend(puppet, 6)
    assert loan(puppet)[3] == 0


def test_what_is_not_given_back_in_time_keeps_its_bytes_and_loses_its_place(world: World) -> None:
    world.lib.cu.fg_set_manual(1)
    puppet = Puppet(world, 0, 8)
    lend(puppet, 8)
    blocks = [borrow(puppet) for _ in range(8)]
    for value, at in enumerate(blocks):
        world.kernel(0, at, write=value)
    lend(puppet, 5, 40)
    for ms, unplaced in ((39, 0), (2, 3)):
        world.advance(ms * 1_000_000)
        puppet.turn()
        found = world.lib.ffi.new("int *")
        places = []
        for at in blocks:
            world.lib.cu.cuMemRangeGetAttribute(found, 4, 2, at, CHUNK)
            places.append(int(found[0]))
        assert places == [-2] * unplaced + [2] * (8 - unplaced)
    for value, at in enumerate(blocks):
        assert world.kernel(0, at) == world.lib.cu.fg_hash_of(value)
        assert world.lib.cu.fg_residency(at) == 1 << (0 if value < 3 else 2)


def test_without_a_daemon_nothing_is_granted_and_what_is_held_is_due(world: World) -> None:
    world.lib.cu.fg_set_manual(1)
    puppet = Puppet(world, 0, 8)
    tg = puppet.lib.tg
    tg.tg_loan_want(puppet.client, 2, 9 * CHUNK)
    lend(puppet, 8)
    at = borrow(puppet, 4)
    puppet.use()
    tg.tg_detach(puppet.client)
    assert loan(puppet)[:3] == (9, 0, 4)
    assert loan(puppet)[3:] == (pytest.approx(40e6, abs=1e6), -errno.ENOTCONN)
    assert borrow(puppet) == -errno.ENOTCONN
    assert tg.tg_loan_want(puppet.client, 2, 7 * CHUNK) == -errno.ENOTCONN
    assert tg.tg_loan_free(puppet.client, at) == 0
    assert loan(puppet)[2:] == (0, 0, -errno.ENOTCONN)
    tg.tg_attach(puppet.client)
    gpus = np.zeros(world.gpus, wire.GPU)
    for index in range(world.gpus):
        gpus["uuid"][index] = np.frombuffer(bytes([0xFA] * 15 + [index]), np.uint8)
    puppet.say(Kind.GPUS, gpus)
    assert said(puppet) == [(2, 7, 0)]
