# SPDX-License-Identifier: Apache-2.0
"""The inner layer of a recording: numbers, texts and arrays to bytes and back.

Arrays take at least one byte an item, so that the length of a frame bounds what a reader
allocates for it. Pages are stored as differences (modulo 2^64, zigzag, LEB128 as in
DWARF 5 section 7.6), other arrays with the first bytes of all items, then the second,
and so on, which zlib likes.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd.core.pagekey import U64Array
from tierd.observe.recording.errors import RecordingError

MAX_TEXT: Final = 1 << 20
_VARINT: Final = 10
_THRESHOLDS: Final = np.array([1 << (7 * each) for each in range(1, _VARINT)], np.uint64)
_ONE: Final = np.uint64(1)


def pack_pages(page: U64Array) -> bytes:
    """uint64[n] as n varints of zigzag differences; the first is that to 0."""
    delta: U64Array = page.astype(np.uint64)
    delta[1:] -= page[:-1]
    sign = (delta >> np.uint64(63)).astype(bool)
    value = np.where(sign, ~(delta << _ONE), delta << _ONE)
    length = np.searchsorted(_THRESHOLDS, value, side="right") + 1
    end = np.cumsum(length)
    out = np.empty(int(end[-1]) if len(end) else 0, np.uint8)
    start = end - length
    left = np.arange(len(value))
    for index in range(_VARINT):
        if not len(left):
            break
        more = length[left] > index + 1
        part = (value[left] >> np.uint64(7 * index)) & np.uint64(0x7F)
        out[start[left] + index] = part.astype(np.uint8) | (more.astype(np.uint8) << 7)
        left = left[more]
    return out.tobytes()


def unpack_pages(data: bytes, count: int) -> U64Array:
    """The inverse of `pack_pages`.

    Raises:
        RecordingError: `data` is not exactly `count` varints of at most 64 bits.
    """
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    if len(ends) != count or (len(raw) and raw[-1] >= 0x80):
        raise RecordingError(f"{len(ends)} page numbers where {count} were declared")
    if not count:
        return np.empty(0, np.uint64)
    start = np.concatenate([[0], ends[:-1] + 1])
    length = ends - start + 1
    longest = int(length.max())
    if longest > _VARINT or (longest == _VARINT and raw[ends[length == _VARINT]].max() > 1):
        raise RecordingError("a page number has more than 64 bits")
    value = np.zeros(count, np.uint64)
    left = np.arange(count)
    for index in range(longest):
        left = left[length[left] > index]
        part = (raw[start[left] + index] & 0x7F).astype(np.uint64)
        value[left] |= part << np.uint64(7 * index)
    delta = (value >> _ONE) ^ (~(value & _ONE) + _ONE)
    return np.cumsum(delta, dtype=np.uint64)


class Encoder:
    """Puts values one after the other."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def number(self, form: str, *values: float) -> None:
        """Numbers in a `struct` form, little-endian."""
        self._parts.append(struct.pack("<" + form, *values))

    def text(self, text: str) -> None:
        """A text in UTF-8; what cannot be encoded is escaped."""
        data = text.encode("utf-8", "backslashreplace")
        self.number("I", len(data))
        self._parts.append(data)

    def counts(self, counts: dict[str, int]) -> None:
        """Text → int64."""
        self.number("H", len(counts))
        for name, count in counts.items():
            self.text(name)
            self.number("q", count)

    def pages(self, page: U64Array) -> None:
        """Page keys, uint64[n]."""
        data = pack_pages(page)
        self.number("II", len(page), len(data))
        self._parts.append(data)

    def array(self, values: npt.NDArray[Any], dtype: type[np.generic]) -> None:
        """An array of a fixed type; its length is known from the pages before it."""
        plain = np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<"))
        planes = plain.view(np.uint8).reshape(len(plain), plain.itemsize).T
        self._parts.append(planes.tobytes())

    def table(self, rows: npt.NDArray[np.void]) -> None:
        """An array of structures, and how many there are."""
        self.number("I", len(rows))
        planes = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), rows.itemsize).T
        self._parts.append(planes.tobytes())

    def bytes(self) -> bytes:
        """All of it."""
        return b"".join(self._parts)


class Decoder:
    """Takes values off in the order in which an `Encoder` put them.

    Raises:
        RecordingError: from every method, where the bytes end too early or say what
            cannot be.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise RecordingError(f"a frame of {len(self._data)} bytes ends inside a value")
        part = self._data[self._at : end]
        self._at = end
        return part

    def number(self, form: str) -> tuple[Any, ...]:
        """Numbers in a `struct` form."""
        return struct.unpack("<" + form, self._take(struct.calcsize("<" + form)))

    def one(self, form: str) -> Any:
        """One number."""
        return self.number(form)[0]

    def text(self) -> str:
        """A text."""
        size = self.one("I")
        if size > MAX_TEXT:
            raise RecordingError(f"a text of {size} bytes")
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise RecordingError(f"a text is not UTF-8: {error.reason}") from None

    def counts(self) -> dict[str, int]:
        """Text → int64."""
        return {self.text(): self.one("q") for _ in range(self.one("H"))}

    def pages(self) -> U64Array:
        """Page keys, uint64[n]."""
        count, size = self.number("II")
        return unpack_pages(self._take(size), count)

    def array(self, count: int, dtype: type[np.generic]) -> npt.NDArray[Any]:
        """An array of `count` items."""
        kind = np.dtype(dtype).newbyteorder("<")
        planes = np.frombuffer(self._take(count * kind.itemsize), np.uint8)
        plain = np.ascontiguousarray(planes.reshape(kind.itemsize, count).T)
        return plain.view(kind).reshape(count).astype(dtype, copy=False)

    def table(self, kind: np.dtype[np.void]) -> npt.NDArray[np.void]:
        """An array of structures of this type, which has no gaps."""
        count = self.one("I")
        planes = np.frombuffer(self._take(count * kind.itemsize), np.uint8)
        plain = np.ascontiguousarray(planes.reshape(kind.itemsize, count).T)
        return plain.reshape(-1).view(kind)

    def done(self) -> None:
        """Nothing may be left."""
        if self._at != len(self._data):
            raise RecordingError(f"{len(self._data) - self._at} bytes too many in a frame")
