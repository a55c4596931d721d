# SPDX-License-Identifier: Apache-2.0
"""What a hot-list entry means in accesses."""

from __future__ import annotations

import numpy as np
import pytest
from fakering import hot_records
from hypothesis import given
from hypothesis import strategies as st

from tierd.sources.hotlist import SCAN_CEILING, HotList

S = 10**9
LOOK_S = 0.4
CAP = SCAN_CEILING / LOOK_S


def made() -> HotList:
    hotlist = HotList("neoprof", LOOK_S)
    hotlist.begin(0, 10 * S, 1)
    return hotlist


def test_count_and_age_of_the_epoch_give_the_accesses() -> None:
    batch = made().take(hot_records([1, 2], [4, 8], 12 * S), 12 * S, 3)
    assert batch.page.tolist() == [1, 2]
    assert batch.count == pytest.approx([4, 8])
    assert (batch.source, batch.lost) == ("neoprof", 3)


def test_a_request_stands_for_a_part_of_a_visit_and_what_the_copy_made_for_none() -> None:
    """Page 1 was passed 3 times, line by line; 2 was demoted and is used 16 times."""
    hotlist = HotList("neoprof", LOOK_S, visits=1 / 64)
    hotlist.begin(0, 10 * S, 1)
    hotlist.arrive(np.array([2], np.uint64), 11 * S)
    batch = hotlist.take(hot_records([1, 2], [192, 80], 12 * S), 12 * S, 0)
    assert batch.count == pytest.approx([3, 0.25])
    assert hotlist.end_epoch(14 * S).count == pytest.approx([3, 0.25])


def test_a_rate_beyond_what_an_accessed_bit_can_tell_is_cut() -> None:
    batch = made().take(hot_records([1], [60000], 12 * S), 12 * S, 0)
    assert batch.count == pytest.approx([2 * CAP])


def test_a_page_is_as_hot_whenever_in_the_epoch_it_is_reported() -> None:
    """5 accesses a second, reported after 1 s or after 4 s: 25 accesses in an epoch of 5 s."""
    totals = []
    for age in (1, 4):
        hotlist = made()
        at_report = hotlist.take(hot_records([1], [5 * age], (10 + age) * S), 15 * S, 0)
        rest = hotlist.end_epoch(15 * S)
        totals.append(float(at_report.count.sum() + rest.count.sum()))
    assert totals == pytest.approx([25, 25])


def test_a_page_that_left_the_card_is_not_credited_further() -> None:
    hotlist = made()
    hotlist.take(hot_records([1, 2], [10, 10], 12 * S), 12 * S, 0)
    hotlist.leave(np.array([1], np.uint64))
    rest = hotlist.end_epoch(15 * S)
    assert rest.page.tolist() == [2]
    assert rest.count == pytest.approx([15])


def test_a_page_that_left_before_an_epoch_without_reports_is_credited_when_it_is_back() -> None:
    hotlist = made()
    hotlist.leave(np.array([1], np.uint64))
    assert len(hotlist.end_epoch(15 * S)) == 0
    hotlist.begin(0, 15 * S, 1)
    hotlist.take(hot_records([1], [10], 17 * S), 17 * S, 0)
    assert hotlist.end_epoch(20 * S).page.tolist() == [1]


def test_an_epoch_is_credited_once() -> None:
    hotlist = made()
    hotlist.take(hot_records([1], [10], 12 * S), 12 * S, 0)
    hotlist.end_epoch(15 * S)
    hotlist.begin(0, 15 * S, 1)
    assert len(hotlist.end_epoch(20 * S)) == 0


def test_what_was_counted_before_the_clear_is_of_the_epoch_before() -> None:
    hotlist = made()
    hotlist.begin(0, 15 * S, 1)
    batch = hotlist.take(hot_records([1], [20], 15 * S - 1), 15 * S + 1000, 0)
    assert batch.count == pytest.approx([20])
    assert len(hotlist.end_epoch(20 * S)) == 0


def test_down_sampled_counts_stand_for_more() -> None:
    hotlist = HotList("neoprof", LOOK_S)
    hotlist.begin(3, 10 * S, 4)
    batch = hotlist.take(hot_records([1], [2], 12 * S, card=3), 12 * S, 0)
    assert batch.count == pytest.approx([8])


