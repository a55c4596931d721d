# SPDX-License-Identifier: Apache-2.0
"""What targets have where, and the groups that the policy is given."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
from loopbench import CONFIG, Bench, interrupt_at, tier_map

from tierd.config.whole import loads
from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import HUGE_BYTES, make_keys
from tierd.engine.groups import ResidentBytes, Shares
from tierd.engine.pressure import CgroupPressureMonitor
from tierd.policy.limits import NO_LIMIT

RULES = """
[[rule]]
name = "a"
match = { pid = 1 }
fast_min = "10%"
fast_max = "50%"
rate_limit = "1MB/s"
[[rule]]
name = "b"
match = { pid = 2 }
"""
MIB = 1 << 20


def report(*moves: tuple[int, int, int, int, Fate]) -> MigrationResult:
    """From (target, order, source, dest, fate)."""
    target, order, source, dest, fate = (np.array(column) for column in zip(*moves, strict=True))
    page = np.concatenate(
        [make_keys(int(t), np.array([i * 512], np.uint64)) for i, t in enumerate(target)]
    )
    n = len(moves)
    plan = MigrationPlan(
        page=page,
        order=order.astype(np.uint8),
        source=source.astype(np.int16),
        dest=dest.astype(np.int16),
        direction=np.zeros(n, np.uint8),
        heat=np.zeros(n, np.float32),
    )
    return MigrationResult(plan, fate.astype(np.uint8), plan.dest, {}, 0, 0, 0, 0)


def walked(resident_bytes: ResidentBytes, number: int, *found: tuple[int, int, int]) -> None:
    """Count (pages, node, order) and end the walk."""
    resident_bytes.begin(number)
    for pages, node, order in found:
        resident_bytes.count(
            number, np.full(pages, node, np.int16), np.full(pages, order, np.uint8)
        )
    resident_bytes.finish(number)


def test_a_walk_counts_bytes_by_node() -> None:
    resident_bytes = ResidentBytes()
    walked(resident_bytes, 3, (10, 0, 0), (2, 1, 9), (5, -1, 0))
    assert resident_bytes.of(3) == {0: 40960, 1: 4 * MIB}
    assert resident_bytes.of(4) == {}


def test_before_the_first_whole_walk_what_was_found_counts() -> None:
    resident_bytes = ResidentBytes()
    resident_bytes.begin(3)
    resident_bytes.count(3, np.zeros(2, np.int16), np.zeros(2, np.uint8))
    assert resident_bytes.of(3) == {0: 8192}
    resident_bytes.finish(3)
    resident_bytes.begin(3)
    assert resident_bytes.of(3) == {0: 8192}  # until the next one is whole


def test_moves_count_until_the_next_walk() -> None:
    resident_bytes = ResidentBytes()
    walked(resident_bytes, 3, (4, 0, 9))
    walked(resident_bytes, 4, (10, 1, 0))
    resident_bytes.moved(
        report(
            (3, 9, 0, 1, Fate.MOVED),
            (3, 9, 0, 1, Fate.BUSY),
            (4, 0, 1, 0, Fate.MOVED),
            (4, 0, 1, 0, Fate.MOVED),
            (9, 0, 1, 0, Fate.MOVED),
        )
    )
    assert resident_bytes.of(3) == {0: 6 * MIB, 1: 2 * MIB}
    assert resident_bytes.of(4) == {0: 8192, 1: 8 * 4096}
    resident_bytes.forget(3)
    assert resident_bytes.of(3) == {}


def test_what_came_from_nobody_knows_where_is_there_now() -> None:
    resident_bytes = ResidentBytes()
    walked(resident_bytes, 3, (1, 0, 0))
    resident_bytes.moved(report((3, 0, -1, 0, Fate.MOVED), (3, 0, 1, 0, Fate.MOVED)))
    assert resident_bytes.of(3) == {0: 3 * 4096, 1: 0}


def test_groups_sum_the_targets_of_a_rule() -> None:
    resident_bytes = ResidentBytes()
    walked(resident_bytes, 0, (10, 0, 0))
    walked(resident_bytes, 2, (5, 0, 0), (1, 1, 0))
    walked(resident_bytes, 3, (7, 1, 0))
    shares = Shares(loads(RULES).rules)
    groups = shares.groups({0: 0, 2: 0, 3: -1, 5: 1}, resident_bytes, 0.5)
    assert groups is not None
    assert groups.of_target.tolist() == [0, -1, 0, -1, -1, 1]
    assert groups.floor.tolist() == [0.1, 0.0]
    assert groups.cap.tolist() == [0.5, 1.0]
    assert groups.resident[0].tolist() == [15 * 4096, 0]
    assert groups.resident[1].tolist() == [4096, 0]
    assert groups.budget[1] == NO_LIMIT


def test_without_rules_there_are_no_groups() -> None:
    assert Shares(()).groups({0: -1}, ResidentBytes(), 1.0) is None


def test_a_groups_rate_is_saved_up_to_a_burst_and_spent_by_moves() -> None:
    shares = Shares(loads(RULES).rules)
    rules = {0: 0, 1: 1}

    def budget(elapsed_s: float) -> int:
        groups = shares.groups(rules, ResidentBytes(), elapsed_s)
        assert groups is not None
        return int(groups.budget[0])

    assert budget(100.0) == 2 * HUGE_BYTES
    moves = [(0, 9, 0, 1, Fate.MOVED), (0, 9, 0, 1, Fate.BUSY), (1, 9, 0, 1, Fate.MOVED)]
    shares.spent(rules, report(*moves))
    assert budget(0.0) == 2 * HUGE_BYTES - 2 * MIB
    assert budget(0.5) == 2 * HUGE_BYTES - 2 * MIB + 500_000
    assert budget(100.0) == 2 * HUGE_BYTES


def test_the_loop_gives_the_policy_its_groups_and_a_reload_changes_them() -> None:
    bench = Bench(tier_map(118, 430))
    bench.service.reconfigure(loads(RULES.replace('"50%"', '"40%"') + CONFIG))
    bench.tracking.on_tick = lambda count: (
        bench.service.reconfigure(loads(CONFIG)) if count == 2 else None,
        interrupt_at(3)(count),
    )
    bench.service.run()
    assert bench.seen[0].groups is not None
    assert bench.seen[0].groups.cap.tolist() == [0.4, 1.0]
    assert bench.seen[1].groups is None


def test_targets_of_strained_control_groups_are_groups_with_a_small_budget() -> None:
    resident_bytes = ResidentBytes()
    for number in range(3):
        resident_bytes.begin(number)
        resident_bytes.count(number, np.array([number % 2], np.int16), np.array([9], np.uint8))
        resident_bytes.finish(number)
    without = Shares(())
    assert without.groups({0: -1, 1: -1, 2: -1}, resident_bytes, 1.0) is None
    one = without.groups({0: -1, 1: -1, 2: -1}, resident_bytes, 1.0, {1}, 5 * MIB)
    assert one is not None
    assert one.of_target.tolist() == [-1, 0, -1]
    assert (one.floor.tolist(), one.cap.tolist(), one.budget.tolist()) == ([0], [1], [5 * MIB])
    assert one.resident[1].tolist() == [2 * MIB]
    ruled = Shares(loads(CONFIG + RULES).rules)
    both = ruled.groups({0: 0, 1: 1, 2: -1}, resident_bytes, 1.0, {1, 2}, MIB)
    assert both is not None
    assert both.of_target.tolist() == [0, 1, 2]
    assert both.budget.tolist() == [2 * HUGE_BYTES, MIB, MIB]
    assert both.floor.tolist() == [0.1, 0.0, 0.0]
    assert both.cap.tolist() == [0.5, 1.0, 1.0]


def test_a_control_group_that_waits_for_memory_has_an_eighth_of_the_budget(tmp_path: Path) -> None:
    folder = tmp_path / "init.scope"
    folder.mkdir()
    (folder / "memory.pressure").write_text("some avg10=50.00 avg60=0.00 avg300=0.00 total=1\n")
    bench = Bench(tier_map(118, 430))
    bench.service.work.components = dataclasses.replace(
        bench.service.components, cgroup_pressure=CgroupPressureMonitor(tmp_path)
    )
    bench.tracking.on_tick = interrupt_at(3)
    bench.service.run()
    assert bench.seen[0].groups is None  # nothing of it had moved
    assert len(bench.seen[0].plan)
    groups, budget = bench.seen[1].groups, bench.seen[1].budget
    assert groups is not None
    assert budget is not None
    assert groups.of_target.tolist() == [0]
    assert groups.budget.tolist() == [budget.move_bytes // 8]
