# SPDX-License-Identifier: Apache-2.0
"""Who waits to be promoted, and in which order they leave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fake_kernel import FIRST_PAGE
from fakering import FakeRing
from promoter_world import FAST, PAGE, SETTINGS, SLOW, S, World, moves_of_a_tick

from tierd.core.migration import Direction, Reason


def waits(world: World, pages: range, *, age_s: int = 5) -> None:
    """A promoter without any room, and a rate that tells these pages apart."""
    world.settings = replace(SETTINGS, rate_cap=1e9, patience_s=60.0)
    world.lib.fake_room(FAST, 0)
    world.after(pages, age_s)


def promoted(world: World, pages: range) -> set[int]:
    return {page for page in pages if world.node(page) == FAST}


def test_the_hottest_of_many_that_wait_leave_first(world: World) -> None:
    pages = range(3000)
    waits(world, pages)
    count = np.random.default_rng(1).permutation(3000) + 100
    rate = np.zeros(3000)
    for part in np.array_split(np.random.default_rng(2).permutation(3000), 7):
        rate[part] = count[part] / (world.now - world.epoch_ns)
        world.report(part, count=count[part])
        assert world.run() == 0
    assert world.counter("pending") == 3000
    order = np.argsort(-rate)
    done: set[int] = set()
    for room in (1, 40, 500, 700):
        world.lib.fake_room(FAST, room)
        world.steer()
        assert world.run(20) == room
        done |= set(order[len(done) : len(done) + room].tolist())
        assert promoted(world, pages) == done
    assert world.counter("pending") == 3000 - len(done)


def test_a_page_that_waits_counts_with_its_hottest_report(world: World) -> None:
    pages = range(10)
    waits(world, pages)
    world.report(pages, count=np.arange(10) + 100)
    world.run()
    world.report([3, 4], count=np.array([1000, 50]))
    world.run()
    assert world.counter("pending") == 10
    world.lib.fake_room(FAST, 2)
    world.steer()
    world.run(2)
    assert promoted(world, pages) == {3, 9}


def test_a_page_that_a_tick_promoted_waits_no_more(world: World) -> None:
    pages = range(10)
    waits(world, pages)
    world.report(pages)
    world.run()
    assert world.made is not None
    world.made.note(moves_of_a_tick(range(4), Direction.PROMOTE), world.now)
    world.made.note(moves_of_a_tick(range(6, 8), Direction.DEMOTE), world.now)
    assert world.counter("pending") == 6
    assert world.counter("stale") == 4
    world.lib.fake_room(FAST, 10)
    world.steer()
    world.run(2)
    assert promoted(world, pages) == set(range(4, 10))


def test_the_coldest_of_too_many_are_given_up_and_told(world: World) -> None:
    pages = range(32000)
    world.ring = FakeRing(32768)
    waits(world, pages)
    world.report(pages, count=np.arange(32000) + 100)
    world.run()
    assert world.counter("pending") == 16384
    assert world.held(Reason.OVERFLOW) == 32000 - 16384
    world.lib.fake_room(FAST, 20)
    world.steer()
    world.run(2)
    assert promoted(world, pages) == set(range(32000 - 20, 32000))


@pytest.mark.parametrize("seed", range(3))
def test_reports_room_and_ticks_in_any_order_lose_no_page(world: World, seed: int) -> None:
    """Each page reported is promoted, waits, or was told why not."""
    random = np.random.default_rng(seed)
    pages = range(2000)
    waits(world, pages)
    reported: set[int] = set()
    for _ in range(60):
        some = random.choice(2000, random.integers(1, 200), replace=False)
        some = np.array([page for page in some if world.node(page) == SLOW], int)
        world.report(some, count=random.integers(100, 10**6, len(some)))
        reported |= set(some.tolist())
        if random.random() < 0.5:
            world.lib.fake_room(FAST, int(random.integers(0, 60)))
            world.steer()
        world.run()
    assert len(promoted(world, pages)) + world.counter("pending") == len(reported)
    world.lib.fake_room(FAST, 2000 * PAGE)
    world.steer()
    world.run(60)
    assert promoted(world, pages) == reported
    assert world.counter("pending") == 0


def test_those_without_a_place_are_looked_at_twenty_times_a_second(world: World) -> None:
    pages = range(10)
    waits(world, pages)
    world.report(pages)
    assert world.run() == 0
    world.lib.fake_room(FAST, 10)
    assert world.run(4) == 0
    assert world.run(2) == 10
    assert promoted(world, pages) == set(pages)


def test_new_reports_do_not_end_the_rest_and_new_victims_do(world: World) -> None:
    pages = range(20)
    waits(world, pages)
    world.report(range(10))
    assert world.run() == 0
    world.lib.fake_room(FAST, 20)
    world.report(range(10, 20))
    assert world.run() == 0
    assert world.counter("pending") == 20
    world.steer()
    assert world.run() == 20


def test_more_reports_than_can_wait_in_a_rest_stay_in_the_ring(world: World) -> None:
    world.ring = FakeRing(65536)
    waits(world, range(40000))
    world.report(range(10))
    assert world.run() == 0
    world.report(range(10, 40000), count=100)
    assert world.run() == 0
    assert world.counter("pending") == 32768
    assert world.ring.unread == 40000 - 32768
    world.run(30)
    assert world.ring.unread == 0
    assert world.counter("pending") + world.held(Reason.OVERFLOW) == 40000


def test_many_that_are_refused_are_told_their_bars_and_may_come_again(world: World) -> None:
    pages = range(3000)
    world.settings = replace(SETTINGS, rate_cap=1e9)
    world.lib.fake_room(FAST, 0)
    world.victims = [(4000, 10_000.0)]
    promoter = world.after(pages, 5)
    world.report(pages, count=np.random.default_rng(1).integers(10, 300, 3000))
    assert world.run() == 0
    assert world.held(Reason.NOT_HOTTER) == 3000
    assert world.counter("pending") == 0
    told = promoter.take()
    assert sorted(told["page"] - FIRST_PAGE) == list(pages)
    assert (told["bar"] > told["heat"]).all()
    # Each by what is known of it: the less sure, the higher.
    assert (np.diff(told["bar"][np.argsort(told["heat"])]) >= 0).all()
    world.lib.fake_room(FAST, 3000)
    world.steer()
    for part in np.array_split(np.random.default_rng(2).permutation(3000), 7):
        world.report(part)
        world.run()
    world.run(30)
    assert promoted(world, pages) == set(pages)


def test_it_tells_how_many_victims_are_left(world: World) -> None:
    world.settings = replace(SETTINGS, rate_cap=1e9)
    world.lib.fake_room(FAST, 0)
    for page in range(100, 104):
        world.lib.fake_page(page, FAST, 0, 0)
    world.victims = [(page, 0.0) for page in range(100, 104)]
    world.after(range(3), 5)
    assert world.counter("victims") == 4
    world.report(range(3))
    assert world.run() == 6
    assert world.counter("victims") == 1


def test_those_who_wait_too_long_are_told_what_for(world: World) -> None:
    world.settings = replace(SETTINGS, patience_s=1.0)
    world.lib.fake_room(FAST, 0)
    world.after(range(10))
    world.report(range(10))
    world.run(90)
    world.steer()
    world.run(20)
    assert world.counter("pending") == 10
    world.steer()
    world.run(20)
    assert world.counter("pending") == 0
    assert world.held(Reason.NO_ROOM) == 10


@pytest.mark.parametrize("late_s", [2, 10])
def test_orders_that_come_late_cost_nobody_his_place(world: World, late_s: int) -> None:
    """Victims ran out, and who gives new ones ends the epochs: nobody is reported again."""
    world.settings = replace(SETTINGS, patience_s=1.0)
    world.lib.fake_room(FAST, 0)
    world.victims = [(1000 + page, 0.0) for page in range(100)]
    world.after(range(400))
    world.report(range(400))
    assert world.run(100 * late_s) == 200
    assert world.counter("pending") == 300
    world.victims = [(2000 + page, 0.0) for page in range(400)]
    world.steer()
    world.run(5)
    assert promoted(world, range(400)) == set(range(400))
    assert sum(world.made.stats().held) == 0


@pytest.mark.parametrize("seed", range(4))
def test_whatever_runs_short_each_page_is_accounted_for(world: World, seed: int) -> None:
    """Room, victims, quota and patience: promoted, waiting, or told why not, and never twice."""
    random = np.random.default_rng(seed)
    world.settings = replace(
        SETTINGS, quota_bytes_per_s=int(random.integers(200, 4000)) * PAGE, patience_s=0.5
    )
    world.low = 20
    world.short(60, low=20)
    world.slow(range(6000))
    promoter = world.build()
    world.lib.fake_pass(S)
    reported: list[int] = []
    victims = iter(range(8000, 16000))
    for tick in range(40):
        fresh = range(150 * tick, 150 * (tick + 1))
        world.report(fresh, count=random.integers(1, 200, 150))
        reported += fresh
        if random.random() < 0.7:
            wanted = int(random.integers(0, 300))
            heat = np.sort(random.uniform(0, 12, wanted))
            world.victims = [(next(victims), each) for each in heat.tolist()]
            world.steer()
        if random.random() < 0.2:
            with promoter.held():
                world.run(2)
        world.run(int(random.integers(1, 20)))
    told = promoter.take()
    up = told[told["direction"] == Direction.PROMOTE]
    ended = (up["page"] - FIRST_PAGE).tolist()
    assert len(set(ended)) == len(ended)
    assert world.counter("pending") == len(reported) - len(ended)
    assert {page for page in reported if world.node(page) == FAST} <= set(ended)
    assert 0 < world.counter("promoted") < len(ended)
    # And once nothing is short, who still waits comes in.
    world.lib.fake_room(FAST, 10000)
    world.steer()
    world.run(600)
    assert world.counter("pending") == 0
