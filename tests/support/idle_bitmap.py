# SPDX-License-Identifier: Apache-2.0
"""A bitmap of idle page tracking for kernels that have none, beside their own pagemaps."""

from __future__ import annotations

import errno
import os
from typing import Any

import numpy as np
from idle_kernel import BITMAP, PRESENT_CALL

from tierd._native import ffi, lib


class Bitmap:
    """A bitmap of idle frames; all else is this kernel's."""

    def __init__(self, *, scan: bool) -> None:
        self.idle: set[int] = set()
        self.tails: set[int] = set()
        self._scan = scan
        self._kept = (
            ffi.callback("int64_t(int, void *, size_t, int64_t)", self._read),
            ffi.callback("int64_t(int, const void *, size_t, int64_t)", self._write),
            ffi.callback(PRESENT_CALL, self._present),
        )
        self.calls = ffi.new("struct tierd_idle_calls *", self._kept)

    def _read(self, fd: int, to: Any, size: int, offset: int) -> int:
        if fd != BITMAP:
            data = os.pread(fd, size, offset)
        else:
            bits = np.array([pfn in self.idle for pfn in range(offset * 8, (offset + size) * 8)])
            data = np.packbits(bits, bitorder="little").tobytes()
        ffi.memmove(to, data, len(data))
        return len(data)

    def _write(self, fd: int, source: Any, size: int, offset: int) -> int:
        data = np.frombuffer(ffi.buffer(source, size), np.uint8)
        marked = np.flatnonzero(np.unpackbits(data, bitorder="little"))
        self.idle |= {int(each) + offset * 8 for each in marked} - self.tails
        return size

    def _present(self, *given: Any) -> int:
        fd, start, end, pages, region, most, at = given
        if not self._scan:
            return -errno.ENOTTY
        need, without = lib.TIERD_PAGE_PRESENT, lib.TIERD_PAGE_PFNZERO
        return int(lib.tierd_pagemap_scan(fd, start, end, need, without, pages, region, most, at))
