# SPDX-License-Identifier: Apache-2.0
"""The promoter where room, quota or budget are short."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fakering import FakeRing
from promoter_world import FAST, MS, PAGE, SETTINGS, SLOW, S, World, moves_of_a_tick

from tierd.core.migration import Direction, Reason


def test_the_quota_holds_in_every_second(world: World) -> None:
    quota = 400 * PAGE
    world.settings = replace(SETTINGS, quota_bytes_per_s=quota, patience_s=60.0)
    world.after(range(4000))
    world.report(range(4000), count=100)
    world.run(500)
    times, pages = (np.zeros(65536, np.uint64) for _ in range(2))
    ffi = world.native.ffi
    n = world.lib.fake_log(
        ffi.from_buffer("uint64_t[]", times), ffi.from_buffer("uint64_t[]", pages)
    )
    times = times[:n].astype(np.int64)
    assert 1500 < n <= 400 * 5
    in_second = np.searchsorted(times, times + S) - np.arange(n)
    assert in_second.max() <= quota // PAGE
    told = world.counter("most_in_a_second") // PAGE
    assert 0.9 * in_second.max() <= told <= quota // PAGE
    assert world.counter("pending") == 4000 - n


@pytest.mark.parametrize("order", [0, 9])
def test_what_ticks_promote_comes_off_the_quota(world: World, order: int) -> None:
    """In the second after them the promoter has what they left, and no more."""
    pages = 300 if order == 0 else 512
    world.settings = replace(SETTINGS, quota_bytes_per_s=600 * PAGE, patience_s=60.0)
    promoter = world.after(range(4000))
    assert promoter.quota_left() == 600 * PAGE
    promoter.note(moves_of_a_tick(range(pages >> order), Direction.PROMOTE, order=order), world.now)
    promoter.note(moves_of_a_tick(range(100), Direction.DEMOTE), world.now)
    assert promoter.quota_left() == (600 - pages) * PAGE
    world.report(range(1000, 4000), count=100)
    world.run(99)
    assert world.counter("promoted") <= 600 - pages
    assert world.counter("most_in_a_second") <= 600 * PAGE
    world.run(200)
    assert world.counter("promoted") > 600
    assert world.counter("most_in_a_second") <= 600 * PAGE


@pytest.mark.parametrize("into_step_ms", range(0, 10, 3))
@pytest.mark.parametrize("later_ms", [1, 500, 991, 999])
def test_what_is_left_of_the_quota_counts_all_of_the_last_second(
    world: World, into_step_ms: int, later_ms: int
) -> None:
    """Wherever in a step of the account it began: a tick may promote so much at once."""
    world.settings = replace(SETTINGS, quota_bytes_per_s=1000 * PAGE)
    promoter = world.after(range(100))
    world.report(range(100))
    world.lib.fake_pass(-world.now % (10 * MS) + into_step_ms * MS)
    assert promoter.step() == 64
    begun = world.now
    world.lib.fake_pass(later_ms * MS)
    assert promoter.quota_left() == 936 * PAGE
    world.lib.fake_pass(begun + S + 10 * MS - world.now)
    assert promoter.quota_left() == 1000 * PAGE


def test_who_waits_too_long_for_the_quota_is_told_so(world: World) -> None:
    world.settings = replace(SETTINGS, quota_bytes_per_s=128 * PAGE)
    world.after(range(1000))
    world.report(range(1000), count=100)
    moved = world.run(120)
    world.steer()
    moved += world.run(30)
    assert 128 <= moved <= 256
    assert world.held(Reason.OVER_QUOTA) == 1000 - moved
    assert world.counter("pending") == 0


def test_without_room_the_coldest_makes_way_for_the_hotter(world: World) -> None:
    world.lib.fake_room(FAST, 0)
    world.slow(range(10))
    world.victims = [(100 + page, 0.0) for page in range(4)] + [(104, 30.0), (105, 30.0)]
    world.build()
    world.lib.fake_pass(5 * S)
    world.report(range(10), count=60)
    # 60 accesses in 5 s are capped at 7 a second, heat 49; over 30 that does not win.
    assert world.run() == 8
    assert sum(world.node(page) == FAST for page in range(10)) == 4
    assert [world.node(100 + page) for page in range(6)] == [SLOW] * 4 + [FAST] * 2
    assert world.held(Reason.NOT_HOTTER) == 6


def test_without_room_and_victims_pages_wait_for_the_next_orders(world: World) -> None:
    world.lib.fake_room(FAST, 0)
    world.after(range(10))
    world.report(range(10))
    assert world.run(10) == 0
    assert world.counter("pending") == 10
    world.victims = [(100 + page, 0.0) for page in range(20)]
    world.steer()
    world.run(2)
    assert all(world.node(page) == FAST for page in range(10))
    assert world.counter("demoted") >= 10


def test_the_low_watermark_is_never_passed(world: World) -> None:
    world.short(120, low=100)
    world.after(range(50))
    world.report(range(50))
    assert world.run(5) == 20
    assert world.lib.fake_room_left(FAST) == 100


def test_a_victim_that_cannot_leave_lets_nobody_in(world: World) -> None:
    world.short(10, low=10)
    world.slow(range(4))
    for page in range(100, 104):
        world.lib.fake_page(page, FAST, 1000, 0)
    world.victims = [(page, 0.0) for page in range(100, 104)]
    world.build()
    world.lib.fake_pass(5 * S)
    world.report(range(4), count=60)
    assert world.run() == 0
    assert world.counter("pending") == 4
    assert world.lib.fake_room_left(FAST) == 10


def test_room_is_made_ahead_of_the_next_interval(world: World) -> None:
    world.lib.fake_room(FAST, 0)
    world.slow(range(2000))
    world.victims = [(4000 + page, 0.0) for page in range(3000)]
    world.build()
    world.lib.fake_pass(S)
    world.stream()
    left = int(world.lib.fake_room_left(FAST))
    assert 0 < left <= 100
    assert world.counter("promoted") == 1000
    assert world.counter("demoted") == 1000 + left


def test_free_pages_that_a_cpu_holds_are_room(world: World) -> None:
    world.short(30, held=30)
    world.kept = 30 * PAGE
    world.after(range(50))
    world.report(range(50))
    assert world.run(5) == 30


def test_room_that_somebody_else_took_is_none(world: World) -> None:
    world.short(1030, held=30, low=100)
    world.kept = 30 * PAGE
    world.slow(range(50))
    world.build()
    world.lib.fake_room(FAST, 90)
    world.lib.fake_pass(S)
    world.report(range(50))
    assert world.run(5) == 0


def test_the_kernel_is_not_asked_at_each_interval_and_room_is_kept_all_the_same(
    world: World,
) -> None:
    world.short(120, low=100)
    world.slow(range(2000))
    world.victims = [(4000 + page, 0.0) for page in range(3000)]
    world.build()
    world.lib.fake_pass(S)
    before = int(world.lib.fake_asked())
    world.stream(intervals=20, each=50)
    # Twenty intervals of 10 ms and what moving takes, two nodes, one question in 50 ms.
    most = 2 * (1 + (world.now - world.epoch_ns - S) // (50 * MS))
    assert 2 <= world.lib.fake_asked() - before <= most
    assert world.counter("promoted") == 1000
    assert world.lib.fake_room_left(FAST) >= 100


def test_room_that_a_cpu_holds_is_not_made_again(world: World) -> None:
    """What demotion frees stays out of MemFree: as much is demoted as is promoted."""
    world.short(0, held=2000)
    world.slow(range(2000))
    world.victims = [(4000 + page, 0.0) for page in range(3000)]
    world.build()
    world.lib.fake_pass(S)
    world.stream()
    left = int(world.lib.fake_room_left(FAST))
    assert left <= 100
    assert world.counter("promoted") == 1000
    assert world.counter("demoted") == 1000 + left


def test_the_budget_of_the_mover_holds_for_the_promoter_too(world: World) -> None:
    """The shared bucket: 20 MiB a second, whatever the promoter's quota allows."""
    world.after(range(16000), rate=20 << 20)
    world.ring = FakeRing(16384)
    assert world.made is not None
    world.made.attach(world.ring.memory)
    world.report(range(16000), count=100)
    start = world.now
    world.run(30)
    seconds = (world.now - start) / S
    moved = world.counter("promoted") * PAGE
    assert 0.5 * seconds * (20 << 20) < moved <= seconds * (20 << 20) + (2 << 20)
    assert world.counter("longest_ns") <= 110 * MS


def test_more_than_can_be_looked_at_stays_in_the_ring(world: World) -> None:
    world.slow(range(16000))
    world.ring = FakeRing(65536)
    world.build()
    world.lib.fake_pass(S)
    for _ in range(4):
        world.report(range(10000))
    world.run()
    assert world.ring.unread == 40000 - 32768
