# SPDX-License-Identifier: Apache-2.0
"""The standing account on a model of memory: when moving pays, when not, and when it does harm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from madeup_host import two_tiers

from tierd.core.access import LINES_PER_PAGE
from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.core.tuning import ACCOUNT
from tierd.engine.standing_account import StandingAccount

PAGES, FAST_PAGES = 4000, 1000
TIERS = two_tiers((FAST_PAGES, PAGES))
HALF_LIFE_S = 5.0
HEAT_S = 5 / math.log(2)
PAYS_IN_S = 0.5
SEEDS = (1, 2, 3)

F64Array = np.ndarray[Any, np.dtype[np.float64]]


class Card:
    """Counts requests; all that the account asks of a source."""

    def __init__(self) -> None:
        self.count: int | None = 0

    counted_nodes = frozenset({1})

    def counted_requests(self) -> int | None:
        return self.count


class Memory:
    """Pages with true rates, and a service that moves them by what a source says of them."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.rate: F64Array = np.full(PAGES, 2.0)
        self.rate[self.random.permutation(PAGES)[: FAST_PAGES // 2]] = 2000.0
        self.node = np.ones(PAGES, np.int16)
        self.node[:FAST_PAGES] = 0
        self.card, self.account = Card(), StandingAccount()
        self.noise = 0.02
        self.now_ns = 10**9
        self.undone = False

    def place(self) -> None:
        """Have the hottest pages in fast memory."""
        self.node[:] = 1
        self.node[np.argsort(-self.rate, kind="stable")[:FAST_PAGES]] = 0

    def shift(self) -> None:
        """Other pages become hot."""
        self.rate = self.random.permutation(self.rate)

    def ranked(self, value: F64Array) -> np.ndarray[Any, np.dtype[np.intp]]:
        """From least to most; equals by chance, and not as this CPU's sort leaves them."""
        return np.lexsort((self.random.permutation(len(value)), value))

    def second(self, told: F64Array, moves: int = 40) -> None:
        """The account, so many promotions and demotions, and a second of accesses."""
        self.undone |= self.account.see(self.card, self.now_ns, PAYS_IN_S)  # type: ignore[arg-type]
        if not self.account.holds:
            slow, fast = np.flatnonzero(self.node == 1), np.flatnonzero(self.node == 0)
            up = slow[self.ranked(-told[slow])[:moves]]
            down = fast[self.ranked(told[fast])[:moves]]
            better = told[up] > told[down]
            self.move(up[better], down[better], told)
        served = self.rate[self.node == 1].sum() * self.random.normal(1, self.noise)
        assert self.card.count is not None
        self.card.count += max(0, int(served))
        self.now_ns += 10**9

    def move(self, up: Any, down: Any, told: F64Array) -> None:
        """Exchange pages, and tell the account."""
        page = np.concatenate([down, up])
        direction = np.repeat([0, 1], [len(down), len(up)]).astype(np.uint8)
        plan = MigrationPlan(
            page=page.astype(np.uint64),
            order=np.zeros(len(page), np.uint8),
            source=self.node[page],
            dest=(1 - direction).astype(np.int16),
            direction=direction,
            heat=(told[page] * HEAT_S).astype(np.float32),
        )
        self.node[page] = plan.dest
        fate = np.full(len(page), Fate.MOVED, np.uint8)
        report = MigrationResult(plan, fate, plan.dest, {}, len(page) << 12, 1, 1, 0)
        assert self.card.count is not None
        self.card.count += len(page) * LINES_PER_PAGE
        self.account.moved(report, TIERS, HALF_LIFE_S)


def right(memory: Memory) -> F64Array:
    """A source that tells the truth, but for chance."""
    return memory.random.poisson(memory.rate).astype(np.float64)


def exchanged(memory: Memory) -> F64Array:
    """A source that takes the hot for cold and the cold for hot."""
    return memory.rate.max() + memory.rate.min() - right(memory)


def at_random(memory: Memory) -> F64Array:
    """A source whose counts have nothing to do with the pages that it tells of."""
    return memory.random.permutation(right(memory))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_right_source_predicts_comes_true_and_the_service_acts(seed: int) -> None:
    memory = Memory(seed)
    for _ in range(12):
        memory.second(right(memory))
    part, error = memory.account.part
    assert part == pytest.approx(1, abs=4 * error + 0.1)
    for second in range(200):
        if second % 37 == 0:
            memory.shift()
        memory.second(right(memory))
        assert not memory.account.stands


@pytest.mark.parametrize("seed", SEEDS)
def test_exchanged_hot_and_cold_pages_are_found_out_within_30_s_and_undone(seed: int) -> None:
    memory = Memory(seed)
    memory.place()
    for _ in range(30):
        memory.second(exchanged(memory))
    assert memory.account.stands
    assert memory.account.harmful
    assert memory.undone
    assert memory.account.as_json()["part_seen"] < 0


@pytest.mark.parametrize("seed", SEEDS)
def test_moves_without_an_effect_end_and_are_not_undone(seed: int) -> None:
    memory = Memory(seed)
    memory.rate[:] = 500.0  # all alike, so that no move can help
    memory.noise = 0.002
    for _ in range(30):
        told = at_random(memory) * memory.random.choice([1.0, 4.0], PAGES)
        memory.second(told, moves=800)
    assert memory.account.stands
    assert not memory.undone


def test_few_moves_without_an_effect_go_on() -> None:
    memory = Memory(1)
    memory.rate[:] = 500.0
    memory.noise = 0.002
    for _ in range(60):
        memory.second(at_random(memory), moves=20)
    assert not memory.account.stands


def test_a_service_that_stood_down_tries_again_and_waits_longer_each_time() -> None:
    memory = Memory(1)
    memory.place()
    begins, ends = [], []
    for second in range(1500):
        stood = memory.account.stands
        memory.second(exchanged(memory) if len(ends) < 2 else right(memory))
        if memory.account.stands != stood:
            (ends if stood else begins).append(second)
        if memory.account.stands and not stood:
            memory.place()
    assert len(begins) == len(ends) == memory.account.times == 2
    waits = [end - begin for begin, end in zip(begins, ends, strict=True)]
    assert waits == [ACCOUNT.retry_ns // 10**9, 2 * ACCOUNT.retry_ns // 10**9]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_load_that_grows_is_no_harm_of_the_moves(seed: int) -> None:
    memory = Memory(seed)
    memory.rate[: PAGES // 2] *= 3  # so that it takes long until all hot pages are in
    for _ in range(120):
        memory.rate *= 1.04
        memory.second(right(memory), moves=4)
        assert not memory.account.stands


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lie_at_a_steady_pace_is_found_out_by_a_control(seed: int) -> None:
    memory = Memory(seed)
    memory.noise = 0.001
    memory.place()
    flat = np.full(PAGES, 100.0)
    controls = 0
    for _ in range(40):
        told = flat + 100 * (memory.node == 1) * (memory.rate < 10)
        memory.second(told, moves=10)
        controls += memory.account.holds and not memory.account.stands
    assert memory.account.stands
    assert controls > 0
    assert memory.undone


@pytest.mark.parametrize("what", ["silent", "not counted", "nodes without cards"])
def test_where_nothing_is_counted_nothing_is_concluded(what: str) -> None:
    memory = Memory(1)
    memory.place()
    if what == "nodes without cards":
        memory.card.counted_nodes = frozenset()
    for _ in range(40):
        if what == "not counted":
            memory.account.see(memory.card, memory.now_ns, PAYS_IN_S, counts=False)  # type: ignore[arg-type]
        else:
            memory.second(exchanged(memory))
        if what == "silent":
            count, memory.card.count = memory.card.count, None
            memory.account.see(memory.card, memory.now_ns, PAYS_IN_S)  # type: ignore[arg-type]
            memory.card.count = count
    assert math.isnan(memory.account.part[0])
    assert not memory.account.stands


def test_another_source_begins_anew_and_ends_the_wait() -> None:
    memory = Memory(1)
    memory.place()
    for _ in range(60):
        if not memory.account.stands:
            memory.second(exchanged(memory))
    assert memory.account.stands
    assert memory.account.as_json()["part_seen"] < 0
    memory.card = Card()  # what it counted is less than the one before it
    memory.second(right(memory))
    assert not memory.account.stands
    for _ in range(30):
        memory.second(right(memory))
        assert not memory.account.stands


def test_demotions_for_free_memory_cost_nothing_here() -> None:
    memory = Memory(1)
    memory.noise = 0.001
    for _ in range(60):
        memory.account.see(memory.card, memory.now_ns, PAYS_IN_S)  # type: ignore[arg-type]
        memory.node[:FAST_PAGES] = 0  # new pages come in their place
        memory.move(np.empty(0, np.int64), np.arange(FAST_PAGES), np.full(PAGES, 0.01))
        memory.card.count = (memory.card.count or 0) + 10**6
        memory.now_ns += 10**9
        assert not memory.account.stands


def test_a_folio_counts_as_its_pages_and_moves_that_no_card_sees_do_not_count() -> None:
    account, card = StandingAccount(), Card()
    account.see(card, 10**9, PAYS_IN_S)  # type: ignore[arg-type]
    plan = MigrationPlan(
        page=np.array([0, 512, 1024], np.uint64),
        order=np.array([9, 0, 0], np.uint8),
        source=np.array([1, 0, 1], np.int16),
        dest=np.array([0, 0, 0], np.int16),
        direction=np.array([1, 1, 1], np.uint8),
        heat=np.full(3, HEAT_S, np.float32),
    )
    fate = np.array([Fate.MOVED, Fate.MOVED, Fate.BUSY], np.uint8)
    account.moved(MigrationResult(plan, fate, plan.dest, {}, 0, 1, 1, 0), TIERS, HALF_LIFE_S)
    account._sum_up()
    assert account._fell == pytest.approx(512)
    assert account._copies == account._moves == 512
    saved_ns = TIERS.tiers[1].latency_ns.value - TIERS.tiers[0].latency_ns.value
    assert account._saved == pytest.approx(512 * saved_ns / 1e9)


def test_an_end_begins_anew() -> None:
    memory = Memory(2)
    memory.place()
    for _ in range(60):
        if not memory.account.stands:
            memory.second(exchanged(memory))
    assert memory.account.stands
    assert memory.account.as_json()["again_in_s"] > 0
    memory.account.end()
    assert not memory.account.stands
    assert memory.account.as_json()["again_in_s"] is None
    assert memory.account.times == 1
