# SPDX-License-Identifier: Apache-2.0
"""What is made of outcomes and of reports, against the same done page by page."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import PAGE_SIZE, VPN_BITS
from tierd.migration.fastpath_update import OUTCOME, OutcomeArray, join
from tierd.migration.results import directed_flows, flows, outcomes_of, pages_moved, report_of

NOTHING = {"moved_bytes": 0, "duration_ns": 0, "cpu_ns": 0, "retries": 0, "errors": {}}
COLUMNS = ("page", "heat", "source", "dest", "order", "direction")


def outcomes(n: int, *, targets: int = 3, seed: int = 0) -> OutcomeArray:
    random = np.random.default_rng(seed)
    made = np.zeros(n, OUTCOME)
    made["page"] = random.integers(0, 1 << 30, n).astype(np.uint64) << np.uint64(9)
    made["page"] |= random.integers(0, targets, n).astype(np.uint64) << np.uint64(VPN_BITS)
    made["time_ns"] = np.arange(n)
    made["heat"] = random.random(n)
    for name in ("source", "dest", "node"):
        made[name] = random.integers(-1, 4, n)
    made["order"] = random.choice([0, 9], n, p=[0.9, 0.1])
    made["fate"] = random.integers(0, len(Fate), n)
    made["direction"] = random.integers(0, 2, n)
    return made


@pytest.mark.parametrize("n", [0, 1, 500])
def test_a_report_has_what_was_tried_in_order(n: int) -> None:
    made = outcomes(n)
    tried = made[made["fate"] != Fate.NOT_TRIED]
    report = report_of(made, **NOTHING)  # type: ignore[arg-type]
    for name in COLUMNS:
        assert getattr(report.plan, name).tolist() == tried[name].tolist()
    assert report.fate.tolist() == tried["fate"].tolist()
    assert report.node.tolist() == tried["node"].tolist()


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("n", [0, 3, 500])
def test_pages_that_moved_are_told_one_by_one(n: int, direction: Direction) -> None:
    made = outcomes(n)
    moved = made[(made["fate"] == Fate.MOVED) & (made["direction"] == direction)]
    pages = [int(e["page"]) + k for e in moved for k in range(1 << int(e["order"]))]
    assert pages_moved(made, direction).tolist() == pages


@pytest.mark.parametrize("targets", [1, 3, 1000])
def test_flows_are_what_moved_by_target_and_way(targets: int) -> None:
    report = report_of(outcomes(2000, targets=targets), **NOTHING)  # type: ignore[arg-type]
    plan, expected = report.plan, Counter[tuple[int, int, int, int]]()
    for i in np.flatnonzero(report.fate == Fate.MOVED):
        target, direction = int(plan.page[i]) >> VPN_BITS, int(plan.direction[i])
        way = target, int(plan.source[i]), int(plan.dest[i]), direction
        expected[way] += PAGE_SIZE << int(plan.order[i])
    told = Counter[tuple[int, int, int, int]]()
    for flow in directed_flows(report):
        told[flow.target, flow.source, flow.dest, flow.direction] += flow.bytes
    assert told == expected
    assert targets > 1 or len(directed_flows(report)) == len(expected)
    assert flows(report) == [flow[:4] for flow in directed_flows(report)]


def test_nothing_flows_where_nothing_moved() -> None:
    assert flows(MigrationResult.not_tried(MigrationPlan.empty())) == []
    still = outcomes(20)
    still["fate"] = Fate.BUSY
    assert flows(report_of(still, **NOTHING)) == []  # type: ignore[arg-type]


@given(st.integers(0, 40), st.lists(st.integers(0, 39), unique=True))
def test_moves_of_a_report_are_told_as_outcomes(n: int, chosen: list[int]) -> None:
    report = report_of(outcomes(n), **NOTHING)  # type: ignore[arg-type]
    at = np.array([each for each in sorted(chosen) if each < len(report.plan)], np.intp)
    told = outcomes_of(report, 77, at)
    for name in COLUMNS:
        assert told[name].tolist() == getattr(report.plan, name)[at].tolist()
    assert told["fate"].tolist() == report.fate[at].tolist()
    assert told["node"].tolist() == report.node[at].tolist()
    assert set(told["time_ns"]) <= {77}
    assert np.isnan(told["bar"]).all()
    # Reasons 0 and 1: a promotion is hotter than the coldest, a demotion makes room.
    assert (told["reason"] == (told["direction"] == Direction.DEMOTE)).all()


def test_parts_are_joined_in_order() -> None:
    made = outcomes(30)
    assert join([]).dtype == OUTCOME
    assert len(join([made[:0], made[:0]])) == 0
    assert join([made[:0], made]) is made
    assert join([made[:10], made[:0], made[10:]]).tolist() == made.tolist()
