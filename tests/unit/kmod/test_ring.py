# SPDX-License-Identifier: Apache-2.0
"""The reader's end of the ring, over memory that plays the kernel's part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.core.errors import UnavailableError
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import INFO, RECORD, RING_DATA, RING_HEAD, RING_MAGIC, RING_VERSION

CAPACITY = 8


class Kernel:
    """Writes records as the module does: never over what is not consumed."""

    def __init__(self, capacity: int = CAPACITY, magic: int = RING_MAGIC) -> None:
        self.memory = bytearray(RING_DATA + capacity * RECORD.itemsize)
        self.info = np.frombuffer(self.memory, INFO, count=1)
        self.info["magic"] = magic
        self.info["version"] = RING_VERSION
        self.info["record_size"] = RECORD.itemsize
        self.info["capacity"] = capacity
        self.head = np.frombuffer(self.memory, np.uint64, count=1, offset=RING_HEAD)
        self.records = np.frombuffer(self.memory, RECORD, offset=RING_DATA)
        self.capacity = capacity

    def write(self, pages: list[int]) -> None:
        for page in pages:
            tail = int(self.info["tail"][0])
            if tail - int(self.head[0]) >= self.capacity:
                self.info["dropped"] += 1
                continue
            self.records["page"][tail % self.capacity] = page
            self.info["tail"] = tail + 1


def read(ring: Ring) -> list[int]:
    pages: list[int] = []
    for view in ring.views():
        pages += view["page"].tolist()
        ring.consume(len(view))
    return pages


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=30))
def test_records_come_once_and_in_order_and_the_rest_is_counted(
    steps: list[tuple[int, bool]],
) -> None:
    kernel = Kernel()
    ring = Ring(kernel.memory)
    written = 0
    got: list[int] = []
    for count, reads in steps:
        kernel.write(list(range(written, written + count)))
        written += count
        if reads:
            got += read(ring)
    got += read(ring)
    assert got == sorted(set(got))
    assert len(got) + ring.dropped == written


def test_views_are_the_mapping_itself() -> None:
    kernel = Kernel()
    ring = Ring(kernel.memory)
    kernel.write([5])
    (view,) = ring.views()
    assert np.shares_memory(view, kernel.records)


def test_a_reader_that_comes_later_starts_at_its_head() -> None:
    kernel = Kernel()
    kernel.write([1, 2])
    kernel.head[0] = 1
    assert read(Ring(kernel.memory)) == [2]


def test_another_version_is_refused() -> None:
    with pytest.raises(UnavailableError, match="another version"):
        Ring(Kernel(magic=1).memory)


def test_closing_is_told() -> None:
    kernel = Kernel()
    ring = Ring(kernel.memory)
    assert not ring.closing
    kernel.info["closing"] = 1
    assert ring.closing
