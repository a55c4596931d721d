# SPDX-License-Identifier: Apache-2.0
"""Figures: what a tick adds, that labels stay bounded, and that nobody waits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from desk import make_desk
from loopbench import FREE, PAGES, Bench, interrupt_at

from tierd.core.access import Seen
from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import make_keys
from tierd.core.quantiles import Quantiles
from tierd.observe.metrics import families as f
from tierd.observe.metrics.state import SLOW_NS, MetricsState
from tierd.observe.metrics.values import (
    BUCKETS,
    MOST_SERIES,
    OTHER,
    Groups,
    Labels,
    Values,
    label,
    summary_of,
)
from tierd.observe.tick_record import TickRecord
from tierd.workloads.target import Target

UP, DOWN = Direction.PROMOTE, Direction.DEMOTE


def report_of(moves: list[tuple[int, int, int, Direction, int, Fate]]) -> MigrationResult:
    """A report of (target, source, dest, direction, order, fate)."""
    target, source, dest, direction, order, fate = np.array(moves).T
    pages = [make_keys(int(t), np.array([i * 512], np.uint64)) for i, t in enumerate(target)]
    plan = MigrationPlan(
        page=np.concatenate(pages),
        order=order.astype(np.uint8),
        source=source.astype(np.int16),
        dest=dest.astype(np.int16),
        direction=direction.astype(np.uint8),
        heat=np.zeros(len(moves), np.float32),
    )
    return MigrationResult(plan, fate.astype(np.uint8), plan.dest, {16: 3, 9999: 1}, 0, 1, 1, 0)


MIXED = report_of(
    [
        (3, 1, 0, UP, 0, Fate.MOVED),
        (3, 1, 0, UP, 9, Fate.MOVED),
        (4, 1, 0, UP, 0, Fate.BUSY),
        (4, 0, 1, DOWN, 0, Fate.MOVED),
        (4, -1, 1, DOWN, 0, Fate.MOVED),
        (4, 0, 700, DOWN, 0, Fate.MOVED),
    ]
)


def run_three_ticks(tmp_path: Path) -> tuple[Bench, MetricsState]:
    bench, desk = make_desk(tmp_path)
    bench.source.on_poll = interrupt_at(3)
    bench.service.run()
    return bench, desk.state


def after_a_report(tmp_path: Path, report: MigrationResult) -> Mapping[str, Mapping[Labels, float]]:
    """The figures of one tick that told of these moves."""
    bench, _ = make_desk(tmp_path)
    ticks: list[TickRecord] = []
    bench.service.observe(SimpleNamespace(on_tick=ticks.append))
    bench.source.on_poll = interrupt_at(1)
    bench.service.run()
    state = MetricsState(bench.service)
    state.on_tick(dataclasses.replace(ticks[-1], report=report))
    return state.values.snapshot.values


def test_moved_pages_are_summed_by_direction_tiers_and_group(tmp_path: Path):
    """Large folios count by their size; node 700 is in no tier, as -1 is."""
    values = after_a_report(tmp_path, MIXED)
    assert values[f.MOVED_PAGES] == {
        ("promote", "cxl", "dram"): 513,
        ("demote", "dram", "cxl"): 1,
        ("demote", "unknown", "cxl"): 1,
        ("demote", "dram", "unknown"): 1,
    }
    pages = values[f.MOVED_PAGES].items()
    assert values[f.MOVED_BYTES] == {labels: 4096 * count for labels, count in pages}
    assert values[f.GROUP_MOVED] == {(OTHER, "promote"): 513 * 4096, (OTHER, "demote"): 3 * 4096}


def test_moves_between_ticks_count_as_a_ticks_own(tmp_path: Path):
    """The fast path's moves are in the record of the tick after them."""
    bench, _ = make_desk(tmp_path)
    ticks: list[TickRecord] = []
    bench.service.observe(SimpleNamespace(on_tick=ticks.append))
    bench.source.on_poll = interrupt_at(1)
    bench.service.run()
    moved = report_of([(3, 1, 0, UP, 0, Fate.MOVED)])
    counts = []
    for more in ({"report": moved}, {"between": moved, "report": None}, {"between": moved}):
        state = MetricsState(bench.service)
        state.on_tick(dataclasses.replace(ticks[-1], **{"report": moved, "between": None} | more))
        counts.append(sum(state.values.snapshot.values[f.MOVED_PAGES].values()))
    assert counts == [1, 1, 2]


def test_a_report_of_nothing_moved_adds_nothing(tmp_path: Path):
    values = after_a_report(tmp_path, report_of([(3, 1, 0, UP, 0, Fate.GONE)]))
    assert values[f.MOVED_PAGES] == values[f.GROUP_MOVED] == {}


