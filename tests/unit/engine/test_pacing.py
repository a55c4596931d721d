# SPDX-License-Identifier: Apache-2.0
"""How long the loop rests; what it looks at is made up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from loopbench import ScanningSource
from policies import watermarks

from tierd.config.model import LoopConfig
from tierd.core import bounds
from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult
from tierd.core.tiermap import (
    MemoryKind,
    MemoryNode,
    NodeUsage,
    Provenance,
    Quantity,
    Tier,
    TierMap,
)
from tierd.core.tuning import PACING
from tierd.engine.pacing import TickPacer
from tierd.observe.tick_record import TickRecord
from tierd.policy.watermark import WatermarkPolicy

GIB = 1 << 30
MS = 10**6
LOOP = LoopConfig(interval_ns=500 * MS, max_interval_ns=1800 * MS)
NODES = (0, 1)
FULL = NodeUsage(GIB, GIB // 1000, 0)
"""Less free than the low watermark."""


def tiers() -> TierMap:
    figures = (Quantity(118, Provenance.HMAT), Quantity(1e11, Provenance.HMAT))
    kinds = (MemoryKind.DRAM, MemoryKind.CXL)
    made = [Tier(n, str(kinds[n]), kinds[n], (n,), GIB, *figures) for n in NODES]
    nodes = {n: MemoryNode(n, GIB, frozenset(), kinds[n], *figures) for n in NODES}
    return TierMap(tuple(made), nodes)


def plan(pages: int) -> MigrationPlan:
    key = np.arange(pages, dtype=np.uint64)
    nodes = np.ones(pages, np.int16)
    up = np.full(pages, Direction.PROMOTE, np.uint8)
    heat = np.ones(pages, np.float32)
    return MigrationPlan(key, np.zeros(pages, np.uint8), nodes, 0 * nodes, up, heat, {})


def moved(pages: int) -> MigrationResult:
    fate = np.full(pages, Fate.MOVED, np.uint8)
    done = plan(pages)
    return MigrationResult(done, fate, done.dest, {}, done.bytes_planned, 1, 1, 0)


class Host:
    """Rooms and the last pass of a service that has nothing to do."""

    def __init__(self) -> None:
        self.counters = {"victims": 512, "pending": 0}
        self.miss_burst_seen = False
        self.usage = dict.fromkeys(NODES, NodeUsage(GIB, GIB // 2, 0))
        self.source = SimpleNamespace(backlog=0.0, report_ns=0)
        steering = SimpleNamespace(
            promotes=True,
            settled=True,
            view=SimpleNamespace(source=self.source),
            stats=lambda: SimpleNamespace(counters=self.counters),
            miss_burst_seen=lambda now_ns: self.miss_burst_seen,
        )
        self.components: Any = SimpleNamespace(
            fast_path=steering,
            sources=SimpleNamespace(active=self.source),
            tracking=SimpleNamespace(all_walked=True, pids={}),
            policy=WatermarkPolicy(watermarks()),
            read_usage=lambda tiers: self.usage,
        )
        self.tick = TickRecord(
            number=1,
            time_ns=0,
            end_ns=1,
            source="neoprof",
            batches=(),
            located=0,
            walked=0,
            targets=1,
            tiers=tiers(),
            usage=self.usage,
            budget=None,
            plan=plan(0),
            report=None,
            ms={},
            between=moved(0),
        )


def pauses(host: Host, cadence: TickPacer, count: int) -> list[int]:
    return [cadence.pause_ns(LOOP, host.components, host.tick) // MS for _ in range(count)]


def test_it_doubles_while_there_is_nothing_to_do_and_has_a_bound() -> None:
    host, cadence = Host(), TickPacer()
    busy = replace(host.tick, hot_set_moved=True)
    assert cadence.pause_ns(LOOP, host.components, busy) == LOOP.interval_ns
    assert pauses(host, cadence, 4) == [1000, 1800, 1800, 1800]
    assert cadence.pause_ns(LOOP, host.components, busy) == LOOP.interval_ns
    assert pauses(host, cadence, 1) == [1000]


def test_a_new_target_is_not_left_waiting_for_a_loop_that_rests() -> None:
    """One that ends, or that was there, changes nothing; a number may be used again."""
    host, cadence = Host(), TickPacer()
    host.components.tracking.pids = {0: 100, 1: 101}
    assert pauses(host, cadence, 4) == [500, 1000, 1800, 1800]
    del host.components.tracking.pids[1]
    assert pauses(host, cadence, 1) == [1800]
    for number, pid in ((1, 102), (2, 103), (1, 104)):
        host.components.tracking.pids[number] = pid
        assert pauses(host, cadence, 3) == [500, 1000, 1800]


def test_rules_and_known_traffic_do_not_end_the_back_off() -> None:
    """One `[[rule]]`, or the policy that asks for traffic, costs an idle host no passes."""
    host, cadence = Host(), TickPacer()
    host.tick = replace(host.tick, groups=cast(Any, object()), traffic=cast(Any, object()))
    assert pauses(host, cadence, 3) == [1000, 1800, 1800]


def test_a_policy_that_measures_something_is_asked_each_tick() -> None:
    host, cadence = Host(), TickPacer()
    host.components.policy = SimpleNamespace(busy=True, low_watermark=0.02)
    assert pauses(host, cadence, 3) == [500, 500, 500]


def test_a_few_pages_are_nothing_to_do() -> None:
    host, cadence = Host(), TickPacer()
    host.tick = replace(host.tick, plan=plan(PACING.few_pages - 1))
    assert pauses(host, cadence, 3) == [1000, 1800, 1800]


def test_what_the_native_path_moves_by_itself_is_no_reason_for_a_pass() -> None:
    host, cadence = Host(), TickPacer()
    host.tick = replace(host.tick, between=moved(10**4))
    assert pauses(host, cadence, 3) == [1000, 1800, 1800]
    host.counters["pending"] = 10**4
    assert not cadence.must_tick(host.components, host.tick, 0)


def test_a_pass_that_moves_pages_halves_the_time() -> None:
    host, cadence = Host(), TickPacer()
    pauses(host, cadence, 2)
    host.tick = replace(host.tick, plan=plan(PACING.few_pages))
    assert pauses(host, cadence, 3) == [900, 500, 500]


def test_a_bound_below_the_tick_leaves_the_tick() -> None:
    host, cadence = Host(), TickPacer()
    loop = replace(LOOP, max_interval_ns=10 * MS)
    assert [cadence.pause_ns(loop, host.components, host.tick) for _ in range(3)] == 3 * [
        LOOP.interval_ns
    ]


@pytest.mark.parametrize(
    "busy",
    [
        {"hot_set_moved": True},
        {"plan": replace(plan(0), notes={"group_rate_limit": 1})},
        {"usage": {0: FULL, 1: NodeUsage(GIB, GIB, 0)}},
    ],
    ids=lambda busy: next(iter(busy)),
)
def test_after_a_change_it_is_a_tick_again(busy: dict[str, Any]) -> None:
    host, cadence = Host(), TickPacer()
    pauses(host, cadence, 3)
    tick = replace(host.tick, **busy)
    assert cadence.pause_ns(LOOP, host.components, tick) == LOOP.interval_ns


def test_without_a_native_path_it_is_never_quiet() -> None:
    host, cadence = Host(), TickPacer()
    host.components.fast_path.settled = False
    assert pauses(host, cadence, 3) == [500, 500, 500]
    host.components.fast_path = None
    assert pauses(host, cadence, 3) == [500, 500, 500]


def test_a_source_that_reports_at_intervals_is_asked_for_a_few_reports_at_once() -> None:
    host, cadence = Host(), TickPacer()
    host.components.fast_path.settled = False
    host.components.fast_path.view.source = None
    host.source.report_ns = 400 * MS
    assert pauses(host, cadence, 3) == [1200, 1200, 1200]
    assert not cadence.must_tick(host.components, host.tick, 500 * MS)
    host.source.report_ns = 1600 * MS
    assert pauses(host, cadence, 2) == [2000, 2000]
    host.source.report_ns = 6400 * MS
    assert pauses(host, cadence, 3) == [6400, 6400, 6400]
    host.usage[0] = FULL
    assert cadence.must_tick(host.components, host.tick, 1000 * MS)
    assert pauses(host, cadence, 1) == [500]
    host.source.report_ns = 100 * MS
    host.usage[0] = NodeUsage(GIB, GIB // 2, 0)
    assert pauses(host, cadence, 2) == [500, 500]


def test_while_it_is_not_known_what_may_leave_passes_come_every_tick() -> None:
    host, cadence = Host(), TickPacer()
    host.components.fast_path.settled = False
    assert pauses(host, cadence, 3) == [500, 500, 500]
    host.components.fast_path.settled = True
    assert pauses(host, cadence, 3) == [1000, 1800, 1800]


def test_while_pages_are_still_looked_up_it_is_not_quiet() -> None:
    host, cadence = Host(), TickPacer()
    host.components.tracking.all_walked = False
    assert pauses(host, cadence, 2) == [500, 500]


def test_a_slow_node_that_is_full_is_no_work() -> None:
    host, cadence = Host(), TickPacer()
    host.usage[1] = FULL
    assert pauses(host, cadence, 3) == [1000, 1800, 1800]
    assert not cadence.must_tick(host.components, host.tick, 0)


def test_what_ends_a_rest() -> None:
    host, cadence = Host(), TickPacer()
    pauses(host, cadence, 2)
    assert not cadence.must_tick(host.components, host.tick, 0)
    host.counters |= {"victims": 0, "pending": PACING.few_pages - 1}
    assert not cadence.must_tick(host.components, host.tick, 0)
    host.counters["pending"] += 1
    assert cadence.must_tick(host.components, host.tick, 0)
    pauses(host, cadence, 1)
    assert not cadence.must_tick(host.components, host.tick, 0), "there are no victims to be had"
    host.counters["pending"] = 0
    host.source.backlog = bounds.RING_FILL_FRACTION + 0.01
    assert cadence.must_tick(host.components, host.tick, 0)
    host.source.backlog = 0.0
    host.usage[0] = FULL
    # It is asked for no more often than there would be passes.
    assert not cadence.must_tick(host.components, host.tick, 500 * MS - 1)
    assert cadence.must_tick(host.components, host.tick, 500 * MS)


def test_a_source_that_went_away_ends_a_rest() -> None:
    host, cadence = Host(), TickPacer()
    pauses(host, cadence, 2)
    host.components.fast_path.view.source = None
    assert cadence.must_tick(host.components, host.tick, 0)


def test_when_many_are_refused_three_passes_come_without_waiting() -> None:
    host, cadence = Host(), TickPacer()
    pauses(host, cadence, 3)
    host.miss_burst_seen = True
    assert cadence.must_tick(host.components, host.tick, 0)
    host.miss_burst_seen = False
    host.tick = replace(host.tick, between=moved(PACING.few_pages))
    assert pauses(host, cadence, 4) == [500, 500, 1000, 1800]


def test_where_nothing_came_of_it_one_pass_is_enough() -> None:
    host, cadence = Host(), TickPacer()
    host.miss_burst_seen = True
    assert cadence.must_tick(host.components, host.tick, 0)
    host.miss_burst_seen = False
    host.tick = replace(host.tick, between=moved(PACING.few_pages - 1))
    assert pauses(host, cadence, 3) == [500, 1000, 1800]


def test_while_looks_teach_passes_come_as_often_as_they_tell_something_new() -> None:
    host, cadence, source = Host(), TickPacer(), ScanningSource()
    host.components.sources.active, source.learning_ns = source, 200 * MS
    assert cadence.pause_ns(LOOP, host.components, host.tick) == 200 * MS
    source.learning_ns = 800 * MS
    assert cadence.pause_ns(LOOP, host.components, host.tick) == 500 * MS
    source.learning_ns = 0
    assert cadence.pause_ns(LOOP, host.components, host.tick) == 1000 * MS


def test_where_looks_tell_of_news_it_is_quiet_without_a_native_path() -> None:
    host, cadence, source = Host(), TickPacer(), ScanningSource()
    host.components.fast_path.settled, host.components.fast_path.view.source = False, None
    host.components.sources.active = source
    pauses = [cadence.pause_ns(LOOP, host.components, host.tick) // MS for _ in range(3)]
    assert pauses == [1000, 1800, 1800]
    assert not cadence.must_tick(host.components, host.tick, 0)
    source.backlog = bounds.RING_FILL_FRACTION + 0.01
    assert cadence.must_tick(host.components, host.tick, 0)
    source.backlog = 0.0
    source.changed = lambda: True
    assert cadence.must_tick(host.components, host.tick, 0)
    source.changed = lambda: False
    host.usage = dict.fromkeys(NODES, FULL)
    assert cadence.must_tick(host.components, host.tick, 500 * MS)
    busy = replace(host.tick, plan=plan(PACING.few_pages))
    assert cadence.pause_ns(LOOP, host.components, busy) == 900 * MS
