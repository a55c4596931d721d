# SPDX-License-Identifier: Apache-2.0
"""The client library on the stand-in never loses a byte."""

from __future__ import annotations

import os
import random

import pytest
from puppet import Puppet
from standin import CHUNK, DriverError, World, check

from tierd_gpu.links import HOST
from tierd_gpu.wire import StateFlag

MOVES = int(os.environ.get("TIERD_GPU_MOVES", "20000"))
"""Random moves; the long run (docs/operate/gpu.md) makes a million."""


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
