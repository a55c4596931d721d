# SPDX-License-Identifier: Apache-2.0
"""Page keys: one number for a page of a watched process, and sets of them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tierd._native import ffi, lib
from tierd.core.bounds import MAX_TARGETS

PAGE_SHIFT: Final = 12
PAGE_SIZE: Final = 1 << PAGE_SHIFT
HUGE_ORDER: Final = 9
"""Order of a folio of 2 MiB."""
HUGE_PAGES: Final = 1 << HUGE_ORDER
HUGE_BYTES: Final = PAGE_SIZE << HUGE_ORDER
VPN_BITS: Final = 48
VPN_MASK: Final = (1 << VPN_BITS) - 1

U64Array = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]
I16Array = npt.NDArray[np.int16]
I64Array = npt.NDArray[np.int64]
F64Array = npt.NDArray[np.float64]


def make_keys(target: int, vpn: U64Array) -> U64Array:
    """Keys, uint64[n], of the pages `vpn`, uint64[n], of one target.

    Raises:
        ValueError: `target` does not fit in 16 bits.
    """
    if not 0 <= target < MAX_TARGETS:
        raise ValueError(f"target number {target} is not in 0..{MAX_TARGETS - 1}")
    return vpn | np.uint64(target << VPN_BITS)


def vpn_of(keys: U64Array) -> U64Array:
    """Virtual page numbers, uint64[n], of `keys`, uint64[n]."""
    return keys & np.uint64(VPN_MASK)


def target_of(keys: U64Array) -> U64Array:
    """Target numbers, uint64[n], of `keys`, uint64[n]."""
    return keys >> np.uint64(VPN_BITS)


def small_pages(keys: U64Array, order: npt.NDArray[np.uint8]) -> U64Array:
    """Keys of all 4 KiB pages of folios: first pages uint64[n], sizes 2^order pages, uint8[n]."""
    if not order.any():
        return keys
    size = np.int64(1) << order.astype(np.int64)
    first = np.repeat(np.cumsum(size) - size, size)
    pages: U64Array = np.repeat(keys, size)
    pages += (np.arange(len(first)) - first).astype(np.uint64)
    return pages


SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: neighbours times it lie far apart (daemon/native/pagekey.h)."""
_LEAST_SLOTS: Final = 1024
_BYTES: Final = 8
"""Of a page's key."""


class PageKeySet:
    """Pages, uint64 keys; those of all ones are never members."""

    def __init__(self) -> None:
        self._added: list[U64Array] = []
        self._count = self._settled = 0
        self._table: U64Array = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        """Pages that were added, those that were added twice twice."""
        return self._count

    def add(self, page: U64Array) -> None:
        """These, uint64[n], are members from now on."""
        if not len(page):
            return
        self._added.append(page)
        self._count += len(page)

    def _settle(self) -> None:
        """What was added comes into the table: many sets are never asked for anything."""
        if 2 * self._count > len(self._table):
            # Twice as much room as is needed now: sets grow by many small pieces.
            slots = max(_LEAST_SLOTS, 1 << (4 * self._count - 1).bit_length())
            self._table = np.zeros(slots, np.uint64)
            self._settled = 0
        if self._settled < len(self._added):
            self._fill(np.concatenate(self._added[self._settled :]))
            self._settled = len(self._added)

    def _fill(self, own: U64Array) -> None:
        lib.tierd_members_add(
            ffi.from_buffer("uint64_t[]", self._table),
            len(self._table),
            ffi.from_buffer("uint64_t[]", own),
            len(own),
        )

    def has(self, page: U64Array) -> BoolArray:
        """Which of these, uint64[n], are members, bool[n]. A field of records is not copied."""
        found = np.zeros(len(page), np.bool_)
        if not len(page) or not self._count:
            return found
        self._settle()
        if page.strides[0] % _BYTES or page.strides[0] < 0:
            page = np.ascontiguousarray(page)
        lib.tierd_members(
            ffi.from_buffer("uint64_t[]", self._table),
            len(self._table),
            ffi.cast("uint64_t *", page.ctypes.data),
            page.strides[0] // _BYTES,
            len(page),
            ffi.from_buffer("uint8_t[]", found),
        )
        return found
