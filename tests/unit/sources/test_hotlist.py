# SPDX-License-Identifier: Apache-2.0
"""What a hot-list entry means in accesses."""

from __future__ import annotations

import numpy as np
import pytest
from fakering import hot_records
from hypothesis import given
from hypothesis import strategies as st

from tierd.sources.hotlist import LOOK_CEILING, HotList

S = 10**9
LOOK_S = 0.4
CAP = LOOK_CEILING / LOOK_S


def made() -> HotList:
    hotlist = HotList("neoprof", LOOK_S)
    hotlist.begin(0, 10 * S, 1)
    return hotlist


def test_count_and_age_of_the_epoch_give_the_accesses() -> None:
    batch = made().take(hot_records([1, 2], [4, 8], 12 * S), 12 * S, 3)
    assert batch.page.tolist() == [1, 2]
    assert batch.count == pytest.approx([4, 8])
    assert (batch.source, batch.lost) == ("neoprof", 3)


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


@given(count=st.integers(0, 65535), age_ns=st.integers(-5 * S, 100 * S))
def test_no_entry_is_more_than_counted_nor_than_the_cap_allows(count: int, age_ns: int) -> None:
    batch = made().take(hot_records([1], [count], 10 * S + age_ns), 10 * S, 0)
    value = float(batch.count[0])
    assert np.isfinite(value)
    assert 0 < value <= max(1, count) * (1 + 1e-5)
    assert value <= max(abs(age_ns) / S, 0.001) * CAP * (1 + 1e-5)
