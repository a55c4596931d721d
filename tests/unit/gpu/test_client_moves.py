# SPDX-License-Identifier: Apache-2.0
"""What the client library on the stand-in moves, and when it does not."""

from __future__ import annotations

import errno
import threading
import time
from typing import Any

from puppet import Puppet
from standin import CHUNK, HOST_BIT, World

from tierd_gpu.links import HOST
from tierd_gpu.wire import StateFlag


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
