# SPDX-License-Identifier: Apache-2.0
"""What a tenant will use next: its own history, replayed.

Programs that iterate touch their chunks in the same order again. The history keeps the
order; when the last two uses occurred before in the same order, what followed then is
what will follow now, and following it costs nothing until a use differs. Without such a
place, uses that go up or down by one are continued, others between them or not
(direction of consecutive batches, as HUVM's prefetcher does).
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from tierd_gpu.tuning import USE

I32Array = npt.NDArray[np.int32]


class Predictor:
    """The history of one tenant.

    Attributes:
        hits, misses: uses that followed the prediction, and that did not.
    """

    def __init__(self, capacity: int = USE.history_uses) -> None:
        self._capacity = capacity
        self._history = np.empty(2 * capacity, np.int32)
        self._count = 0
        self._pairs: dict[tuple[int, int], int] = {}
        self._cursor = -1
        self._previous = -1
        self._stream = -1
        self._direction = 0
        self._recent: deque[int] = deque(maxlen=USE.recent_uses)
        self.hits = 0
        self.misses = 0

    def add(self, chunk: int) -> None:
        """One use; a second of the same chunk in a row says nothing."""
        if chunk == self._previous:
            return
        if self._count == 2 * self._capacity:
            self._forget()
        at = self._count
        cursor = self._cursor
        if 0 <= cursor < at and self._history[cursor] == chunk:
            self._cursor = cursor + 1
            self.hits += 1
        else:
            known = self._pairs.get((self._previous, chunk), -1)
            self._cursor = known + 1 if known >= 0 else -1
            self.misses += 1
        self._pairs[(self._previous, chunk)] = at
        if self._cursor < 0:
            self._follow(chunk)
        self._recent.append(chunk)
        self._history[at] = chunk
        self._count = at + 1
        self._previous = chunk

    def _follow(self, chunk: int) -> None:
        """Continue, or find, a run of neighbouring chunks."""
        for step in (1, -1):
            if chunk - step in self._recent:
                self._stream, self._direction = chunk, step
                return
        if self._stream not in self._recent:
            self._direction = 0

    def _forget(self) -> None:
        """Keep the younger half."""
        half = self._capacity
        self._history[:half] = self._history[half:]
        self._count -= half
        self._cursor = self._cursor - half if self._cursor >= half else -1
        self._pairs = {pair: at - half for pair, at in self._pairs.items() if at >= half}

    def ahead(self, count: int) -> int:
        """How many uses `next` looks at."""
        return min(count, self._count - self._cursor) if self._cursor >= 0 else count

    def next(self, count: int, limit: int) -> I32Array:
        """int32[m ≤ count], the next uses in order, each chunk once, below `limit`."""
        if self._cursor >= 0:
            ahead = self._history[self._cursor : min(self._cursor + count, self._count)]
            return np.array(list(dict.fromkeys(ahead.tolist())), np.int32)
        if not self._direction:
            return np.empty(0, np.int32)
        last = self._stream + self._direction * (count + 1)
        steps = np.arange(self._stream + self._direction, last, self._direction, dtype=np.int32)
        return steps[(steps >= 0) & (steps < limit)]