def test_a_tick_is_seen_in_the_figures(tmp_path: Path):
    bench, state = run_three_ticks(tmp_path)
    values, totals = state.values.snapshot.values, bench.service.totals
    assert values[f.TICKS][()] == totals.ticks == 3
    assert values[f.SAMPLES][("made-up",)] == totals.samples
    assert values[f.LOST][("made-up",)] == totals.lost_samples
    assert values[f.SOURCE_ACTIVE] == {("made-up",): 1.0}
    assert values[f.MOVED_PAGES][("promote", "cxl", "dram")] == totals.promoted_pages > 0
    assert values[f.MOVED_BYTES][("demote", "dram", "cxl")] == totals.demoted_pages * 4096 > 0
    assert values[f.FATES][("moved",)] == totals.fates["moved"]
    assert values[f.PLANNED_PAGES][("promote",)] == totals.planned_promotions
    assert sum(values[f.HELD_BACK].values()) == sum(totals.notes.values())
    assert values[f.FREE][("dram", "0")] == int(FREE * PAGES) * 4096
    assert values[f.RANK] == {("dram",): 0.0, ("cxl",): 1.0}
    assert values[f.BUDGET_RATE][()] == bench.service.config.migration.rate_limit_bytes_per_s
    assert values[f.BUDGET_GRANTED][()] > 0
    assert values[f.LEFT_OUT][()] == 5
    assert values[f.SKIPPED] == {("not_anonymous",): 6.0}
    assert values[f.GROUP_RESIDENT] == {("/init.scope",): float(1 << 20)}
    assert values[f.GROUP_MOVED][("/init.scope", "promote")] >= 0
    assert values[f.HEAT_EVICTED][()] == 3
    assert sum(state.values.snapshot.buckets) == 3


def test_a_source_that_is_gone_is_neither_active_nor_available(tmp_path: Path):
    bench, desk = make_desk(tmp_path)

    def on_poll(count: int) -> None:
        bench.source.ok = count < 2

    bench.source.on_poll = on_poll
    bench.tracking.on_tick = interrupt_at(4)
    bench.service.run()
    values = desk.state.values.snapshot.values
    assert values[f.SOURCE_ACTIVE] == {("made-up",): 0.0}
    assert values[f.SOURCE_AVAILABLE] == {("made-up",): 0.0}


