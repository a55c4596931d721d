# SPDX-License-Identifier: Apache-2.0
"""The heat table against a model in plain Python."""

from __future__ import annotations

import numpy as np
from heat_words import HUGE, S, T, batch, check, place, report
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tierd.core.access import WatchedRange
from tierd.core.migration import Fate
from tierd.hotness.table import HeatTable


class Model(RuleBasedStateMachine):
    """Ingest, time, placement, moves and forgetting, in any order, against dictionaries."""

    blocks = 3

    def __init__(self) -> None:
        super().__init__()
        self.table = HeatTable(capacity_pages=4000, half_life_s=3.0)
        self.now = S
        self.heat: dict[int, float] = {}
        self.node: dict[int, int] = {}
        self.huge: set[int] = set()

    @initialize()
    def begin(self) -> None:
        self.table.advance(self.now)
        place(self.table, [], 0, insert_on=[0])  # from now on node 0 keeps pages without heat

    def _decay(self, time_ns: int) -> None:
        factor = 2.0 ** -((time_ns - self.now) / S / 3.0)
        self.heat = {key: heat * factor for key, heat in self.heat.items()}
        self.now = time_ns

    def _entry(self, key: int) -> int:
        head = key & ~(HUGE - 1)
        return head if head in self.huge else key

    def _forget(self, key: int) -> None:
        self.heat.pop(key, None)
        self.node.pop(key, None)
        self.huge.discard(key)

    def _split(self, head: int) -> None:
        if head in self.huge:
            self.huge.discard(head)
            if self.heat[head] >= 2.0**-14 or self.node[head] == 0:
                for each in range(head + 1, head + HUGE):
                    self.heat[each] = self.heat[head]
                    self.node[each] = self.node[head]

    pages = st.lists(st.integers(0, blocks * HUGE - 1), min_size=1, max_size=40)

    @rule(page=pages, count=st.floats(0.25, 100.0, width=32), wait=st.integers(0, 20))
    def ingest(self, page: list[int], count: float, wait: int) -> None:
        self._decay(self.now + wait * S)
        keys = [T + each for each in page]
        self.table.ingest(batch(keys, count, at=self.now))
        for key in keys:
            entry = self._entry(key)
            amount = count / HUGE if entry in self.huge else count
            self.heat[entry] = self.heat.get(entry, 0.0) + amount
            self.node.setdefault(entry, -1)

    @rule(wait=st.integers(1, 400))
    def advance(self, wait: int) -> None:
        self._decay(self.now + wait * S)
        self.table.advance(self.now)

    @rule(block=st.integers(0, blocks - 1), node=st.integers(0, 2), inside=st.integers(0, 511))
    def join(self, block: int, node: int, inside: int) -> None:
        head = T + block * HUGE
        place(self.table, [head + inside], node, order=9, insert_on=[0])
        self._join(head, node, insert=node == 0)

    def _join(self, head: int, node: int, *, insert: bool = False) -> None:
        if head not in self.huge:
            known = [key for key in range(head, head + HUGE) if key in self.heat]
            if not known and not insert:
                return
            total = sum(self.heat[key] for key in known)
            for key in known:
                self._forget(key)
            self.heat[head] = total / HUGE
            self.huge.add(head)
        self.node[head] = node

    @rule(page=pages, node=st.integers(0, 2))
    def place(self, page: list[int], node: int) -> None:
        place(self.table, [T + each for each in page], node, insert_on=[0])
        for key in (T + each for each in page):
            self._split(key & ~(HUGE - 1))
            if node == 0:
                self.heat.setdefault(key, 0.0)
            if key in self.heat:
                self.node[key] = node

    @rule(page=pages, fate=st.sampled_from(list(Fate)), node=st.integers(0, 2))
    def moved(self, page: list[int], fate: Fate, node: int) -> None:
        self.table.moved(report([T + each for each in page], fate, node))
        if fate is Fate.JOINED:
            for key in (T + each for each in page):
                self._join(key & ~(HUGE - 1), node)
            return
        for key in (T + each for each in page):
            if fate is Fate.MOVED and key not in self.heat:
                self._split(key & ~(HUGE - 1))
                self.heat.setdefault(key, 0.0)
            if fate is Fate.GONE:
                self._forget(key)
            elif fate is not Fate.NOT_TRIED and key in self.heat:
                self.node[key] = node

    @rule(low=st.integers(0, blocks * HUGE), width=st.integers(0, 600))
    def keep(self, low: int, width: int) -> None:
        self.table.keep_ranges(3, [WatchedRange(low, low + width)] if width else [])
        for key in list(self.heat):
            if not low <= key - T < low + width:
                self._forget(key)

    @invariant()
    def agrees(self) -> None:
        check(self.table)
        assert self.table.stats().tracked == len(self.heat)
        for node in range(3):
            mine = {key: heat for key, heat in self.heat.items() if self.node[key] == node}
            cold = self.table.coldest(node, 4000)
            assert set(cold.page.tolist()) == set(mine)
            want = [mine[key] for key in cold.page.tolist()]
            assert np.allclose(cold.heat, want, rtol=1e-4, atol=1e-8)
            assert (np.diff(cold.heat) >= 0).all()
            orders = [9 if key in self.huge else 0 for key in cold.page.tolist()]
            assert cold.order.tolist() == orders


Model.TestCase.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
TestModel = Model.TestCase
