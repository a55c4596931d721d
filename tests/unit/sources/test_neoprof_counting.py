# SPDX-License-Identifier: Apache-2.0
"""What a count of the cards is worth, and what is counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakecards import ALL, card
from fakering import hot_records
from neoprof_bench import TARGETS, WHOLE, Bench, S

from tierd.config.watching import NeoProfConfig
from tierd.core import bounds
from tierd.core.access import LINES_PER_PAGE
from tierd.core.tuning import HMU
from tierd.sources.kmod.uapi import CardFlags, Features


def test_so_many_requests_are_one_use_of_a_page(tmp_path: Path) -> None:
    bench = Bench(tmp_path, WHOLE, settings=NeoProfConfig(lines_per_access=8))
    bench.source.watch(TARGETS)
    bench.now += 2 * S
    bench.ring.put(hot_records([0x1000, 0x1001], [12, 40], bench.now))
    (hot, *_) = bench.source.poll()
    assert hot.count == pytest.approx([1.5, 5])
    assert bench.source.visits == 1 / 8


def test_where_all_cards_can_a_run_counts_once_and_is_one_use(tmp_path: Path) -> None:
    bench = Bench(tmp_path, WHOLE, card(1, (1024, 2048)), settings=NeoProfConfig())
    assert bench.source.visits == 1 / HMU.requests_per_access  # not known yet
    bench.source.watch(TARGETS)
    assert all(asked["flags"] & CardFlags.COALESCE for _, asked in bench.cards.asked)
    assert (bench.source.visits, bench.source.copy_requests) == (1.0, HMU.copy_runs)
    bench.now += 2 * S
    bench.ring.put(hot_records([0x1000], [12], bench.now))
    (hot, *_) = bench.source.poll()
    assert hot.count == pytest.approx([12])


@pytest.mark.parametrize(
    ("first", "second", "settings"),
    [
        (ALL, ALL & ~Features.COALESCE, NeoProfConfig()),
        (ALL & ~Features.COALESCE, ALL & ~Features.COALESCE, NeoProfConfig()),
        (ALL, ALL, NeoProfConfig(merge_requests=False)),
    ],
)
def test_where_one_card_cannot_or_shall_not_every_request_counts(
    tmp_path: Path, first: Features, second: Features, settings: NeoProfConfig
) -> None:
    cards = card(0, (512, 1024), features=first), card(1, (1024, 2048), features=second)
    bench = Bench(tmp_path, *cards, settings=settings)
    bench.source.watch(TARGETS)
    assert len(bench.cards.asked) == 2
    assert not any(asked["flags"] & CardFlags.COALESCE for _, asked in bench.cards.asked)
    assert bench.source.visits == 1 / HMU.requests_per_access
    assert bench.source.copy_requests == LINES_PER_PAGE


def test_a_card_that_counts_otherwise_and_comes_late_makes_all_counts_worth_less(
    tmp_path: Path,
) -> None:
    """Too little is said of the others then, which costs promotions, not mistakes."""
    bench = Bench(tmp_path, WHOLE, settings=NeoProfConfig())
    bench.source.watch(TARGETS)
    assert bench.source.visits == 1.0
    bench.cards.known[1] = card(1, (1024, 2048), features=ALL & ~Features.COALESCE)
    bench.now += bounds.DEVICE_CHECK_NS
    bench.source.poll()
    assert set(bench.source.cards) == {0, 1}
    assert bench.source.visits == 1 / HMU.requests_per_access
