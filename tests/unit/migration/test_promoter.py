# SPDX-License-Identifier: Apache-2.0
"""The promoter on a fake kernel with a clock of its own: what is promoted, and what is not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import fake_kernel
import numpy as np
import pytest
from fake_kernel import FIRST_PAGE
from fakering import hot_records
from promoter_world import FAST, MS, SETTINGS, SLOW, S, World, moves_of_a_tick

from tierd.core import bounds
from tierd.core.errors import UnavailableError
from tierd.core.migration import Direction, Fate, Reason
from tierd.migration.fastpath_update import OUTCOME, SPAN, VICTIM, Orders, Way, join
from tierd.sources.kmod import uapi


def test_reported_pages_are_promoted_within_an_interval(world: World) -> None:
    promoter = world.after(range(100))
    world.report(range(50))
    assert world.run() == 50
    assert [world.node(page) for page in range(100)] == [FAST] * 50 + [SLOW] * 50
    told = promoter.take()
    assert len(told) == 50
    assert set(told["fate"]) == {Fate.MOVED}
    assert set(told["direction"]) == {Direction.PROMOTE}
    assert set(told["reason"]) == {Reason.HOTTER_THAN_THE_COLDEST}
    assert (told["heat"] > told["bar"]).all()
    assert world.ring.unread == 0
    assert len(promoter.take()) == 0


def test_results_of_many_calls_are_joined(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "OUTCOMES_AT_ONCE", 16)
    promoter = world.after(range(100))
    taken = []
    for first in (0, 50):
        world.report(range(first, first + 50))
        assert world.run() == 50
        taken.append(promoter.take())
    assert [len(part) for part in taken] == [50, 50]
    pages = np.arange(100) + FIRST_PAGE
    assert sorted(join(taken)["page"].tolist()) == pages.tolist()


def test_the_mover_keeps_the_calls_of_the_fast_path(world: World) -> None:
    world.after(range(100))
    world.report(range(50))
    assert world.run() == 50
    ffi, lib = world.native.ffi, world.native.lib
    calls = np.empty((lib.TIERD_MOVE_CALLS, 2), np.int64)
    buffer = ffi.from_buffer("struct tierd_move_call[]", calls)
    n = lib.tierd_mover_take_calls(world.mover.handle, buffer, ffi.new("uint64_t *"))
    assert calls[:n, 1].sum() == 50
    assert calls[:n, 0].max() == world.counter("longest_call_ns")


def test_a_page_reported_twice_is_moved_once(world: World) -> None:
    promoter = world.after(range(10))
    world.report([3, 3, 3])
    assert world.run() == 1
    world.report([3])
    assert world.run() == 0
    assert len(promoter.take()) == 1
    assert world.counter("stale") == 1


def test_what_may_not_be_moved_is_held_back_and_told(world: World) -> None:
    world.slow(range(100))
    world.spans = [(FIRST_PAGE + 10, FIRST_PAGE + 20), (FIRST_PAGE + 30, FIRST_PAGE + 40)]
    promoter = world.build()
    world.lib.fake_pass(S)
    world.report(range(50))
    assert world.run() == 20
    told = promoter.take()
    kept = told[told["fate"] == Fate.NOT_TRIED]
    assert set(kept["reason"]) == {Reason.NOT_MOVABLE}
    assert world.held(Reason.NOT_MOVABLE) == len(kept) == 30
    moved = sorted(told["page"][told["fate"] == Fate.MOVED] - FIRST_PAGE)
    assert moved == [*range(10, 20), *range(30, 40)]


def test_part_of_a_huge_folio_is_left_to_the_tick(world: World) -> None:
    world.after(range(10))
    world.report(range(10), order=9)
    assert world.run() == 0
    assert world.held(Reason.PART_OF_HUGE) == 10


def test_a_page_on_a_node_that_nothing_is_promoted_from_is_counted_only(world: World) -> None:
    world.build()
    world.lib.fake_pass(S)
    world.report(range(10), node=FAST)
    world.report(range(10), node=3)
    world.report(range(10), node=-1)
    assert world.run() == 0
    assert world.counter("not_slow") == 30


@pytest.mark.parametrize(("count", "moves"), [(6, 0), (7, 1), (1000, 1)])
def test_too_few_accesses_are_no_reason_to_move(world: World, count: int, moves: int) -> None:
    """confidence² = 6.25 accesses, whatever their rate."""
    world.after(range(1), seconds=4)
    world.report([0], count=count)
    assert world.run() == moves
    assert world.held(Reason.NOT_HOTTER) == 1 - moves


@pytest.mark.parametrize(("count", "moves"), [(100, 0), (140, 1)])
def test_what_does_not_pay_for_its_moves_stays(world: World, count: int, moves: int) -> None:
    """32 requests a second, for four seconds; what a request is worth has no say in it."""
    world.settings = replace(SETTINGS, least_rate=32.0, visits=1 / 8)
    world.after(range(1), seconds=4)
    world.report([0], count=count)
    assert world.run() == moves
    assert world.held(Reason.NOT_WORTH) == 1 - moves


@pytest.mark.parametrize(("count", "moves"), [(6, 0), (7, 1)])
def test_what_is_counted_is_as_certain_whatever_a_request_is_worth(
    world: World, count: int, moves: int
) -> None:
    """As in the test before: free room is filled, and the unused replaced, as soon."""
    world.settings = replace(SETTINGS, visits=1 / 8)
    world.after(range(1), seconds=4)
    world.report([0], count=count)
    assert world.run() == moves
    assert world.held(Reason.NOT_HOTTER) == 1 - moves


@pytest.mark.parametrize(
    ("visits", "count", "moves"), [(1.0, 60, 0), (1.0, 100, 1), (1 / 8, 400, 0), (1 / 8, 600, 1)]
)
def test_requests_are_not_visits(world: World, visits: float, count: int, moves: int) -> None:
    """A program that passes a page makes a request for each of its lines; a page that is used
    is pushed out by what is used more, not by what is asked for in more pieces."""
    world.settings = replace(SETTINGS, visits=visits, rate_cap=1e6)
    world.lib.fake_room(FAST, 0)
    world.lib.fake_page(1000, FAST, 0, 0)
    world.victims = [(1000, 50.0)]
    world.after(range(1), seconds=4)
    world.report([0], count=count)
    assert world.run() == 2 * moves
    assert (world.node(0), world.node(1000)) == ((FAST, SLOW) if moves else (SLOW, FAST))


@pytest.mark.parametrize(("count", "moves"), [(200, 0), (240, 1)])
def test_what_is_gained_by_an_exchange_pays_for_both_moves(
    world: World, count: int, moves: int
) -> None:
    """32 requests a second more than one and a half times the victim's, which are 14 here: that
    is what is expected of it, and no more is asked for because so little of it was seen."""
    world.settings = replace(SETTINGS, least_rate=32.0, rate_cap=1e6, expected=True)
    world.lib.fake_room(FAST, 0)
    world.lib.fake_page(1000, FAST, 0, 0)
    world.victims = [(1000, 14.0 * SETTINGS.heat_s)]
    world.after(range(1), seconds=4)
    world.report([0], count=count)
    assert world.run() == 2 * moves
    assert world.held(Reason.NOT_HOTTER) == 1 - moves
    told = world.made.take() if world.made is not None else []
    if not moves:
        assert told["bar"][0] == pytest.approx((1.5 * 14 + 32) * SETTINGS.heat_s)


def test_looks_that_find_every_page_in_use_tell_no_gain(world: World) -> None:
    """However often cards saw it: the victim may be asked for as often."""
    world.settings = replace(SETTINGS, least_rate=32.0, expected=True)
    world.lib.fake_room(FAST, 0)
    world.lib.fake_page(1000, FAST, 0, 0)
    world.victims = [(1000, SETTINGS.rate_cap * SETTINGS.heat_s)]
    world.after(range(1), seconds=4)
    world.report([0], count=60_000)
    assert world.run() == 0
    assert world.held(Reason.NOT_HOTTER) == 1


def test_an_exchange_is_not_left_to_chance(world: World) -> None:
    """Four requests are 1 a second, or half of it, or a third more: by a standard deviation."""
    world.settings = replace(SETTINGS, expected=True)
    world.lib.fake_room(FAST, 0)
    world.lib.fake_page(1000, FAST, 0, 0)
    world.victims = [(1000, 0.4 * SETTINGS.heat_s)]
    world.after(range(1), seconds=4)
    world.report([0], count=4)
    assert world.run() == 0
    world.report([0], count=6)
    assert world.run() == 2


def test_what_leaves_makes_room_below_the_watermark_too(world: World) -> None:
    """Ticks relieve a node below the low watermark; above that exchanges must not wait for it."""
    world.lib.fake_room(FAST, 100)
    world.low = 200 * 4096
    world.slow(range(50))
    for page in range(1000, 1100):
        world.lib.fake_page(page, FAST, 0, 0)
    world.victims = [(page, 0.0) for page in range(1000, 1100)]
    world.build()
    world.lib.fake_pass(S)
    world.report(range(50))
    world.run()
    assert [world.node(page) for page in range(50)] == [FAST] * 50
    assert sum(world.node(page) == SLOW for page in range(1000, 1100)) == 50


def test_little_heat_that_is_surely_known_is_not_worth_a_move(world: World) -> None:
    """Ticks ask for confidence² at least, 6.25; 0.8 a second for seven seconds are 5.6."""
    world.slow(range(1))
    world.build()
    world.lib.fake_pass(100 * S)
    world.report([0], count=80)
    assert world.run() == 0
    assert world.held(Reason.NOT_HOTTER) == 1


def test_a_page_demoted_lately_stays_and_counts_as_a_bounce_held(world: World) -> None:
    world.lib.fake_room(FAST, 0)
    world.slow(range(1))
    world.victims = [(100, 0.0)]
    world.build()
    world.lib.fake_pass(S)
    world.report([0])
    world.run()
    assert world.node(100) == SLOW
    world.report([100], count=104)
    world.run()
    assert world.node(100) == SLOW
    assert world.counter("bounce_held") == 1
    assert world.held(Reason.MOVED_LATELY) == 1
    world.lib.fake_room(FAST, 10)
    world.lib.fake_pass(6 * S)
    world.report([100], count=200)
    world.run()
    assert world.counter("bounce_held") == 1, "six seconds on it is held, but no bounce"
    world.lib.fake_pass(5 * S)
    world.report([100], count=400)
    world.run()
    assert world.node(100) == FAST
    assert world.counter("bounced") == 0


def test_a_page_that_left_by_mistake_comes_back_at_once(world: World) -> None:
    """1,000 requests a second pay for its way there and back; 400 have to wait."""
    world.settings = replace(world.settings, return_rate=1000.0)
    world.lib.fake_room(FAST, 10)
    world.slow(range(4))
    promoter = world.after(range(4))
    promoter.note(moves_of_a_tick(range(3), Direction.DEMOTE), world.now)
    promoter.note(moves_of_a_tick([3], Direction.PROMOTE), world.now)
    world.lib.fake_pass(S)
    world.report([0, 3], count=3 * 1000 + 64)
    world.report([1, 2], count=400)
    world.run()
    assert [world.node(page) for page in range(3)] == [FAST, SLOW, SLOW]
    assert world.counter("returned") == world.counter("bounced") == 1
    assert world.held(Reason.MOVED_LATELY) == 2
    assert world.counter("stale") == 1, "what was promoted lately is on its way"


def test_a_bounce_is_counted_whoever_moved_the_page(world: World) -> None:
    world.slow(range(10))
    promoter = world.build()
    for direction, seconds in (
        (Direction.DEMOTE, 0),
        (Direction.PROMOTE, 4),
        (Direction.DEMOTE, 5),
        (Direction.PROMOTE, 11),
    ):
        promoter.note(moves_of_a_tick(range(5), direction), world.now + seconds * S)
    assert world.counter("bounced") == 5


def test_a_page_reported_for_its_own_copy_is_no_bounce(world: World) -> None:
    """64 lines were written to demote it; that it is used as well shows in what is beyond."""
    promoter = world.after(range(10))
    promoter.note(moves_of_a_tick(range(10), Direction.DEMOTE), world.now)
    world.lib.fake_pass(MS)
    world.report(range(5), count=64)
    world.report(range(5, 10), count=200)
    assert world.run() == 0
    assert world.counter("copied") == 5
    assert world.counter("bounce_held") == world.held(Reason.MOVED_LATELY) == 5


def test_on_hold_nothing_moves_and_nothing_is_lost(world: World) -> None:
    promoter = world.after(range(10))
    with promoter.held():
        world.report(range(10))
        assert world.run(5) == 0
        assert world.ring.unread == 10
    assert world.run() == 10


def test_moves_of_an_ended_process_are_gone(world: World) -> None:
    promoter = world.after(range(10))
    world.lib.fake_exit_at(world.now)
    world.report(range(10))
    assert world.run() == 0
    assert set(promoter.take()["fate"]) == {Fate.GONE}


def test_records_from_before_the_clear_use_the_epoch_before(world: World) -> None:
    """20 accesses in 4 s are no 20 accesses in a moment: heat tells."""
    world.slow(range(10))
    promoter = world.build()
    start = world.now
    world.lib.fake_pass(4 * S)
    keys = np.arange(3, dtype=np.uint64) + np.uint64(FIRST_PAGE)
    world.ring.put(hot_records(keys, 20, world.now))
    world.lib.fake_pass(MS)
    promoter.steer(
        Orders(
            spans=np.array(world.spans, SPAN),
            pids={0: 1},
            victims=np.zeros(0, VICTIM),
            epochs={0: (world.now, start, 1)},
            ways={FAST: Way(down=(SLOW,)), SLOW: Way(up=(FAST,))},
        )
    )
    assert world.run() == 3
    heat = promoter.take()["heat"]
    assert heat == pytest.approx([20 / 4.001 * 7.0] * 3, rel=1e-3)


def test_a_ring_of_another_layout_is_refused(world: World) -> None:
    promoter = world.build()
    world.ring.memory[6:8] = 0
    with pytest.raises(UnavailableError):
        promoter.attach(world.ring.memory)


@pytest.mark.parametrize(
    "change",
    [
        {"interval_ns": 10},
        {"quota_bytes_per_s": 0},
        {"heat_s": 0.0},
        {"rate_cap": 0.0},
        {"visits": 0.0},
        {"least_rate": -1.0},
    ],
)
def test_settings_out_of_range_are_refused(world: World, change: dict[str, Any]) -> None:
    world.settings = replace(SETTINGS, **change)
    with pytest.raises(ValueError, match="promoter"):
        world.build()


def test_the_native_header_repeats_reasons_and_records(promoter_native: Any) -> None:
    lib, ffi = promoter_native.lib, promoter_native.ffi
    text = (fake_kernel.NATIVE / "tierd_promoter.h").read_text()
    body = text[text.index("enum tierd_reason {") : text.index("TIERD_REASONS")]
    values = [int(value) for value in re.findall(r"TIERD_\w+ = (\d+)", body)]
    assert values == [int(reason) for reason in Reason if reason <= Reason.NOT_WORTH]
    assert lib.TIERD_REASONS == Reason.NOT_WORTH + 1
    assert ffi.sizeof("struct tierd_hot_record") == uapi.RECORD.itemsize
    names = {"card": "history", "count": "value"}
    for name, field in ffi.typeof("struct tierd_hot_record").fields:
        dtype, offset = uapi.RECORD.fields[names.get(name, name)][:2]
        assert (field.offset, ffi.sizeof(field.type)) == (offset, dtype.itemsize)
    for dtype, kind in ((OUTCOME, "struct tierd_outcome"), (VICTIM, "struct tierd_victim")):
        fields = dict(ffi.typeof(kind).fields)
        for name in dtype.names:
            assert dtype.fields[name][1] == fields[name].offset
