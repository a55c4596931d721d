# SPDX-License-Identifier: Apache-2.0
"""`Undo` on pages whose places are known: what tierd moved comes back, and nothing else moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from madeup_host import two_tiers

from tierd.core import bounds
from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import HUGE_PAGES, PAGE_SIZE, U64Array
from tierd.engine.undo import Undo
from tierd.migration.origins import Origins

TIERS = two_tiers((1000, 1000))
PAGES = 4 * HUGE_PAGES


class Host:
    """4 KiB pages and folios of one process: where they are, and what tierd knows of it."""

    def __init__(self) -> None:
        self.node = np.ones(PAGES, np.int16)
        self.huge = {head: head < 2 * HUGE_PAGES for head in range(0, PAGES, HUGE_PAGES)}
        self.failing: Iterator[Fate] = iter(())
        self.origins = Origins(10_000)
        self.undo = Undo(self.origins)
        self.largest = 0

    def order(self, page: int) -> int:
        return 9 if self.huge[page // HUGE_PAGES * HUGE_PAGES] else 0

    def where(self, keys: U64Array) -> tuple[Any, Any]:
        order = np.array([self.order(int(key)) for key in keys], np.uint8)
        return self.node[keys.astype(np.int64)].copy(), order

    def move(self, page: int, dest: int) -> None:
        """What tierd does with a page's folio."""
        head = page // HUGE_PAGES * HUGE_PAGES if self.order(page) else page
        plan = MigrationPlan(
            page=np.array([head], np.uint64),
            order=np.array([self.order(page)], np.uint8),
            source=self.node[[head]],
            dest=np.array([dest], np.int16),
            direction=np.array([dest == 0], np.uint8),
            heat=np.zeros(1, np.float32),
        )
        self.origins.moved(self.execute(plan))

    def execute(self, plan: MigrationPlan) -> MigrationResult:
        fate = np.full(len(plan), Fate.MOVED, np.uint8)
        node = plan.dest.copy()
        for index, (page, order) in enumerate(
            zip(plan.page.tolist(), plan.order.tolist(), strict=True)
        ):
            assert self.order(page) == order
            assert self.node[page] == plan.source[index]
            fate[index] = next(self.failing, Fate.MOVED)
            if fate[index] == Fate.MOVED:
                self.node[page : page + (1 << order)] = plan.dest[index]
            else:
                node[index] = plan.source[index]
        self.largest = max(self.largest, plan.bytes_planned)
        return MigrationResult(plan, fate, node, {}, 0, 0, 0, 0)

    def put_back(self, most_bytes: int = 300 * PAGE_SIZE) -> int:
        """Undo to the end; the ticks that it took."""
        self.undo.begin(TIERS)
        ticks = 0
        while self.undo.active:
            plan = self.undo.plan(self, most_bytes)  # type: ignore[arg-type]
            if len(plan):
                self.undo.carried_out(self.execute(plan))
            ticks += 1
            assert ticks < 1000
        return ticks


