# SPDX-License-Identifier: Apache-2.0
"""What the page tables of a process say of some pages, and how well samples of them compress."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tierd.core.errors import TargetGoneError, UnavailableError
from tierd.core.linux import (
    PAGEMAP_ENTRY_BYTES,
    PAGEMAP_EXCLUSIVE,
    PAGEMAP_FILE,
    PAGEMAP_PRESENT,
    PAGEMAP_SWAPPED,
)
from tierd.core.pagekey import PAGE_SIZE, BoolArray


@dataclass(frozen=True, slots=True)
class PageStates:
    """Of n pages in a row, bool[n] each.

    Attributes:
        own: present, anonymous, and mapped by this process alone.
        present: in memory.
        swapped: paged out.
    """

    own: BoolArray
    present: BoolArray
    swapped: BoolArray


def page_states(pid: int, start: int, count: int) -> PageStates:
    """The states of `count` pages from page number `start` on, as /proc/PID/pagemap has them.

    Raises:
        TargetGoneError: the process ended.
        UnavailableError: the kernel does not let it be read.
    """
    data = _read(f"/proc/{pid}/pagemap", start * PAGEMAP_ENTRY_BYTES, count * PAGEMAP_ENTRY_BYTES)
    entries = np.zeros(count, np.uint64)
    known = np.frombuffer(data, np.uint64)
    entries[: len(known)] = known
    present = (entries & np.uint64(PAGEMAP_PRESENT)) != 0
    exclusive = (entries & np.uint64(PAGEMAP_EXCLUSIVE)) != 0
    file = (entries & np.uint64(PAGEMAP_FILE)) != 0
    swapped = (entries & np.uint64(PAGEMAP_SWAPPED)) != 0
    return PageStates(present & exclusive & ~file, present, swapped)


def compressed_fraction(pid: int, pages: Sequence[int]) -> float:
    """Mean compressed size of pages as a fraction of their own, 0 to 1, by zlib's fastest level.

    Pages are read through /proc/PID/mem, and nothing of them is kept.

    Raises:
        TargetGoneError: the process ended.
        UnavailableError: the kernel does not let a page be read, or it is gone.
    """
    sizes = []
    for page in pages:
        data = _read(f"/proc/{pid}/mem", page * PAGE_SIZE, PAGE_SIZE)
        sizes.append(min(1.0, len(zlib.compress(data, 1)) / PAGE_SIZE))
    return sum(sizes) / len(sizes) if sizes else 1.0


def _read(path: str, at: int, length: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, length, at)
        finally:
            os.close(fd)
    except OSError as error:
        kind = TargetGoneError if error.errno in (errno.ENOENT, errno.ESRCH) else UnavailableError
        raise kind(f"cannot read {path}: {error.strerror}") from None
