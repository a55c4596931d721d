# SPDX-License-Identifier: Apache-2.0
"""States and contents of pages: of this very process."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile

import numpy as np
import pytest

from tierd.core.errors import TargetGoneError
from tierd.workloads.content import compressed_fraction, page_states

PAGES = 32


def first_page(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)) // mmap.PAGESIZE


def test_states_tell_own_pages_from_others_and_from_none() -> None:
    with (
        mmap.mmap(-1, PAGES * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as own,
        tempfile.TemporaryFile() as file,
    ):
        own.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(0, PAGES, 2):
            own[page * mmap.PAGESIZE] = 1
        states = page_states(os.getpid(), first_page(own), PAGES)
        assert states.own.tolist() == states.present.tolist() == [True, False] * (PAGES // 2)
        assert not states.swapped.any()
        file.truncate(mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), mmap.PAGESIZE) as shared:
            shared[0] = 1
            states = page_states(os.getpid(), first_page(shared), 1)
            assert states.present.all()
            assert not states.own.any()


def test_pages_that_a_child_maps_as_well_are_not_its_own() -> None:
    with mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[0] = 1
        first = first_page(memory)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        assert not page_states(os.getpid(), first, 1).own.any()
        assert page_states(os.getpid(), first, 1).present.all()
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)
        assert page_states(os.getpid(), first, 1).own.all()


def test_the_compressed_part_of_pages() -> None:
    size = 4 * mmap.PAGESIZE
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:] = np.random.default_rng(1).bytes(2 * mmap.PAGESIZE) + bytes(2 * mmap.PAGESIZE)
        first = first_page(memory)
        noise = compressed_fraction(os.getpid(), [first, first + 1])
        zeros = compressed_fraction(os.getpid(), [first + 2, first + 3])
        every = compressed_fraction(os.getpid(), range(first, first + 4))
    assert noise == 1.0
    assert zeros < 0.02
    assert every == pytest.approx((noise + zeros) / 2)


def test_a_process_that_is_gone_is_an_error() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(TargetGoneError):
        page_states(child, 0, 1)
    with pytest.raises(TargetGoneError):
        compressed_fraction(child, [0])