@settings(max_examples=40)
@given(st.data())
def test_all_that_tierd_moved_comes_back(data: st.DataObject) -> None:
    host = Host()
    host.node[:] = data.draw(st.sampled_from([0, 1]))
    host.node[2 * HUGE_PAGES :: 3] = 1 - host.node[0]
    before = host.node.copy()
    pages = st.integers(0, PAGES - 1)
    for page, dest in data.draw(st.lists(st.tuples(pages, st.integers(0, 1)), max_size=30)):
        if host.node[page] != dest:
            host.move(page, dest)
        elif data.draw(st.booleans()):
            host.huge[page // HUGE_PAGES * HUGE_PAGES] = False  # the kernel splits a folio
    moved = int((host.node != before).sum())
    failures = data.draw(st.lists(st.sampled_from([Fate.BUSY, Fate.NO_ROOM]), max_size=5))
    host.failing = iter(failures)
    host.put_back()
    assert host.node.tolist() == before.tolist()
    assert host.undo.put_back == moved
    assert not host.undo.left_alone
    assert host.largest <= max(300, HUGE_PAGES) * PAGE_SIZE
    assert not len(host.origins.folios())


def test_what_others_moved_stays_and_what_is_gone_is_not_asked_for() -> None:
    host = Host()
    low = 3 * HUGE_PAGES
    for page in (low, low + 1, low + 2):
        host.move(page, 0)
    host.node[low] = 1  # somebody else has put it back already
    host.node[low + 1] = -2  # unmapped
    host.put_back()
    assert host.node[[low, low + 1, low + 2]].tolist() == [1, -2, 1]
    assert dict(host.undo.left_alone) == {"moved_by_others": 1, "gone": 1}


def test_pages_of_a_process_that_does_not_answer_are_tried_again_and_known_still() -> None:
    host = Host()
    low = 3 * HUGE_PAGES
    host.move(low, 0)
    host.node[low] = bounds.UNANSWERED
    host.put_back()
    assert dict(host.undo.left_alone) == {"not_moved": 1}
    host.node[low] = 0
    host.put_back()
    assert host.node[low] == 1
    assert not host.undo.left_alone


def test_a_page_that_became_part_of_a_folio_stays() -> None:
    host = Host()
    host.move(3 * HUGE_PAGES + 5, 0)
    host.huge[3 * HUGE_PAGES] = True
    host.put_back()
    assert dict(host.undo.left_alone) == {"part_of_huge": 1}


def test_pages_that_go_down_make_room_first() -> None:
    host = Host()
    up, down = 2 * HUGE_PAGES, 3 * HUGE_PAGES
    host.node[up] = 0
    host.move(up, 1)
    host.move(down, 0)
    host.undo.begin(TIERS)
    plan = host.undo.plan(host, 100 * PAGE_SIZE)  # type: ignore[arg-type]
    assert plan.page.tolist() == [down, up]
    assert plan.direction.tolist() == [0, 1]
    assert plan.dest.tolist() == [1, 0]


def test_what_stays_busy_is_told_and_known_for_the_next_time() -> None:
    host = Host()
    page = 3 * HUGE_PAGES
    host.move(page, 0)
    host.failing = iter([Fate.BUSY] * (bounds.UNDO_ROUNDS + 1))
    host.put_back()
    assert dict(host.undo.left_alone) == {"not_moved": 1}
    host.put_back()
    assert host.node[page] == 1
    assert host.undo.as_json() == {
        "active": False,
        "pages_left": 0,
        "put_back": 1,
        "left_alone": {},
    }


def test_a_cancelled_undo_goes_on_where_it_ended() -> None:
    host = Host()
    pages = list(range(3 * HUGE_PAGES, 3 * HUGE_PAGES + 10))
    for page in pages:
        host.move(page, 0)
    assert host.undo.begin(TIERS) == 10
    plan = host.undo.plan(host, 4 * PAGE_SIZE)  # type: ignore[arg-type]
    host.undo.carried_out(host.execute(plan))
    host.undo.cancel()
    assert (host.undo.active, host.undo.put_back) == (False, 4)
    assert host.undo.left_alone["not_moved"] == 6
    assert host.undo.begin(TIERS) == 6
    host.put_back()
    assert host.node[pages].tolist() == [1] * 10


def test_pages_that_left_a_folio_after_its_split_come_back_to_where_the_folio_was() -> None:
    host = Host()
    host.move(0, 0)
    host.huge[0] = False
    host.move(7, 1)
    host.move(9, 1)
    host.move(9, 0)
    host.put_back()
    assert host.node.tolist() == [1] * PAGES
    assert host.undo.put_back == HUGE_PAGES - 1


def test_pages_that_joined_a_folio_come_back_as_it_was_then() -> None:
    host = Host()
    first = 3 * HUGE_PAGES
    for page in range(first, first + HUGE_PAGES):
        host.move(page, 0)
    host.huge[first] = True
    host.move(first, 1)
    assert not len(host.origins.folios())


@pytest.mark.parametrize("tried", [None, Fate.BUSY, Fate.REFUSED])
def test_a_target_that_ended_meanwhile_is_no_more_undone(tried: Fate | None) -> None:
    host = Host()
    page = 3 * HUGE_PAGES
    host.move(page, 0)
    host.undo.begin(TIERS)
    if tried is not None:
        host.failing = iter([tried])
        plan = host.undo.plan(host, PAGE_SIZE)  # type: ignore[arg-type]
        host.undo.carried_out(host.execute(plan))
    host.undo.forget(0)
    assert host.put_back() == 1
    assert host.node[page] == 0
    assert not len(host.origins.folios())


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.FAILED])
def test_what_the_kernel_refuses_is_told_and_known_for_the_next_time(fate: Fate) -> None:
    host = Host()
    page = 3 * HUGE_PAGES
    host.move(page, 0)
    host.failing = iter([fate])
    host.put_back()
    assert dict(host.undo.left_alone) == {fate.name.lower(): 1}
    host.put_back()
    assert host.node[page] == 1


def test_nothing_to_undo_ends_at_once() -> None:
    host = Host()
    assert host.put_back() == 1


@pytest.mark.parametrize("asked", [1, 2])
def test_to_ask_twice_is_to_ask_once(asked: int) -> None:
    host = Host()
    host.move(3 * HUGE_PAGES, 0)
    for _ in range(asked):
        assert host.undo.begin(TIERS) == 1
    host.put_back()
    assert host.undo.put_back == 1
