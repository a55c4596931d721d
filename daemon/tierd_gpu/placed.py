# SPDX-License-Identifier: Apache-2.0
"""Which chunks of a tenant are at which place: kept so that no tick reads the whole table.

A tenant's table may have four million chunks, of which a GPU holds some ten thousand. A chunk
comes, leaves and is counted in the same time whatever their number; those at a place are read in
windows that go round, so that each has its turn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I64Array = npt.NDArray[np.int64]


class PlacedChunks:
    """Sets of chunk numbers, one a place (the last place is the host: -1).

    Args:
        chunks: size of the table.
        places: number of places.

    Attributes:
        read: chunk numbers read so far, for tests of how much a tick costs.
    """

    def __init__(self, chunks: int, places: int) -> None:
        self._slot = np.zeros(chunks, np.int32)
        self._at = [np.empty(64, np.int32) for _ in range(places)]
        self._size = [0] * places
        self._next = [0] * places
        self.read = 0

    def add(self, place: int, chunk: int) -> None:
        """A chunk, of no place until now, is there."""
        at, size = self._at[place], self._size[place]
        if size == len(at):
            at = self._at[place] = np.concatenate([at, np.empty_like(at)])
        at[size] = chunk
        self._slot[chunk] = size
        self._size[place] = size + 1

    def remove(self, place: int, chunk: int) -> None:
        """A chunk is no longer there; the last one takes its slot."""
        at, last = self._at[place], self._size[place] - 1
        slot = self._slot[chunk]
        at[slot] = at[last]
        self._slot[at[last]] = slot
        self._size[place] = last

    def remove_range(self, place: int, first: int, count: int) -> None:
        """Chunks `first` to `first + count` are no longer there."""
        at = self._at[place][: self._size[place]]
        kept = at[(at < first) | (at >= first + count)]
        self._at[place][: len(kept)] = kept
        self._slot[kept] = np.arange(len(kept), dtype=np.int32)
        self._size[place] = len(kept)

    def window(self, place: int, most: int) -> I64Array:
        """int64[n ≤ most], by number: all chunks there, or the next `most` of more."""
        size = self._size[place]
        at = self._at[place][:size]
        if size > most:
            start = self._next[place] % size
            self._next[place] = start + most
            at = np.concatenate([at[start : start + most], at[: max(0, start + most - size)]])
        self.read += len(at)
        return np.sort(at).astype(np.int64)
