# SPDX-License-Identifier: Apache-2.0
"""The native path beside the ticks: orders, quota, groups, what it exchanges."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
from fakecards import card
from fakering import hot_records
from fastpath_bench import GIB, PAGES, Bench, two_tiers
from policies import watermarks

from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult, Reason
from tierd.core.pagekey import VPN_BITS
from tierd.core.tiermap import NodeUsage
from tierd.engine.fastpath.update import victims
from tierd.hotness.table import HeatTable
from tierd.migration import DryMover
from tierd.observe.totals import Totals
from tierd.policy.limits import NO_LIMIT, Groups


def test_hot_pages_are_taken_to_the_kernel_between_ticks_and_told_of(bench: Bench) -> None:
    bench.watch()
    bench.tick()
    bench.put(range(40))
    bench.until_read()
    between = bench.tick()
    assert between is not None
    assert len(between.plan) == 40
    assert set(between.fate) == {Fate.ALREADY_THERE}
    assert set(between.node) == {0}
    assert set(between.plan.direction) == {Direction.PROMOTE}
    told = bench.fast_path.explainer.explain(os.getpid(), bench.vpn << 12)
    assert told["decisions"][0]["fate"] == "already_there"
    totals = Totals()
    bench.fast_path.tell(totals)
    assert totals.tell_native()["records"] == 40


def test_a_node_that_went_offline_and_is_back_is_asked_anew(bench: Bench, tmp_path: Path) -> None:
    bench.watch()
    bench.tick()
    meminfo = tmp_path / "sys/devices/system/node/node1/meminfo"
    text = meminfo.read_text()
    meminfo.unlink()
    usage = bench.usage.pop(1)
    bench.tick()
    meminfo.write_text(text)
    bench.usage[1] = usage
    bench.tick()
    native = bench.fast_path._native
    assert native is not None
    assert os.fstat(native._promoter._meminfo[1]).st_nlink == 1


def one_group(floor: float, cap: float, resident: int) -> Groups:
    """Target 0 is a group with `resident` bytes in fast memory."""
    return Groups(
        of_target=np.zeros(1, np.int16),
        floor=np.array([floor]),
        cap=np.array([cap]),
        budget=np.array([NO_LIMIT]),
        resident={0: np.array([resident])},
    )


@pytest.mark.parametrize(("resident", "asked"), [(0, 40), (GIB // 2 - (64 << 20), 0)])
def test_a_group_near_its_cap_is_left_to_the_ticks(bench: Bench, resident: int, asked: int) -> None:
    bench.watch()
    bench.tick(groups=one_group(0.0, 0.5, resident))
    bench.put(range(40))
    bench.until_read()
    between = bench.tick(groups=one_group(0.0, 0.5, resident))
    assert (0 if between is None else len(between.plan)) == asked


def test_what_a_floor_holds_is_no_victim() -> None:
    heat = HeatTable(capacity_pages=1000, half_life_s=5.0)
    pages = np.arange(200, dtype=np.uint64)
    pages[100:] |= np.uint64(1 << VPN_BITS)
    heat.place(pages, np.zeros(200, np.int16), np.zeros(200, np.uint8), insert_on=[0])
    usage = {node: NodeUsage(GIB, 0, 0) for node in (0, 1)}
    policy = watermarks()
    free = victims(heat, two_tiers(), usage, policy, 150)
    assert len(free) == 150
    at_floor = one_group(0.5, 1.0, GIB // 2)
    found = victims(heat, two_tiers(), usage, policy, 150, groups=at_floor)
    assert set(found["page"]) == set(pages[100:])


def test_pages_that_may_not_move_are_never_asked_for(bench: Bench) -> None:
    bench.watch()
    bench.tick()
    bench.put(range(PAGES - 4, PAGES + 4))
    bench.until_read()
    between = bench.tick()
    assert between is not None
    assert len(between.plan) == 4
    stats = bench.fast_path.stats()
    assert stats is not None
    assert stats.held[Reason.NOT_MOVABLE] == 4


def test_what_may_move_is_asked_for_in_each_tick(bench: Bench) -> None:
    bench.watch()
    bench.tick()
    bench.tracking.start += 4
    bench.tick()
    bench.put(range(8))
    bench.until_read()
    between = bench.tick()
    assert between is not None
    assert len(between.plan) == 4
    stats = bench.fast_path.stats()
    assert stats is not None
    assert stats.held[Reason.NOT_MOVABLE] == 4


def test_paused_nothing_runs(bench: Bench) -> None:
    bench.watch()
    bench.tick()
    bench.tick(paused=True)
    bench.put(range(8))
    time.sleep(0.1)
    assert bench.rings[-1].unread == 8
    bench.tick()
    bench.until_read()


def test_when_the_source_is_lost_the_native_path_ends_and_comes_back(bench: Bench) -> None:
    bench.watch()
    bench.tick()
    first = bench.rings[-1]
    bench.cards.fail(0)
    bench.selector.close()
    bench.tick()
    first.put(hot_records([bench.vpn], 40, time.monotonic_ns()))
    time.sleep(0.1)
    assert first.unread == 1
    bench.cards.known[0] = card(0, (512, 1024))
    bench.watch()
    bench.tick()
    bench.put(range(4))
    bench.until_read()


def test_a_dry_run_has_no_native_path(tmp_path: Path) -> None:
    made = Bench(tmp_path, DryMover())
    made.watch()
    assert made.tick() is None
    made.put(range(4))
    time.sleep(0.05)
    assert made.rings[-1].unread == 4
    assert made.fast_path.stats() is None
    made.fast_path.close()
    made.selector.close()


def test_the_ticks_own_moves_count_for_bounces(bench: Bench) -> None:
    page = np.array([bench.vpn], np.uint64)

    def report(direction: Direction) -> MigrationResult:
        plan = MigrationPlan(
            page,
            np.zeros(1, np.uint8),
            np.ones(1, np.int16),
            np.zeros(1, np.int16),
            np.array([direction], np.uint8),
            np.ones(1, np.float32),
        )
        return MigrationResult(
            plan, np.array([Fate.MOVED], np.uint8), np.zeros(1, np.int16), {}, 4096, 1, 1, 0
        )

    bench.tick(report(Direction.DEMOTE))
    bench.tick(report(Direction.PROMOTE))
    totals = Totals()
    bench.fast_path.tell(totals)
    assert totals.ping_pong_pages == 1


def test_a_tick_shares_the_quota_while_the_native_path_runs(bench: Bench) -> None:
    def plan(pages: int) -> MigrationPlan:
        return MigrationPlan(
            np.arange(pages, dtype=np.uint64),
            np.zeros(pages, np.uint8),
            np.ones(pages, np.int16),
            np.zeros(pages, np.int16),
            np.full(pages, Direction.PROMOTE, np.uint8),
            np.ones(pages, np.float32),
        )

    quota = 256_000_000 // 4096
    assert len(bench.fast_path.allow(plan(quota + 10))) == quota + 10
    bench.watch()
    bench.tick()
    assert len(bench.fast_path.allow(plan(quota + 10))) == quota
    totals = Totals()
    bench.fast_path.tell(totals)
    assert totals.tell_native()["deferred_by_rate_limit"] == 10


def test_the_native_path_exchanges_where_cards_see_all_once_it_knows_the_cold(
    bench: Bench,
) -> None:
    assert not bench.fast_path.exchanged
    bench.watch()
    bench.tick()
    assert not bench.fast_path.exchanged
    bench.source.poll()
    assert bench.fast_path.exchanged == bench.source.coverage.whole == {1}
    bench.fast_path.close()
    assert not bench.fast_path.exchanged


def test_stopping_is_quick_while_records_come(bench: Bench) -> None:
    bench.watch()
    bench.tick()
    for _ in range(20):
        bench.put(range(PAGES))
    bench.fast_path.close()
    assert not bench.fast_path._native.running  # type: ignore[union-attr]