def test_how_a_source_looks_is_told_while_it_is_in_use(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    told = []

    def on_tick(count: int) -> None:
        values = desk.state.values.snapshot.values
        told.append((values[f.SAMPLING_INTERVAL], values[f.SCAN_INTERVAL]))
        bench.source.seen = Seen(0.4, 0.025 * count, 0.4)
        bench.source.ok = count < 3
        interrupt_at(6)(count)

    bench.tracking.on_tick = on_tick
    bench.service.run()
    first, second, third, *_, last = told
    assert first == ({}, {})
    assert second == ({("made-up",): 0.025}, {("made-up",): 0.4})
    assert third == ({("made-up",): 0.05}, {("made-up",): 0.4})
    assert last == ({}, {})


def test_a_source_that_does_not_look_has_no_exposure(tmp_path: Path):
    _, state = run_three_ticks(tmp_path)
    values = state.values.snapshot.values
    assert (values[f.SAMPLING_INTERVAL], values[f.SCAN_INTERVAL]) == ({}, {})


def test_what_a_source_left_out_or_did_not_watch_is_counted(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    told = []

    def on_tick(count: int) -> None:
        values = desk.state.values.snapshot.values
        families = f.REPORTS_LEFT_OUT, f.UNWATCHED, f.PASSED_OVER, f.UNTRACKED
        told.append(tuple(dict(values[each]) for each in families))
        bench.source.left_out, bench.source.unwatched = 2 * count, 3 * count
        bench.source.passed_over = 4 * count
        bench.source.untracked = {"no_flag": 5 * count}
        interrupt_at(3)(count)

    bench.tracking.on_tick = on_tick
    bench.service.run()
    assert told == [
        ({}, {}, {}, {}),
        ({("made-up",): 2}, {("made-up",): 3}, {("made-up",): 4}, {("no_flag",): 5}),
        ({("made-up",): 4}, {("made-up",): 6}, {("made-up",): 8}, {("no_flag",): 10}),
    ]


def test_a_reload_is_counted_and_the_last_result_stands(tmp_path: Path):
    _, desk = make_desk(tmp_path)
    wall = [100.0]
    state = MetricsState(desk.service, wall=lambda: wall[0])
    wall[0] = 200.0
    state.reload_result(False, "unknown key")
    values = state.values.snapshot.values
    assert values[f.RELOAD_OK][()] == 0
    assert values[f.RELOAD_TIME][()] == 100
    wall[0] = 300.0
    state.reload_result(True)
    values = state.values.snapshot.values
    assert values[f.RELOADS] == {("success",): 1.0, ("failure",): 1.0}
    assert (values[f.RELOAD_OK][()], values[f.RELOAD_TIME][()]) == (1, 300)


def test_a_published_snapshot_never_changes(tmp_path: Path):
    values = Values()
    values.add(f.TICKS, 1)
    values.publish()
    before = values.snapshot
    values.add(f.TICKS, 1)
    values.observe_tick(0.02)
    assert before.values[f.TICKS][()] == 1
    assert sum(before.buckets) == 0
    values.publish()
    assert values.snapshot.values[f.TICKS][()] == 2
    assert before.values[f.TICKS][()] == 1


def test_the_time_of_moves_is_a_summary_in_seconds(tmp_path: Path):
    bench, state = run_three_ticks(tmp_path)
    values, totals = state.values.snapshot.values[f.MOVE_PAGE], bench.service.totals
    pages = totals.promoted_pages + totals.demoted_pages
    assert values["count",] == totals.move_page_ns.count == pages > 0
    assert values["sum",] == pytest.approx(2e-6 * pages)
    assert [values[q,] for q in ("0.5", "0.99", "1")] == pytest.approx([2e-6] * 3, rel=0.01)
    assert totals.tick_ns.count == 3


def test_a_summary_without_values_has_no_quantiles():
    assert summary_of(Quantiles(), "7") == {("7", "sum"): 0.0, ("7", "count"): 0.0}


def test_the_tick_duration_falls_into_the_bucket_whose_bound_it_does_not_exceed():
    values = Values()
    for seconds in (0.0, BUCKETS[0], BUCKETS[0] * 1.01, BUCKETS[-1], 1e9):
        values.observe_tick(seconds)
    values.publish()
    buckets = values.snapshot.buckets
    assert (buckets[0], buckets[1], buckets[-2], buckets[-1]) == (2, 1, 1, 1)
    assert sum(buckets) == 5


def test_the_series_of_a_family_are_bounded_and_what_is_folded_is_counted():
    values = Values()
    for number in range(MOST_SERIES + 10):
        values.add(f.HELD_BACK, 1, f"reason {number}")
    values.add(f.HELD_BACK, 1, "reason 0")
    values.publish()
    series = values.snapshot.values[f.HELD_BACK]
    assert len(series) == MOST_SERIES + 1
    assert series[(OTHER,)] == 10
    assert series[("reason 0",)] == 2
    assert values.snapshot.values[f.FOLDED][("reason",)] == 10


def test_the_largest_groups_are_told_apart_and_keep_their_places():
    groups = Groups(2)
    assert groups.choose({"/a": 1, "/b": 3, "/c": 2}) == frozenset()
    assert [groups.name(name) for name in ("/a", "/b", "/c")] == [OTHER, "/b", "/c"]
    assert groups.folded == 1
    groups.choose({"/a": 9, "/b": 3, "/c": 2})
    assert groups.name("/a") == OTHER
    assert groups.choose({"/a": 9, "/c": 2}) == {"/b"}
    assert groups.name("/a") == "/a"
    assert groups.folded == 0
    assert Groups(0).name("/x") == OTHER


def test_many_groups_end_up_in_few_series(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    limit = bench.service.config.metrics.groups
    first = bench.tracking.targets[0]
    bench.tracking.targets.update(
        {n: dataclasses.replace(first, number=n, cgroup=f"/pod{n}") for n in range(1, 500)}
    )
    bench.source.on_poll = interrupt_at(2)
    bench.service.run()
    values = desk.state.values.snapshot.values
    assert len(values[f.GROUP_RESIDENT]) == limit + 1
    assert sum(values[f.GROUP_TARGETS].values()) == 500
    assert values[f.FOLDED][("cgroup",)] == 500 - limit


def test_a_groups_name_is_a_valid_label_whatever_it_holds():
    assert label("/a b/ü") == "/a b/ü"
    assert label("/x\n\x00\udcff") == "/x\\n\\x00\\udcff"
    assert len(label("/" + "\n" * 5000)) == 256


def test_what_costs_time_by_the_number_of_targets_is_not_done_each_tick(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    asked = []
    targets = bench.tracking.targets

    class Counted(type(bench.tracking)):  # type: ignore[misc]
        @property
        def targets(self) -> dict[int, Target]:
            asked.append(1)
            return targets

        @targets.setter
        def targets(self, value: object) -> None:
            pass

    bench.tracking.__class__ = Counted
    bench.source.on_poll = interrupt_at(20)
    bench.service.run()
    seconds = (bench.seen[-1].time_ns - bench.seen[0].time_ns) / SLOW_NS
    assert 1 <= len(asked) <= 2 + seconds
    assert desk.state.values.snapshot.values[f.TICKS][()] == 20
