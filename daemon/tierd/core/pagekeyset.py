# SPDX-License-Identifier: Apache-2.0
"""`PageKeySet`: a set of pages that others are looked up in, thousands at a time."""

from __future__ import annotations

from typing import Final

import numpy as np

from tierd._native import ffi, lib
from tierd.core.access import BoolArray
from tierd.core.pagekey import U64Array

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