def test_what_a_pages_own_copy_counted_is_no_access() -> None:
    """Pages 1 and 2 were demoted; 2 was used 36 times on top of its 64 lines."""
    hotlist = made()
    hotlist.arrive(np.array([1, 2], np.uint64), 11 * S)
    batch = hotlist.take(hot_records([1, 2, 3], [13, 100, 13], 20 * S), 20 * S, 0)
    assert batch.page.tolist() == [2, 3]
    assert batch.count == pytest.approx([36, 13])
    assert hotlist.end_epoch(25 * S).page.tolist() == [2, 3]


@pytest.mark.parametrize(("demoted_at", "told"), [(15 * S - S // 2, [2]), (13 * S, [1, 2])])
def test_a_copy_made_just_before_the_clear_is_written_after_it(
    demoted_at: int, told: list[int]
) -> None:
    hotlist = made()
    hotlist.arrive(np.array([1], np.uint64), demoted_at)
    hotlist.end_epoch(15 * S)
    hotlist.begin(0, 15 * S, 1)
    batch = hotlist.take(hot_records([1, 2], [60, 60], 19 * S), 19 * S, 0)
    assert batch.page.tolist() == told


def test_records_of_other_kinds_are_left_out() -> None:
    records = hot_records([1, 2], [4, 4], 12 * S)
    records["kind"][0] = 1
    assert made().take(records, 12 * S, 0).page.tolist() == [2]


def test_a_record_tells_the_node_but_not_that_of_a_huge_folio() -> None:
    records = hot_records([1, 2, 3], [4, 4, 4], 12 * S)
    records["node"], records["order"] = [1, 2, 2], [0, 9, 4]
    batch = made().take(records, 12 * S, 0)
    assert batch.node is not None
    assert batch.node.tolist() == [1, -1, 2]


@given(count=st.integers(0, 65535), age_ns=st.integers(-5 * S, 100 * S))
def test_no_entry_is_more_than_counted_nor_than_the_cap_allows(count: int, age_ns: int) -> None:
    batch = made().take(hot_records([1], [count], 10 * S + age_ns), 10 * S, 0)
    value = float(batch.count[0])
    assert np.isfinite(value)
    assert 0 < value <= max(1, count) * (1 + 1e-5)
    assert value <= max(abs(age_ns) / S, 0.001) * CAP * (1 + 1e-5)


def test_many_records_of_two_cards_are_what_each_alone_is() -> None:
    """Whether told together or one by one, down-sampled or copied, late or not."""
    random = np.random.default_rng(3)
    together, alone = (HotList("test", 1.0) for _ in range(2))
    for each in (together, alone):
        each.begin(0, 10**9, 1)
        each.begin(0, 3 * 10**9, 1)
        each.begin(1, 2 * 10**9, 8)
        each.arrive(np.arange(50, dtype=np.uint64), 4 * 10**9)
    pages = random.permutation(300).astype(np.uint64)
    counts = random.integers(1, 200, 300)
    times = random.integers(2 * 10**9, 6 * 10**9, 300)
    cards = random.integers(0, 2, 300)
    rows = [
        hot_records(pages[i : i + 1], int(counts[i]), int(times[i]), card=int(cards[i]))
        for i in range(300)
    ]
    now = 7 * 10**9
    one = together.take(np.concatenate(rows), now, 0)
    parts = [alone.take(row, now, 0) for row in rows]
    assert one.page.tolist() == [int(page) for part in parts for page in part.page]
    assert one.count.tolist() == [float(count) for part in parts for count in part.count]
    assert 0 < len(one) < 300
    ended, each_ended = together.end_epoch(now), alone.end_epoch(now)
    assert ended.page.tolist() == each_ended.page.tolist()
    assert ended.count.tolist() == each_ended.count.tolist()


def test_pages_that_left_are_found_among_many() -> None:
    hot = HotList("test", 1.0)
    hot.begin(0, 10**9, 1)
    pages = np.random.default_rng(4).integers(0, 2**63, 4000, dtype=np.uint64)
    hot.take(hot_records(pages, 40, 2 * 10**9), 2 * 10**9, 0)
    hot.leave(pages[::3])
    hot.leave(pages[:0])
    hot.leave(pages[1::3])
    assert hot.end_epoch(3 * 10**9).page.tolist() == pages[2::3].tolist()
