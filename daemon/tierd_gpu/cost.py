# SPDX-License-Identifier: Apache-2.0
"""The one rule for every move: what it is worth against what it costs.

The value of putting a chunk at a place is

    value(place) = - uses * access(place) - move(here, place)

with `uses` the accesses expected within the horizon, `access` the time one of them then
loses, and `move` the time the copy takes on a way that has others waiting. The best value
wins (after Blaze's single cost function).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tierd_gpu.links import CHUNK_BYTES, HOST, F64Array, GpuTopology
from tierd_gpu.tuning import COST, PLAN

BoolArray = npt.NDArray[np.bool_]


class CostModel:
    """Times on this host's links, with the load of each way.

    Attributes:
        chunk_ns: float64[n+1, n+1], one chunk from place to place, idle.
        waiting: int64[n+1, n+1], chunks under way or queued from place to place.
    """

    def __init__(self, topology: GpuTopology) -> None:
        self.chunk_ns = topology.chunk_ns
        self.waiting = np.zeros(self.chunk_ns.shape, np.int64)

    def move_ns(self, source: int, dest: int, *, first: bool = False) -> float:
        """Time a move takes behind those that wait for the same way.

        `first`: the chunk was never on the host, which has no memory for it yet.
        """
        queue_ns = self.chunk_ns[source, dest] * self.waiting[source, dest]
        return float(queue_ns) + self.alone_ns(source, dest, first=first)

    def alone_ns(self, source: int, dest: int, *, first: bool = False) -> float:
        """Time a move takes with nothing else under way."""
        extra = COST.to_host_ns if dest == HOST else COST.to_gpu_ns
        if first and dest == HOST:
            extra += COST.host_first_ns
        return float(self.chunk_ns[source, dest]) + extra

    def access_ns(self, place: int, home: int) -> float:
        """Time an access from `home` loses to a chunk at `place`: it is fetched."""
        if place == home:
            return 0.0
        return float(self.chunk_ns[place, home])

    def in_place_ns(
        self, place: int | npt.NDArray[np.int16], home: int, pages: npt.ArrayLike
    ) -> F64Array:
        """float64[n], time accesses to `pages` 4 KiB pages lose where chunks are used in place."""
        share = np.minimum(1.0, np.asarray(pages, np.float64) * 4096 / CHUNK_BYTES)
        return np.asarray(np.take(self.chunk_ns[:, home], place) * share)

    def best_place(
        self,
        here: int,
        home: int,
        uses: float,
        places: list[int],
        blocked: BoolArray,
        *,
        first: bool = False,
    ) -> int:
        """Where a chunk that must leave `here` is worth most; `here` where it can go nowhere.

        `places` are those with room; ways that are `blocked`, bool[n+1, n+1], are passed over.
        """
        best, value = here, -np.inf
        for place in places:
            if blocked[here, place] or blocked[place, home]:
                continue
            worth = -uses * self.access_ns(place, home) - self.move_ns(here, place, first=first)
            if worth > value:
                best, value = place, worth
        return best

    def worth_fetching(self, here: int, home: int, pages: float, uses: float) -> bool:
        """Whether bringing a chunk home gains enough over using it where it is.

        Moves go on beside the kernels, so theirs is not the same time: a gain of a part of
        what the move and that of another chunk, which makes place, take is enough.
        """
        gain = uses * float(self.in_place_ns(here, home, pages))
        return gain > PLAN.gain_ratio * self.exchange_ns(here, home)

    def exchange_ns(self, here: int, home: int) -> float:
        """Time in which a chunk comes home and another goes there."""
        return self.alone_ns(here, home) + self.alone_ns(home, here)

    def usable_peers(self, home: int, blocked: BoolArray) -> F64Array:
        """float64[n], chunks per second to each GPU and back; 0: blocked, or itself."""
        n = len(self.chunk_ns) - 1
        there = self.chunk_ns[home, :n] + self.chunk_ns[:n, home]
        with np.errstate(divide="ignore", invalid="ignore"):
            rate: F64Array = np.where(there > 0, 2e9 / there, 0.0)
        rate[blocked[home, :n] | blocked[:n, home]] = 0.0
        rate[home] = 0.0
        return rate
