# SPDX-License-Identifier: Apache-2.0
"""The one rule for every move: what it is worth against what it costs.

The value of putting a chunk at a place is

    value(place) = - uses * access(place) - move(here, place) - displaced

with `uses` the accesses expected within the horizon, `access` the time one of them then
loses, `move` the time the copy takes on a way that has others waiting, and `displaced`
what the chunk that has to go loses. Staying is the place `here`, with no move. The best
value wins, and a move must win by a margin (after Blaze's single cost function).
"""

from __future__ import annotations

import numpy as np

from tierd_gpu.links import CHUNK_BYTES, HOST, F64Array, GpuTopology
from tierd_gpu.settings import HarvestSettings


class CostModel:
    """Times on this host's links, with the load of each way.

    Attributes:
        chunk_ns: float64[n+1, n+1], one chunk from place to place, idle.
        waiting: int64[n+1, n+1], chunks under way or queued from place to place.
    """

    def __init__(self, topology: GpuTopology, settings: HarvestSettings) -> None:
        self.settings = settings
        self.chunk_ns = topology.chunk_ns
        self.waiting = np.zeros(self.chunk_ns.shape, np.int64)
        self.blocked_until = np.zeros(self.chunk_ns.shape, np.int64)
        self._plain = self.chunk_ns.copy()
        if not settings.techniques.link_width:
            n = len(topology.gpus)
            finite = self.chunk_ns[:n, :n][self.chunk_ns[:n, :n] > 0]
            if len(finite):
                self._plain[:n, :n] = np.where(self._plain[:n, :n] > 0, finite.mean(), 0.0)

    def move_ns(self, source: int, dest: int) -> float:
        """Time a copy takes behind those that wait for the same way."""
        return float(self._plain[source, dest] * (1 + self.waiting[source, dest]))

    def access_ns(self, place: int, home: int) -> float:
        """Time an access from `home` loses to a chunk at `place`: it is fetched."""
        if place == home:
            return 0.0
        return float(self._plain[place, home])

    def in_place_ns(self, place: int, home: int, pages: float) -> float:
        """Time an access to `pages` 4 KiB pages loses where the chunk is used in place."""
        share = min(1.0, pages * 4096 / CHUNK_BYTES)
        return float(self.chunk_ns[place, home] * share * self.settings.remote_factor)

    def best_place(
        self,
        here: int,
        home: int,
        uses: float,
        places: list[int],
        now_ns: int,
        *,
        copied: bool = False,
    ) -> tuple[int, float]:
        """Where a chunk that must leave `here` is worth most, and that value.

        `places` are those with room; ways that broke lately are passed over. Going to the
        host costs nothing if it has a copy already (`copied`).
        """
        best, value = here, -np.inf
        for place in places:
            if self.blocked_until[here, place] > now_ns or self.blocked_until[place, home] > now_ns:
                continue
            move_ns = 0.0 if copied and place == HOST else self.move_ns(here, place)
            worth = -uses * self.access_ns(place, home) - move_ns
            if worth > value:
                best, value = place, worth
        return best, value

    def worth_fetching(self, here: int, home: int, pages: float, uses: float) -> bool:
        """Whether bringing a chunk home gains more than using it in place would.

        The chunk that makes room for it costs about as much on the way out.
        """
        gain = uses * self.in_place_ns(here, home, pages)
        cost = self.access_ns(here, home) + self.settings.fault_ns
        return gain > cost * self.settings.margin

    def block(self, source: int, dest: int, until_ns: int) -> None:
        """Leave a way alone for a while."""
        self.blocked_until[source, dest] = until_ns

    def usable_peers(self, home: int, now_ns: int) -> F64Array:
        """float64[n], chunks per second to each GPU and back; 0: not now, or itself."""
        n = len(self.chunk_ns) - 1
        there = self._plain[home, :n] + self._plain[:n, home]
        with np.errstate(divide="ignore", invalid="ignore"):
            rate: F64Array = np.where(there > 0, 2e9 / there, 0.0)
        broken = (self.blocked_until[home, :n] > now_ns) | (self.blocked_until[:n, home] > now_ns)
        rate[broken] = 0.0
        rate[home] = 0.0
        return rate
