# SPDX-License-Identifier: Apache-2.0
"""Numbers, texts and pages to bytes and back."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tierd.observe.recording import RecordingError
from tierd.observe.recording.codec import (
    PAGES,
    TEXT,
    column,
    number,
    record,
    table,
)

U64 = st.integers(0, 2**64 - 1)


@given(st.lists(U64 | st.integers(0, 300), max_size=40))
@settings(max_examples=300, deadline=None)
def test_pages_come_back_in_their_order(pages: list[int]) -> None:
    assert PAGES.decode(PAGES.encode(np.array(pages, np.uint64))).tolist() == pages


def test_neighbouring_pages_take_little_room() -> None:
    pages = (5 << 48) + np.arange(1000, dtype=np.uint64)
    assert len(zlib.compress(PAGES.encode(pages))) < 60


def test_pages_that_are_not_all_there_are_refused() -> None:
    data = PAGES.encode(np.arange(3, dtype=np.uint64))
    for wrong in (data[:-1], data + b"\0", b"\4" + data[1:]):
        with pytest.raises(RecordingError):
            PAGES.decode(wrong)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_arrays_come_back_bit_for_bit(dtype: type[np.generic]) -> None:
    raw = np.random.default_rng(1).integers(0, 256, 400, dtype=np.uint8)
    values = raw.view(dtype)
    rows = record(dict, page=PAGES, values=column(dtype))
    for each in (values, values[::2]):
        found = rows.decode(
            rows.encode({"page": np.arange(len(each), dtype=np.uint64), "values": each})
        )
        assert found["values"].tobytes() == each.tobytes()


def test_texts_and_counts_come_back() -> None:
    counts = table(TEXT, number("q"))
    assert TEXT.decode(TEXT.encode("a\nb\udcfe")) == "a\nb\\udcfe"
    told = {"rate_limit": -3, "": 1 << 40}
    assert counts.decode(counts.encode(told)) == told


def test_what_ends_too_early_or_too_late_is_refused() -> None:
    field = record(dict, first=number("I"), second=number("Q"))
    data = field.encode({"first": 1, "second": 2})
    with pytest.raises(RecordingError, match="ends inside"):
        field.decode(data[:-1])
    with pytest.raises(RecordingError, match="8 bytes too many"):
        number("I").decode(data)
    with pytest.raises(RecordingError):
        TEXT.decode(b"\xff\xff\xff\x7f")


def test_numbers_and_items_have_bounds() -> None:
    for value in (-1.0, 2.0, float("nan")):
        with pytest.raises(RecordingError, match="not between 0 and 1"):
            number("d", 0, 1).decode(number("d").encode(value))
    rows = record(dict, page=PAGES, values=column(np.uint8))
    bounded = record(dict, page=PAGES, values=column(np.uint8, 0, 5))
    data = rows.encode({"page": np.zeros(2, np.uint64), "values": np.array([5, 6])})
    with pytest.raises(RecordingError, match="values: an item"):
        bounded.decode(data)
