# SPDX-License-Identifier: Apache-2.0
"""The standing account on a model of memory: when moving pays, when not, and when it does harm."""

from __future__ import annotations

import math
from collections.abc import Callable
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
HALF_LIFE_NS = 5 * 10**9
HEAT_S = 5 / math.log(2)
PAYS_IN_S = 0.5
SEEDS = (1, 2, 3)

F64Array = np.ndarray[Any, np.dtype[np.float64]]


class Card:
    """Counts requests; all that the account asks of a source."""

    def __init__(self) -> None:
        self.count: int | None = 0

    def requests(self) -> int | None:
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

    def shift(self) -> None:
        """Other pages become hot."""
        self.rate = self.random.permutation(self.rate)

    def second(self, told: F64Array, moves: int = 40) -> None:
        """The account, so many promotions and demotions, and a second of accesses."""
        self.undone |= self.account.see(self.card, self.now_ns, PAYS_IN_S)  # type: ignore[arg-type]
        if not self.account.stands:
            slow, fast = np.flatnonzero(self.node == 1), np.flatnonzero(self.node == 0)
            up = slow[np.argsort(-told[slow])[:moves]]
            down = fast[np.argsort(told[fast])[:moves]]
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
        self.account.moved(report, TIERS, HALF_LIFE_NS)


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
    memory.node[:] = 1
    memory.node[np.argsort(-memory.rate)[:FAST_PAGES]] = 0
    for _ in range(30):
        memory.second(exchanged(memory))
    assert memory.account.stands
    assert memory.account.harmful
    assert memory.undone
    assert memory.account.part[0] != memory.account.part[0]  # what was known is forgotten


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
    memory.node[:] = 1
    memory.node[np.argsort(-memory.rate)[:FAST_PAGES]] = 0
    begins, ends = [], []
    for second in range(1500):
        stood = memory.account.stands
        memory.second(exchanged(memory) if len(ends) < 2 else right(memory))
        if memory.account.stands != stood:
            (ends if stood else begins).append(second)
        if memory.account.stands and not stood:
            memory.node[:] = 1
            memory.node[np.argsort(-memory.rate)[:FAST_PAGES]] = 0
    assert len(begins) == len(ends) == memory.account.times == 2
    waits = [end - begin for begin, end in zip(begins, ends, strict=True)]
    assert waits == [ACCOUNT.retry_ns // 10**9, 2 * ACCOUNT.retry_ns // 10**9]


@pytest.mark.parametrize("change", [lambda m: setattr(m.card, "count", None), lambda m: None])
def test_where_nothing_is_counted_nothing_is_concluded(change: Callable[[Memory], None]) -> None:
    memory = Memory(1)
    for _ in range(30):
        assert not memory.account.see(None, memory.now_ns, PAYS_IN_S)
        change(memory)
        memory.now_ns += 10**9
    assert math.isnan(memory.account.part[0])
    assert not memory.account.stands


def test_an_end_begins_anew() -> None:
    memory = Memory(2)
    while not memory.account.stands:
        memory.second(exchanged(memory))
    assert memory.account.as_json()["again_in_s"] > 0
    memory.account.end()
    assert not memory.account.stands
    assert memory.account.as_json()["again_in_s"] is None
    assert memory.account.times == 1
