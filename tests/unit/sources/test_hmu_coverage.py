# SPDX-License-Identifier: Apache-2.0
"""Which memory cards see: shares of nodes, and single frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fakecards import MIB, card, host

from tierd.sources.hmu_coverage import HmuCoverage
from tierd.sources.kmod.neoprof import CardRange


def test_a_card_over_a_whole_node_leaves_the_others_unseen(tmp_path: Path) -> None:
    host(tmp_path, {0: (0, 4), 1: (4, 8)})
    coverage = HmuCoverage([card(0, (4 * 128, 8 * 128))]).coverage(tmp_path)
    assert coverage.covered == {0: 0.0, 1: 1.0}
    assert coverage.whole == {1}
    assert coverage.unseen == (0,)


def test_a_card_over_a_part_of_a_node_leaves_the_node_unseen(tmp_path: Path) -> None:
    host(tmp_path, {0: (0, 4), 1: (4, 8)})
    cards = HmuCoverage([card(0, (6 * 128, 8 * 128))])
    coverage = cards.coverage(tmp_path)
    assert coverage.covered[1] == 0.5
    assert coverage.partial == {1}
    assert coverage.unseen == (0, 1)
    frames = np.array([4 * 128, 6 * 128, 8 * 128 - 1, 8 * 128], np.uint64) * np.uint64(MIB // 4096)
    assert cards.sees(frames).tolist() == [False, True, True, False]


def test_two_cards_add_up(tmp_path: Path) -> None:
    host(tmp_path, {1: (4, 8)})
    pair = [card(0, (4 * 128, 6 * 128)), card(1, (6 * 128, 8 * 128))]
    assert HmuCoverage(pair).coverage(tmp_path).whole == {1}


def test_interleaved_cards_have_every_other_block() -> None:
    way = CardRange(0, 1024 * MIB, granularity=8192, ways=2, position=1)
    one = HmuCoverage([card(0, ranges=(way,))])
    assert (
        one.sees(np.arange(6, dtype=np.uint64)).tolist() == [False, False, True, True] + [False] * 2
    )


def test_interleaving_finer_than_a_page_sees_every_page(tmp_path: Path) -> None:
    host(tmp_path, {1: (0, 8)})
    way = CardRange(0, 1024 * MIB, granularity=256, ways=2, position=1)
    one = HmuCoverage([card(0, ranges=(way,))])
    assert one.sees(np.arange(6, dtype=np.uint64)).all()
    assert one.coverage(tmp_path).covered[1] == pytest.approx(1.0)


def test_without_cards_nothing_is_seen(tmp_path: Path) -> None:
    host(tmp_path, {0: (0, 1)})
    assert HmuCoverage([]).coverage(tmp_path).unseen == (0,)
    assert not HmuCoverage([]).sees(np.arange(3, dtype=np.uint64)).any()
