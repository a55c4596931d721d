# SPDX-License-Identifier: Apache-2.0
"""Page keys as varints of their differences: modulo 2^64, zigzag, LEB128 (DWARF 5 section 7.6)."""

from __future__ import annotations

from typing import Final

import numpy as np

from tierd.core.pagekey import U64Array
from tierd.observe.recording import RecordingError

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
