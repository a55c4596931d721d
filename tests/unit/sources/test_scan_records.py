# SPDX-License-Identifier: Apache-2.0
"""What the kernel module's records say of accesses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakering import page_record

from tierd.sources.kmod.uapi import RECORD, Kind, PageFlags
from tierd.sources.scan_records import COUNTS, TABLES, ScanRecords, WarmupState


def test_counts_are_those_of_a_poisson_stream() -> None:
    rng = np.random.default_rng(5)
    for rate in (0.05, 0.3, 1.0):
        looks = rng.poisson(rate, (20_000, 8)) > 0
        history = np.packbits(looks, axis=1)[:, 0]
        assert abs(COUNTS[8, history].mean() / rate - 1) < 0.15


def to_batch(records: np.ndarray, report_scans: int = 1, *, writes: bool = False) -> Any:
    return ScanRecords("scan", report_scans, writes=writes).batch(records, 0)


def test_a_page_that_has_cooled_has_no_accesses() -> None:
    records = np.concatenate([page_record(1, 1, 8, PageFlags.CHANGED), page_record(2, 1, 8)])
    batch = to_batch(records)
    assert batch.page.tolist() == [2]
    assert batch.is_write is None


def test_a_huge_page_counts_for_each_of_its_pages() -> None:
    huge = PageFlags.PMD | PageFlags.HOT
    records = np.concatenate(
        [page_record(512, 0x80, 1, huge, 9), page_record(1, 0x80, 1, PageFlags.HOT, 4)]
    )
    batch = to_batch(records)
    assert batch.count[0] == pytest.approx(512 * batch.count[1])


def test_writes_are_told_where_dirty_bits_are_read() -> None:
    dirty = PageFlags.DIRTY | PageFlags.HOT
    batch = to_batch(
        np.concatenate([page_record(1, 1, 8, dirty), page_record(2, 1, 8)]), writes=True
    )
    assert batch.is_write is not None
    assert batch.is_write.tolist() == [True, False]


@pytest.mark.parametrize("rate", [0.4, 0.8, 1.2])
@pytest.mark.parametrize("report_scans", [1, 2, 4])
def test_reports_in_turns_add_up_to_the_accesses(rate: float, report_scans: int) -> None:
    """Pages that are hot for a while, played as the module classifies and reports them."""
    rng = np.random.default_rng(report_scans)
    pages, looks, warm = 2000, 100, 80
    accesses = rng.poisson(rate, (looks, pages)) * (np.arange(looks) < warm)[:, None]
    history = np.zeros(pages, np.uint8)
    hot = np.zeros(pages, bool)
    told = 0.0
    for look in range(looks):
        history = history >> 1 | np.uint8(0x80) * (accesses[look] > 0)
        seen = np.unpackbits(history[:, None], axis=1).sum(axis=1)
        now = (seen >= 2) | (hot & (seen > 1))
        changed, hot = now != hot, now
        chosen = changed | (hot & ((np.arange(pages) // 8 + look) % report_scans == 0))
        records = np.zeros(int(chosen.sum()), RECORD)
        records["kind"], records["history"] = Kind.PAGE, history[chosen]
        records["value"] = min(look + 1, 8)
        records["flags"] = hot[chosen] * PageFlags.HOT + changed[chosen] * PageFlags.CHANGED
        told += float(to_batch(records, report_scans).count.sum())
    assert told / accesses.sum() == pytest.approx(1, abs=0.25)


def test_of_what_may_have_begun_looks_before_the_first_use_do_not_count() -> None:
    start, others = TABLES[WarmupState.START], TABLES[WarmupState.OTHERS]
    assert start[8, 0b11000000] == COUNTS[2, 0b11000000]
    assert start[8, 0b10110000] == COUNTS[4, 0b10110000]
    # They may only go through it: two looks tell of no stay.
    assert others[8, 0b11000000] == COUNTS[8, 0b11000000]
    assert others[8, 0b11100000] == COUNTS[3, 0b11100000]
    for table in (start, others):
        assert np.array_equal(table[:2], COUNTS[:2])
        assert np.array_equal(table[8, 1::2], COUNTS[8, 1::2])  # used in the first of eight
    record = page_record(1, 0b11000000, 8, PageFlags.HOT | PageFlags.CHANGED)
    records = ScanRecords("scan", 3, writes=False)
    counts = [records.batch(record, 0, fresh=fresh).count[0] for fresh in WarmupState]
    assert counts[1] > 4 * counts[0]
    assert counts[2] == counts[0]
