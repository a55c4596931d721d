# SPDX-License-Identifier: Apache-2.0
"""Advice about memory of a process: this one."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import subprocess

from tierd._native import ffi, lib
from tierd.migration.page_out import page_out

PAGES = 8


def first_page(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)) // mmap.PAGESIZE


def advised(runs: list[tuple[int, int]]) -> int:
    spans = ffi.new("struct tierd_span[]", [{"start": a, "end": b} for a, b in runs])
    return int(lib.tierd_advise(os.getpid(), spans, len(runs), lib.TIERD_ADVICE_COLD))


def test_a_span_that_is_refused_keeps_no_other_from_being_advised() -> None:
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:] = bytes(len(memory))
        first = first_page(memory)
        libc = ctypes.CDLL(None, use_errno=True)
        locked = ctypes.c_void_p((first + 3) * mmap.PAGESIZE)
        assert libc.mlock(locked, ctypes.c_size_t(mmap.PAGESIZE)) == 0
        single = [(first + page, first + page + 1) for page in range(PAGES)]
        assert advised(single) == (PAGES - 1) * mmap.PAGESIZE
        assert advised(single[3:4]) == -errno.EINVAL
        # A span that reaches into locked memory does not count, what is behind it does.
        assert advised([(first, first + PAGES), *single[5:]]) == 3 * mmap.PAGESIZE
        assert libc.munlock(locked, ctypes.c_size_t(mmap.PAGESIZE)) == 0
        assert advised(single) == PAGES * mmap.PAGESIZE
        assert page_out(os.getpid(), single[:2]) == 2 * mmap.PAGESIZE
        assert memory[:] == bytes(len(memory))


def test_more_spans_than_one_call_takes() -> None:
    number = 3000
    with mmap.mmap(-1, 2 * number * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        first = first_page(memory)
        runs = [(first + 2 * each, first + 2 * each + 1) for each in range(number)]
        assert advised(runs) == number * mmap.PAGESIZE
    assert advised([(0, 1)] * (1 << 17)) == -errno.EINVAL


def test_a_process_that_is_gone() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
        assert page_out(child.pid, [(0, 1)]) == -errno.ESRCH
