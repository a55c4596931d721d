# SPDX-License-Identifier: Apache-2.0
"""What the lab says of single pages' moves and of watermarks: one rule a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from movewatch import MoveWatch

from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult
from tierd.core.tiermap import NodeUsage

PAGE = 4096
TOTAL = 1000 * PAGE


def tick(
    second: float,
    moves: Sequence[tuple[int, int, int]] = (),
    free: Mapping[int, int] = {0: 500, 1: 500},
    fate: Fate = Fate.MOVED,
) -> Any:
    """At a second: (page, source, dest) that moved, and free pages by node before."""
    page, source, dest = np.array(moves or np.zeros((0, 3))).T
    plan = MigrationPlan(
        page=page.astype(np.uint64),
        order=np.zeros(len(page), np.uint8),
        source=source.astype(np.int16),
        dest=dest.astype(np.int16),
        direction=np.full(len(page), Direction.DEMOTE, np.uint8),
        heat=np.ones(len(page), np.float32),
    )
    fates = np.full(len(page), fate, np.uint8)
    report = MigrationResult(plan, fates, plan.dest, {}, 0, 0, 0, 0) if len(page) else None
    usage = {node: NodeUsage(TOTAL, pages * PAGE, 0) for node, pages in free.items()}
    now_ns = int((1 + second) * 1e9)
    return SimpleNamespace(
        time_ns=now_ns, end_ns=now_ns + 10**8, plan=plan, report=report, usage=usage
    )


def watched(*ticks: Any) -> dict[str, Any]:
    watch = MoveWatch(low_watermark=0.1, min_residency_s=5)
    for each in ticks:
        watch.on_tick(each)
    return watch.as_json()


def test_a_page_that_moves_again_within_residency_bounces() -> None:
    told = watched(tick(0, [(7, 0, 1), (8, 0, 1)]), tick(3, [(7, 1, 0)]), tick(9, [(8, 1, 2)]))
    assert (told["bounces"], told["bounces_back"], told["most_bounces_of_a_page"]) == (1, 1, 1)
    assert told["shortest_between_moves_s"] == 3.1
    assert (told["moves"], told["pages_moved"], told["most_moves_of_a_page"]) == (4, 2, 2)


def test_a_move_that_failed_is_none() -> None:
    told = watched(tick(0, [(7, 0, 1)]), tick(1, [(7, 1, 0)], fate=Fate.BUSY))
    assert (told["bounces"], told["moves"]) == (0, 1)


def test_a_plan_that_leaves_less_than_the_low_watermark_dug() -> None:
    told = watched(tick(0, [(7, 0, 1)], {0: 500, 1: 100}), tick(1, [(8, 0, 1)], {0: 500, 1: 101}))
    assert told["plans_that_dug_below_low"] == 1
    assert told["the_deepest_of_them"] == [(0.0, 1, PAGE)]


def test_a_plan_that_takes_away_as_much_as_it_brings_did_not() -> None:
    told = watched(tick(0, [(7, 1, 0), (8, 0, 1)], {0: 500, 1: 50}))
    assert told["plans_that_dug_below_low"] == 0


def test_time_below_the_low_watermark_is_counted_until_it_is_met() -> None:
    below, above = {0: 99, 1: 500}, {0: 100, 1: 500}
    told = watched(*(tick(s, free=below if 2 <= s < 6 or s == 9 else above) for s in range(12)))
    assert told["longest_below_low_s"] == {"0": 3}
    assert told["free_bytes_least_and_most"]["0"] == [99 * PAGE, 100 * PAGE]
