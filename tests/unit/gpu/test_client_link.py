# SPDX-License-Identifier: Apache-2.0
"""What the client library and the daemon say to each other."""

from __future__ import annotations

import errno

import numpy as np
import pytest
from puppet import Puppet, greeting
from standin import CHUNK, World, check

from tierd_gpu import wire
from tierd_gpu.wire import Kind, StateFlag


def test_a_client_says_which_gpus_it_can_see(world: World) -> None:
    hello = greeting(world, world.client(1, chunks=4))
    assert hello["version"] == wire.VERSION
    assert hello["uuid"].tolist() == [0xFA] * 15 + [1]
    seen = hello["visible_uuid"][: hello["visible"]].tolist()
    assert seen == [[0xFA] * 15 + [gpu] for gpu in range(world.gpus)]


def test_a_move_to_a_gpu_that_it_cannot_see_is_answered_and_the_connection_goes_on(
    world: World,
) -> None:
    puppet = Puppet(world, 0, 8)
    puppet.write(3, 77)
    assert puppet.do(3, 2) == 0
    assert world.lib.cu.fg_residency(puppet.address(3)) == 1 << 2
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
        hello = greeting(world, world.client(0, chunks=4))
        assert hello["uuid"][15] == 2
        assert [each[15] for each in hello["visible_uuid"][: hello["visible"]]] == [2, 0]
        puppet = Puppet(world, 0, 8)
        puppet.number_gpus(4)
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
