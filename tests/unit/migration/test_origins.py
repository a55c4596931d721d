# SPDX-License-Identifier: Apache-2.0
"""`Origins` against a dictionary that is kept move by move."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.core import bounds
from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import VPN_BITS
from tierd.migration.origins import Origins

Move = tuple[int, int, int, int, int, Fate]
"""Target, page number, order, source, destination, what became of it."""

MOVES = st.tuples(
    st.integers(0, 2),
    st.integers(0, 5),
    st.sampled_from([0, 9]),
    st.integers(0, 2),
    st.sampled_from([Fate.MOVED, Fate.MOVED, Fate.BUSY, Fate.GONE]),
)
"""The same without the source, which follows from what came before."""


def report_of(moves: list[Move]) -> MigrationResult:
    """A report of these moves; a folio of 2 MiB begins at a multiple of 512 pages."""
    columns = list(zip(*moves, strict=True)) or [()] * 6
    target, number, order, source, dest, fate = (np.array(each, np.int64) for each in columns)
    page = (target << VPN_BITS | np.where(order, number * 512, number)).astype(np.uint64)
    plan = MigrationPlan(
        page=page,
        order=order.astype(np.uint8),
        source=source.astype(np.int16),
        dest=dest.astype(np.int16),
        direction=np.zeros(len(page), np.uint8),
        heat=np.zeros(len(page), np.float32),
    )
    node = np.where(fate == Fate.MOVED, dest, source).astype(np.int16)
    return MigrationResult(plan, fate.astype(np.uint8), node, {}, 0, 0, 0, 0)


@given(st.lists(st.one_of(MOVES, st.integers(0, 2)), max_size=30))
@pytest.mark.parametrize("kept_moves", [0, 5, 1 << 16])
def test_the_first_node_and_the_last_are_known_of_each_page(
    kept_moves: int, history: list[tuple[int, int, int, int, Fate] | int]
) -> None:
    origins, nodes = Origins(10_000), dict[int, int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "UNDO_MOVES", kept_moves)
        for each in history:
            if isinstance(each, int):
                origins.forget(each)
                nodes = {page: node for page, node in nodes.items() if page >> VPN_BITS != each}
                continue
            target, number, order, dest, fate = each
            first = target << VPN_BITS | (number * 512 if order else number)
            pages = range(first, first + (1 << order))
            source = {nodes.get(page, 1) for page in pages}
            if len(source) == 1:  # else it is no folio
                origins.moved(report_of([(target, number, order, *source, dest, fate)]))
                nodes |= dict.fromkeys(pages, dest) if fate == Fate.MOVED else {}
    rows = origins.folios()
    told = {
        int(row["page"]) + offset: (int(row["origin"]), int(row["node"]))
        for row in rows
        for offset in range(1 << int(row["order"]))
    }
    assert told == {page: (1, node) for page, node in nodes.items() if node != 1}
    assert len(told) == sum(1 << int(row["order"]) for row in rows)
    assert rows["page"].tolist() == sorted(rows["page"].tolist())
    assert origins.dropped == 0


def test_what_finds_no_space_is_counted() -> None:
    origins = Origins(3)
    origins.moved(report_of([(0, number, 0, 1, 0, Fate.MOVED) for number in range(5)]))
    assert len(origins.folios()) == 3
    assert origins.dropped == 2


def test_a_page_that_came_back_is_known_no_more_and_may_leave_again() -> None:
    origins = Origins(100)
    for source, dest in ((1, 0), (0, 1)):
        origins.moved(report_of([(0, 7, 0, source, dest, Fate.MOVED)]))
    assert not len(origins.folios())
    origins.moved(report_of([(0, 7, 0, 1, 2, Fate.MOVED)]))
    assert origins.folios()["origin"].tolist() == [1]


def test_targets_that_end_while_nothing_moves_pile_up_nowhere() -> None:
    origins = Origins(100)
    for _ in range(50):
        for target in range(1000):
            origins.forget(target)
    assert len(origins._new) == 1000
    # One that moved since, and ended again, is forgotten again.
    origins.moved(report_of([(7, 5, 0, 1, 0, Fate.MOVED), (2000, 5, 0, 1, 0, Fate.MOVED)]))
    origins.forget(7)
    assert (origins.folios()["page"] >> VPN_BITS).tolist() == [2000]
