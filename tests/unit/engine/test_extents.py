# SPDX-License-Identifier: Apache-2.0
"""Extents: where pages are, cut where the node changes."""

from __future__ import annotations

import numpy as np
import pytest

from tierd.core.access import WatchedRange
from tierd.workloads.extents import Extents, outside, watched


def walk(*runs: tuple[int, int, int]) -> tuple[WatchedRange, ...]:
    """Extents of runs (first page, pages, node), each fed as a chunk of its own."""
    extents = Extents()
    for first, count, node in runs:
        extents.add(
            np.arange(first, first + count, dtype=np.uint64),
            np.full(count, node, np.int16),
            np.zeros(count, np.uint8),
        )
    return extents.finish()


def test_chunks_of_one_run_are_one_extent():
    assert walk((0, 1000, 0), (1000, 1000, 0)) == (WatchedRange(0, 2000),)


def test_large_holes_end_an_extent_and_small_ones_do_not():
    assert walk((0, 1000, 0), (1100, 1000, 0)) == (WatchedRange(0, 2100),)
    assert walk((0, 1000, 0), (5000, 10, 0)) == (WatchedRange(0, 1000), WatchedRange(5000, 5010))


def test_long_runs_on_other_nodes_are_cut():
    assert walk((0, 1000, 0), (1000, 600, 1), (1600, 1000, 0)) == (
        WatchedRange(0, 1000),
        WatchedRange(1000, 1600),
        WatchedRange(1600, 2600),
    )


def test_scattered_pages_on_other_nodes_are_not():
    runs = [(page, 1, page % 2) for page in range(2000)]
    assert walk(*runs) == (WatchedRange(0, 2000),)


def test_huge_folios_count_all_their_pages():
    extents = Extents()
    extents.add(np.array([0, 512, 1024], np.uint64), np.zeros(3, np.int16), np.full(3, 9, np.uint8))
    assert extents.finish() == (WatchedRange(0, 1536),)


def test_watched_is_extents_where_known_and_whole_ranges_where_not():
    old, new = WatchedRange(0, 10_000), WatchedRange(50_000, 60_000)
    extents = (WatchedRange(100, 200), WatchedRange(9000, 9500))
    assert watched([old, new], [old], extents) == (*extents, new)
    assert watched([old, new], [], None) == (old, new)


def test_extents_are_clipped_to_what_may_be_moved_now():
    part = WatchedRange(150, 9100)
    assert watched([part], [part], (WatchedRange(100, 200), WatchedRange(9000, 9500))) == (
        WatchedRange(150, 200),
        WatchedRange(9000, 9100),
    )


@pytest.mark.parametrize(
    ("ranges", "known", "pages"),
    [
        ([], [(0, 9)], 0),
        ([(0, 9)], [], 9),
        ([(0, 9)], [(0, 9)], 0),
        ([(5, 20)], [(0, 10)], 10),
        ([(0, 100)], [(10, 20), (90, 120)], 80),
        ([(50, 60), (0, 30)], [(25, 55), (200, 300)], 30),
        ([(0, 10), (10, 20)], [(5, 15)], 10),
    ],
)
def test_pages_outside_of_what_is_known_are_counted(
    ranges: list[tuple[int, int]], known: list[tuple[int, int]], pages: int
) -> None:
    made = [[WatchedRange(*part) for part in parts] for parts in (ranges, known)]
    assert outside(made[0], made[1]) == pages
