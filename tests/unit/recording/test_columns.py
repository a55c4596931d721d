# SPDX-License-Identifier: Apache-2.0
"""Numbers, texts and pages to bytes and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tierd.observe.recording import RecordingError
from tierd.observe.recording.columns import Decoder, Encoder, pack_pages, unpack_pages

U64 = st.integers(0, 2**64 - 1)


@given(st.lists(U64 | st.integers(0, 300), max_size=40))
@settings(max_examples=300, deadline=None)
def test_pages_come_back_in_their_order(pages: list[int]) -> None:
    array = np.array(pages, np.uint64)
    assert unpack_pages(pack_pages(array), len(array)).tolist() == pages


def leb128(value: int) -> bytes:
    """Unsigned LEB128, the plain way."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


@given(st.lists(U64, min_size=1, max_size=20))
@settings(max_examples=200, deadline=None)
def test_pages_are_leb128_of_zigzag_differences(pages: list[int]) -> None:
    expected, before = b"", 0
    for page in pages:
        delta = (page - before) % 2**64
        before = page
        signed = delta - 2**64 if delta >> 63 else delta
        expected += leb128(2 * signed if signed >= 0 else -2 * signed - 1)
    assert pack_pages(np.array(pages, np.uint64)) == expected


def test_neighbouring_pages_take_a_byte_each() -> None:
    pages = (5 << 48) + np.arange(1000, dtype=np.uint64)
    assert len(pack_pages(pages)) == 1000 + 7


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"\x01", 2),
        (b"\x01\x01", 1),
        (b"\x81", 1),
        (b"\x81", 0),
        (b"\xff" * 9 + b"\x02", 1),
        (b"\xff" * 10 + b"\x01", 1),
    ],
)
def test_pages_that_nobody_wrote_are_refused(data: bytes, count: int) -> None:
    with pytest.raises(RecordingError):
        unpack_pages(data, count)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_arrays_come_back_bit_for_bit(dtype: type[np.generic]) -> None:
    raw = np.random.default_rng(1).integers(0, 256, 400, dtype=np.uint8)
    values = raw.view(dtype)
    out = Encoder()
    out.array(values, dtype)
    out.array(values[::2], dtype)
    take = Decoder(out.bytes())
    assert take.array(len(values), dtype).tobytes() == values.tobytes()
    assert take.array(len(values[::2]), dtype).tobytes() == values[::2].tobytes()
    take.done()


def test_texts_and_counts_come_back() -> None:
    out = Encoder()
    out.text("a\nb\udcfe")
    out.counts({"rate_limit": -3, "": 1 << 40})
    take = Decoder(out.bytes())
    assert take.text() == "a\nb\\udcfe"
    assert take.counts() == {"rate_limit": -3, "": 1 << 40}


def test_what_ends_too_early_or_too_late_is_refused() -> None:
    out = Encoder()
    out.number("IQ", 1, 2)
    data = out.bytes()
    with pytest.raises(RecordingError, match="ends inside"):
        Decoder(data[:-1]).number("IQ")
    take = Decoder(data)
    take.one("I")
    with pytest.raises(RecordingError, match="8 bytes too many"):
        take.done()
    with pytest.raises(RecordingError):
        Decoder(b"\xff\xff\xff\x7f").text()
