# SPDX-License-Identifier: Apache-2.0
"""Why a page is where it is: the log of decisions, and the rule asked again."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies import watermarks

from tierd.core.access import AccessBatch
from tierd.core.migration import WORDS, Direction, Fate, MigrationPlan, MigrationResult, Reason
from tierd.core.pagekey import VPN_BITS
from tierd.core.tiermap import (
    MemoryKind,
    MemoryNode,
    NodeUsage,
    Provenance,
    Quantity,
    Tier,
    TierMap,
)
from tierd.hotness.table import HeatTable
from tierd.hotness.view import PageSet
from tierd.observe.decisions import ENTRY, DecisionLog
from tierd.observe.explain import Explainer
from tierd.policy.inputs import Inputs
from tierd.policy.limits import Budget
from tierd.policy.page_out import IN_SWAP
from tierd.policy.rule import Verdict
from tierd.policy.watermark import WatermarkPolicy

S = 10**9
TARGET, PID = 3, 4242
BASE = TARGET << VPN_BITS
GIB = 1 << 30


def two_tiers() -> TierMap:
    tiers, nodes = [], {}
    for rank, (latency, kind) in enumerate(((118, MemoryKind.DRAM), (430, MemoryKind.CXL))):
        figures = (Quantity(latency, Provenance.HMAT), Quantity(1e11, Provenance.HMAT))
        nodes[rank] = MemoryNode(rank, GIB, frozenset(), kind, *figures)
        tiers.append(Tier(rank, str(kind), kind, (rank,), GIB, *figures))
    return TierMap(tuple(tiers), nodes)


class Around:
    """The service's state."""

    epoch_ns = 5 * S

    def __init__(self) -> None:
        self.pids = lambda: {TARGET: PID}
        self.tiers = two_tiers()
        self.usage = {0: NodeUsage(GIB, GIB // 50, 0), 1: NodeUsage(GIB, GIB // 2, 0)}

    def movable(self, key: int) -> bool:
        return key >> VPN_BITS == TARGET and key & 0xFFFF >= 0x1000

    def thresholds(self) -> dict[str, int]:
        return {"0": 17}


class Bench:
    def __init__(self) -> None:
        self.heat = HeatTable(capacity_pages=10_000, half_life_s=5.0)
        self.log = DecisionLog(64)
        self.around = Around()
        self.explainer = Explainer(self.heat, self.log, self.around)
        self.explainer.judge = self.judge
        self.exchanged: frozenset[int] = frozenset()
        self.now = S

    def judge(self, page: PageSet) -> Verdict:
        inputs = Inputs(
            self.heat, two_tiers(), self.around.usage, Budget(1 << 40), exchanged=self.exchanged
        )
        return WatermarkPolicy(watermarks()).explain(inputs, page)

    def page(self, vpn: int, node: int, accesses: float) -> None:
        key = np.array([BASE | vpn], np.uint64)
        count = np.array([max(accesses, 1e-6)], np.float32)
        self.heat.ingest(AccessBatch(key, count, self.now, "test"))
        self.heat.place(key, np.array([node], np.int16), np.zeros(1, np.uint8), insert_on=())

    def moved(
        self, vpn: int, fate: Fate, direction: Direction, heat: float = 9.0
    ) -> MigrationResult:
        key = np.array([BASE | vpn], np.uint64)
        source, dest = (1, 0) if direction is Direction.PROMOTE else (0, 1)
        plan = MigrationPlan(
            key,
            np.zeros(1, np.uint8),
            np.array([source], np.int16),
            np.array([dest], np.int16),
            np.array([direction], np.uint8),
            np.array([heat], np.float32),
        )
        node = np.array([dest if fate is Fate.MOVED else source], np.int16)
        return MigrationResult(plan, np.array([fate], np.uint8), node, {}, 4096, 1, 1, 0)

    def explain(self, vpn: int) -> dict[str, Any]:
        told = self.explainer.explain(PID, vpn << 12 | 0x123)
        assert json.loads(json.dumps(told)) == told
        return told


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_process_that_is_not_watched_is_told_as_such(bench: Bench) -> None:
    told = bench.explainer.explain(1, 0x1000)
    assert (told["pid"], told["watched"]) == (1, False)
    assert "not watched" in told["why"]
    with subprocess.Popen(["true"]) as ended:
        pass
    assert "no process has that number" in bench.explainer.explain(ended.pid, None)["why"]


def test_a_page_outside_the_movable_ranges(bench: Bench) -> None:
    assert WORDS[Reason.NOT_MOVABLE] in bench.explain(0x10)["verdict"]


def test_a_page_nobody_has_seen(bench: Bench) -> None:
    told = bench.explain(0x1000)
    assert "no access to it was seen" in told["verdict"]
    assert (told["node"], told["heat"], told["decisions"]) == (None, 0.0, [])
    assert told["thresholds"] == {"0": 17}
    assert "page_out" not in told


def test_a_page_that_was_paged_out_is_told_as_such(bench: Bench) -> None:
    asked: list[int] = []
    bench.explainer.page_out = lambda key: asked.append(key) or IN_SWAP
    told = bench.explain(0x1000)
    assert (told["verdict"], told["page_out"]) == (IN_SWAP, IN_SWAP)
    assert asked == [BASE | 0x1000]
    bench.explainer.page_out = lambda key: "no visit has come to it"
    assert "no access to it was seen" in bench.explain(0x1000)["verdict"]


@pytest.mark.parametrize(
    ("accesses", "victim", "words"),
    [
        (3.0, 0.0, "is not above 6.25"),
        (50.0, 0.0, "will be promoted to dram"),
        (50.0, 40.0, "is not above"),
    ],
)
def test_a_page_of_the_slow_tier_is_told_by_the_policys_rule(
    bench: Bench, accesses: float, victim: float, words: str
) -> None:
    bench.page(0x2000, 0, victim)
    bench.page(0x1000, 1, accesses)
    told = bench.explain(0x1000)
    assert words in told["verdict"]
    assert told["node"] == 1
    assert told["heat"] == pytest.approx(accesses, rel=1e-3)


def test_the_terms_of_a_decision_are_for_scripts_too(bench: Bench) -> None:
    """h = 40 over v = 20: the bar is 20 * 1.5 + 2.5 sqrt(60) = 49.36."""
    bench.page(0x2000, 0, 20)
    bench.page(0x1000, 1, 40)
    assert bench.explain(0x1000)["decision"] == {
        "reason": "not_hotter",
        "direction": None,
        "dest": None,
        "victim": pytest.approx(20, rel=1e-3),
        "bar": pytest.approx(30 + 2.5 * 60**0.5, rel=1e-3),
        "price": pytest.approx(30, rel=1e-3),
    }


def test_a_destination_whose_tier_is_gone_is_named_by_its_node(bench: Bench) -> None:
    bench.page(0x2000, 0, 0.0)
    bench.page(0x1000, 1, 50)
    assert "promoted to dram" in bench.explain(0x1000)["verdict"]
    bench.around.tiers = TierMap((), {})
    assert "promoted to node 0" in bench.explain(0x1000)["verdict"]


def test_before_the_first_decision_nothing_is_promised(bench: Bench) -> None:
    bench.explainer.judge = lambda page: ""
    bench.page(0x1000, 1, 40)
    told = bench.explain(0x1000)
    assert (told["decision"], told["verdict"]) == (
        None,
        "nothing was decided yet, or tierd is paused",
    )


def test_a_page_of_the_fast_path_is_told_by_what_it_did_in_this_epoch(bench: Bench) -> None:
    """What happened before the epoch began says nothing of it."""
    bench.exchanged = frozenset({1})
    bench.page(0x2000, 0, 5)
    bench.page(0x1000, 1, 40)
    refused = np.zeros(1, ENTRY)
    refused["page"], refused["heat"], refused["bar"] = BASE | 0x1000, 7.0, 9.5
    refused["direction"], refused["reason"] = Direction.PROMOTE, Reason.NOT_HOTTER
    refused["time_ns"] = 4 * S
    bench.log.add(refused)
    assert "until a card reports it" in bench.explain(0x1000)["verdict"]
    assert "(17 requests)" in bench.explain(0x1000)["verdict"]
    refused["time_ns"] = 6 * S
    bench.log.add(refused)
    told = bench.explain(0x1000)
    assert told["decision"]["reason"] == "fast_path"
    assert "heat of 7.00 against a bar of 9.50" in told["verdict"]
    assert "held back: " + WORDS[Reason.NOT_HOTTER] in told["verdict"]


def test_a_page_that_was_moved_lately_stays(bench: Bench) -> None:
    bench.page(0x1000, 1, 50)
    report = bench.moved(0x1000, Fate.MOVED, Direction.DEMOTE)
    bench.heat.moved(report)
    bench.log.add_report(report, bench.now)
    told = bench.explain(0x1000)
    assert WORDS[Reason.MOVED_LATELY] in told["verdict"]
    assert told["moved_s_ago"] == pytest.approx(0.0, abs=0.2)
    assert told["decisions"][0]["what"] == "demoted"
    assert told["decisions"][0]["why"] == WORDS[Reason.MAKES_ROOM]


def test_decisions_come_newest_first_and_say_what_became_of_them(bench: Bench) -> None:
    bench.page(0x1000, 1, 50)
    for number, fate in enumerate((Fate.BUSY, Fate.MOVED)):
        bench.log.add_report(bench.moved(0x1000, fate, Direction.PROMOTE), bench.now + number)
    told = bench.explain(0x1000)["decisions"]
    assert [entry["what"] for entry in told] == ["promoted", "promotion failed"]
    assert [entry["fate"] for entry in told] == ["moved", "busy"]


def test_a_page_held_back_says_why_with_the_heat_it_lacked(bench: Bench) -> None:
    bench.page(0x1000, 1, 50)
    held = np.zeros(1, ENTRY)
    held["page"], held["time_ns"], held["node"] = BASE | 0x1000, bench.now, 1
    held["heat"], held["bar"] = 8.0, 9.5
    held["reason"], held["direction"] = Reason.NOT_HOTTER, Direction.PROMOTE
    bench.log.add(held)
    (entry,) = bench.explain(0x1000)["decisions"]
    assert (entry["what"], entry["heat"], entry["bar"]) == ("held back", 8.0, 9.5)
    assert entry["why"] == WORDS[Reason.NOT_HOTTER]


def test_a_process_is_told_by_counts(bench: Bench) -> None:
    for vpn in (0x1000, 0x1001):
        bench.log.add_report(bench.moved(vpn, Fate.MOVED, Direction.PROMOTE), bench.now)
    told = bench.explainer.explain(PID, None)
    assert told["decisions"] == {"promoted": {WORDS[Reason.HOTTER_THAN_THE_COLDEST]: 2}}


@given(st.lists(st.tuples(st.integers(0, 90), st.booleans()), max_size=20))
def test_the_log_keeps_the_latest_and_counts_the_rest(sizes: list[tuple[int, bool]]) -> None:
    log, written = DecisionLog(64), []
    for time, (size, of_a_plan) in enumerate(sizes, 1):
        page = np.full(size, BASE | 7, np.uint64)
        heat = np.arange(len(written), len(written) + size, dtype=np.float32)
        written += [(time, float(each)) for each in heat]
        if of_a_plan:
            node, one = np.zeros(size, np.int16), np.ones(size, np.uint8)
            plan = MigrationPlan(page, 0 * one, node, node, 0 * one, heat)
            log.add_report(MigrationResult(plan, one, node, {}, 0, 1, 1, 0), time)
        else:
            told = np.zeros(size, ENTRY)
            told["page"], told["time_ns"], told["heat"] = page, time, heat
            log.add(told)
    assert log.overwritten == max(0, len(written) - 64)
    found = log.of_page(BASE | 7, most=64)[["time_ns", "heat"]].tolist()
    assert found == written[::-1][:64]
    assert log.every()[["time_ns", "heat"]].tolist() == written[-64:]


def test_a_page_is_told_of_its_folio_and_of_no_neighbour() -> None:
    log = DecisionLog(64)
    told = np.zeros(2, ENTRY)
    told["page"], told["order"], told["time_ns"] = BASE | 0x200, [0, 9], [1, 2]
    log.add(told)
    assert log.of_page(BASE | 0x207)["time_ns"].tolist() == [2]
    assert log.of_page(BASE | 0x200)["time_ns"].tolist() == [2, 1]


def test_the_log_keeps_no_more_plans_than_it_can_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tierd.core.bounds.LOGGED_PLANS", 3)
    log = DecisionLog(64)
    for time in range(1, 6):
        told = np.zeros(2, ENTRY)
        told["page"], told["time_ns"] = BASE | 7, time
        log.add(told)
    assert log.every()["time_ns"].tolist() == [3, 3, 4, 4, 5, 5]
    assert log.overwritten == 4


def test_every_reason_has_words() -> None:
    assert set(WORDS) == set(Reason)
