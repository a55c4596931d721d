# SPDX-License-Identifier: Apache-2.0
"""What the client library reports of launches, which tell nothing but addresses."""

from __future__ import annotations

from typing import Any

import pytest
from puppet import Puppet
from standin import CHUNK, World

BURST = 100
"""Launches, each with an event of its own: more than the library has events."""


def launch(puppet: Puppet, count: int, stream: Any = None, after_ns: int = 200_000) -> int:
    """Launch kernels on all of the client's memory, 200 us apart; the uses reported by now."""
    world, address = puppet.world, puppet.lib.ffi.new("uint64_t[1]", [puppet.base])
    for _ in range(count):
        world.advance(after_ns)
        with world.on(puppet.gpu):
            status = puppet.lib.tg.tg_launched(
                puppet.client, address, 1, stream or puppet.lib.ffi.NULL
            )
        assert status == 0
    return int(puppet.stats().uses)


def streams(puppet: Puppet, count: int) -> list[Any]:
    """So many streams."""
    out = puppet.lib.ffi.new("void *[]", count)
    with puppet.world.on(puppet.gpu):
        for i in range(count):
            assert puppet.lib.cu.cuStreamCreate(out + i, 1) == 0
    return list(out)


def leave_events(puppet: Puppet, count: int) -> None:
    """The driver makes the client so many events, and refuses more: others have them."""
    one, made, cu = puppet.lib.ffi.new("void *[1]"), [], puppet.lib.cu
    with puppet.world.on(puppet.gpu):
        while cu.cuEventCreate(one, 2) == 0:
            made.append(one[0])
        for each in made[:count]:
            assert cu.cuEventDestroy_v2(each) == 0


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


@pytest.mark.parametrize("events", [3, 10, None])
def test_launches_of_many_streams_within_a_millisecond_are_reported_when_they_have_run(
    events: int | None,
) -> None:
    """All events are used up behind a launch that has none yet and whose stream rests.

    `events`: so many the driver makes; None: more than the library has use for.
    """
    with World(gpu_bytes=64 * CHUNK, manual=True) as world:
        puppet = Puppet(world, 0, 8)
        if events is not None:
            leave_events(puppet, events)
        resting, *others = streams(puppet, 30)
        launch(puppet, 1, resting)
        puppet.turn()
        launch(puppet, 1, resting, 1000)
        for _ in range(4):
            for stream in others:
                launch(puppet, 1, stream, 110_000 // len(others))
        puppet.turn()
        assert events is not None or puppet.stats().uses >= 8 * 64
        for turn in range(2):
            launch(puppet, 1 - turn, others[0], 2_000_000)
            puppet.turn()
        assert puppet.stats().uses == 8 * (2 + 4 * len(others) + 1)
