# SPDX-License-Identifier: Apache-2.0
"""What the client library reports of launches, which tell nothing but addresses."""

from __future__ import annotations

from puppet import Puppet
from standin import CHUNK, World

BURST = 100
"""Launches, each with an event of its own: more than the library has events."""


def launch(puppet: Puppet, count: int) -> int:
    """Launch kernels on all of the client's memory, 200 us apart; the uses reported by now."""
    world, address = puppet.world, puppet.lib.ffi.new("uint64_t[1]", [puppet.base])
    for _ in range(count):
        world.advance(200_000)
        with world.on(puppet.gpu):
            status = puppet.lib.tg.tg_launched(puppet.client, address, 1, puppet.lib.ffi.NULL)
        assert status == 0
    return int(puppet.stats().uses)


def test_a_launch_is_a_use_of_what_its_address_begins_once_it_has_run() -> None:
    with World(gpu_bytes=64 * CHUNK, manual=True) as world:
        puppet = Puppet(world, 0, 8)
        assert launch(puppet, 1) == 0
        puppet.turn()
        assert puppet.stats().uses == 8


def test_a_client_whose_thread_had_no_turn_for_long_goes_on_to_report_launches() -> None:
    with World(gpu_bytes=64 * CHUNK, manual=True) as world:
        puppet = Puppet(world, 0, 8)
        for _ in range(3):
            before = launch(puppet, BURST)
            puppet.turn()
            assert puppet.stats().uses > before
        for _ in range(20):
            before = launch(puppet, 1)
            puppet.turn()
            assert puppet.stats().uses > before
