# SPDX-License-Identifier: Apache-2.0
"""What the harvester knows of one tenant: its chunks, where they are, how they are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tierd_gpu.links import HOST, F64Array
from tierd_gpu.placed import PlacedChunks
from tierd_gpu.predict import Predictor
from tierd_gpu.tuning import PLAN, USE
from tierd_gpu.wire import MOVE, StateFlag

BoolArray = npt.NDArray[np.bool_]
I64Array = npt.NDArray[np.int64]
NOWHERE = -2
"""Not used yet, so it has no memory."""
FOR_EVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class TenantSpec:
    """Who a tenant is: checked by the server, never taken from the client's word.

    Attributes:
        session: the server's number for the connection.
        uid: user, from the socket's credentials.
        home: the GPU it computes on.
        borrows, lends: its role.
        max_chunks: size of its chunk table.
        visible: GPUs beside its home that it says it can see (CUDA_VISIBLE_DEVICES), None
            for all: it is never sent to another.
    """

    session: int
    uid: int
    home: int
    borrows: bool = True
    lends: bool = False
    max_chunks: int = 65536
    name: str = ""
    visible: frozenset[int] | None = None


@dataclass(slots=True)
class Said:
    """What a client says of itself.

    Attributes:
        launches: kernel launches that its preload saw; of `untold`, the parameters do not
            tell what they use.
        dropped: records and uses that it had no room for.
    """

    launches: int = 0
    untold: int = 0
    dropped: int = 0


class Order(NamedTuple):
    """A command under way: a chunk from place to place, and when it was sent."""

    chunk: int
    source: int
    dest: int
    sent_ns: int


class Tenant:
    """One tenant's chunks; every array has `spec.max_chunks` entries.

    Attributes:
        live: bool, the chunk exists.
        place: int16, where it is (`NOWHERE`, `HOST`, or a GPU).
        in_place: bool, used from home where it is.
        hosted: bool, the host has had it, and keeps memory for it.
        busy: int64, sequence number of the command under way, 0 for none.
        last_ns, every_ns: float64, last use and time between uses (nan: unknown).
        pages: float32, 4 KiB pages touched in a use: the most, slowly forgotten.
        arrived_ns: float64, when it came where it is.
        bounce: int16, moves home since the last use.
        lent: bool, it is on a neighbour because a command sent it there. What a tenant says
            without one is its own affair: no figure of anybody else depends on it.
    """

    def __init__(self, spec: TenantSpec, places: int) -> None:
        size = spec.max_chunks
        self.spec = spec
        self.live, self.lent = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        self.place = np.full(size, NOWHERE, np.int16)
        self.in_place = np.zeros(size, np.bool_)
        self.hosted = np.zeros(size, np.bool_)
        self.busy = np.zeros(size, np.int64)
        self.last_ns = np.zeros(size)
        self.every_ns = np.full(size, np.nan)
        self.pages = np.zeros(size, np.float32)
        self.arrived_ns = np.zeros(size)
        self.bounce = np.zeros(size, np.int16)
        self.scratch = np.zeros(size, np.bool_)
        """All false between calls: for marking chunks without making sets."""
        self.end = 0
        """No chunk at or above this number was ever live."""
        self.placed = PlacedChunks(size, places)
        self.predictor = Predictor()
        self.count = np.zeros(places, np.int64)
        """Chunks at each place; the last entry is the host's."""
        self.lent_count, self.lent_first = np.zeros((2, places), np.int64)
        """Chunks at each place that are lent; of them, those that the host never had."""
        self.leaving, self.toward = np.zeros((2, places), np.int64)
        """Commands under way, by the place that a chunk leaves, and by that which it goes to."""
        self.revoking_ns = np.full(places, -1, np.int64)
        """Since when more of a place is lent than leased, -1: it is not."""
        self.blocked_until = _blocked_ways(spec, places)
        """Until when a way, from place to place, that broke for this tenant is left alone."""
        self.sequence = 0
        self.orders: dict[int, Order] = {}
        """Commands under way, by sequence number."""
        self.out: list[tuple[int, int, int, int]] = []
        """Commands decided and not sent: records of `wire.MOVE`."""
        self.lease = np.zeros(places, np.int64)
        self.visited = np.zeros(places, np.bool_)
        """GPUs that a chunk was on, or sent to: the client has a context there."""
        self.remote: list[int] = []
        """Chunks that were used in place since the last plan."""
        self.uses = 0
        self.said = Said()
        self.again_ns = 0.0
        """Time until a chunk is used again, smoothed over all of them; 0: none was yet."""
        self.brought = 0
        """Chunks sent home since the last report of uses."""
        self.told_ns = 0.0
        """When the last use was."""
        self.was_long = False
        """Whether the time between the last two reports of uses was that of a pause."""
        self.kernel_ns = 0.0
        """Time that kernels take for a use, without waiting for links, smoothed."""

    @property
    def evicting(self) -> int:
        """Commands under way that make room at home."""
        return int(self.leaving[self.spec.home])

    @property
    def fetching(self) -> int:
        """Commands under way that take room at home."""
        return int(self.toward[self.spec.home])

    def set_range(self, first: int, count: int, live: bool) -> None:
        """Chunks come or go.

        Raises:
            ValueError: outside the tenant's table.
        """
        if first + count > self.spec.max_chunks:
            raise ValueError(f"chunks {first} to {first + count} of {self.spec.max_chunks}")
        part = slice(first, first + count)
        self._forget_places(first, count)
        self.live[part] = live
        for array in (self.in_place, self.hosted, self.lent):
            array[part] = False
        self.busy[part] = 0
        self.every_ns[part] = np.nan
        self.bounce[part] = 0
        self.end = max(self.end, first + count) if live else self.end

    def _forget_places(self, first: int, count: int) -> None:
        """Chunks of a range are nowhere."""
        part = slice(first, first + count)
        places = len(self.count)
        there = np.flatnonzero(self.place[part] != NOWHERE) + first
        at = self.place[there] % places
        new, lent = ~self.hosted[there], self.lent[there]
        self.count -= np.bincount(at, minlength=places)
        self.lent_count -= np.bincount(at[lent], minlength=places)
        self.lent_first -= np.bincount(at[new & lent], minlength=places)
        for place in np.unique(at).tolist():
            self.placed.remove_range(place, first, count)
        self.place[part] = NOWHERE

    def use(
        self, chunk: I64Array, pages: I64Array, time_ns: F64Array, waited_ns: float = 0.0
    ) -> None:
        """Uses in the order they happened, in which kernels waited for links so long."""
        add = self.predictor.add
        for index in chunk.tolist():
            add(index)
        self.uses += len(chunk)
        self.remote += chunk[self.in_place[chunk]].tolist()
        gap = time_ns - self.last_ns[chunk]
        known = (self.last_ns[chunk] > 0) & (gap > USE.same_use_ns)
        seen = chunk[known]
        old = self.every_ns[seen]
        new = gap[known]
        mixed = (1 - USE.interval_weight) * old + USE.interval_weight * new
        self.every_ns[seen] = np.where(np.isnan(old), new, mixed)
        if len(new):
            weight = USE.typical_weight if self.again_ns else 1.0
            self.again_ns = (1 - weight) * self.again_ns + weight * float(np.median(new))
        self._learn_kernels(chunk, time_ns, waited_ns)
        self.last_ns[chunk] = time_ns
        self.pages[chunk] = np.maximum(pages, USE.pages_kept * self.pages[chunk])
        self.bounce[chunk] = 0

    def _learn_kernels(self, chunk: I64Array, time_ns: F64Array, waited_ns: float) -> None:
        """Uses of chunks that were never used before tell nothing of those that come."""
        if not len(chunk):
            return
        self.brought = 0
        took, self.told_ns = time_ns[-1] - self.told_ns, float(time_ns[-1])
        again = np.count_nonzero(self.last_ns[chunk])
        # A long time between two reports is a pause of the program; two of them are long kernels.
        is_long = bool(took >= PLAN.horizon_ns)
        paused, self.was_long = is_long and not self.was_long, is_long
        if again and not paused:
            each = max(0.0, took - waited_ns) / len(chunk)
            weight = min(1.0, again / USE.kernel_uses)
            self.kernel_ns += weight * (each - self.kernel_ns)

    def set_state(
        self, chunk: int, place: int, flags: int, now_ns: float, *, sent: bool = False
    ) -> None:
        """Where a chunk is now, as the client found or made it.

        Args:
            chunk, place, flags, now_ns: of the report.
            sent: whether it answers a command that sent the chunk there.
        """
        old = int(self.place[chunk])
        if old != NOWHERE:
            self._count_chunk(chunk, -1)
        if place != old:
            if old != NOWHERE:
                self.placed.remove(old, chunk)
            self.placed.add(place, chunk)
            self.arrived_ns[chunk] = now_ns
        self.lent[chunk] = place not in (HOST, self.spec.home) and (
            sent or (place == old and bool(self.lent[chunk]))
        )
        self.place[chunk] = place
        self.visited[place] |= place >= 0
        self.in_place[chunk] = bool(flags & StateFlag.IN_PLACE)
        self.hosted[chunk] |= place == HOST
        self._count_chunk(chunk, 1)

    def _count_chunk(self, chunk: int, change: int) -> None:
        place = int(self.place[chunk])
        self.count[place] += change
        if self.lent[chunk]:
            self.lent_count[place] += change
            self.lent_first[place] += change * (not self.hosted[chunk])

    def has(self, chunk: int, place: int) -> bool:
        """Whether a chunk's memory at `place` counts: at home, or lent."""
        return place == self.spec.home or bool(self.lent[chunk])

    def held(self, gpu: int) -> int:
        """Chunks on a GPU that count."""
        return int(self.count[gpu] if gpu == self.spec.home else self.lent_count[gpu])

    def order(self, chunk: int, dest: int, flags: int, now_ns: int) -> None:
        """Decide a command; the chunk is busy until its answer comes."""
        self.sequence += 1
        source = int(self.place[chunk])
        self.orders[self.sequence] = Order(chunk, source, dest, now_ns)
        self.busy[chunk] = self.sequence
        self.out.append((chunk, dest, flags, self.sequence))
        self.leaving[source] += 1
        self.toward[dest] += 1
        self.visited[dest] = True
        if dest == self.spec.home:
            self.bounce[chunk] += 1

    def block(self, source: int, dest: int, until_ns: int) -> None:
        """Leave a way alone for a while."""
        self.blocked_until[source, dest] = max(until_ns, int(self.blocked_until[source, dest]))

    def blocked(self, now_ns: int) -> BoolArray:
        """bool[n+1, n+1], the ways that this tenant leaves alone now."""
        return np.asarray(self.blocked_until > now_ns)

    def answered(self, sequence: int) -> Order | None:
        """The command that an answer belongs to; it is over."""
        found = self.orders.pop(sequence, None)
        if found is None:
            return None
        if self.busy[found.chunk] == sequence:
            self.busy[found.chunk] = 0
        self.leaving[found.source] -= 1
        self.toward[found.dest] -= 1
        return found

    def expected_next(self, chunk: I64Array, now_ns: float) -> F64Array:
        """float64[n], when each chunk is expected to be used next.

        One that is overdue is expected after as much time again as it is overdue; one
        never used twice is taken to come again as others lately did, and while none has,
        after twice as long as it has been idle.
        """
        last, every = self.last_ns[chunk], self.every_ns[chunk]
        typical = self.again_ns if self.again_ns else 3.0 * (now_ns - last)
        due = last + np.where(np.isnan(every), typical, every)
        soonest: F64Array = np.where(due > now_ns, due, 2.0 * now_ns - due)
        return soonest

    def at(self, place: int, most: int) -> I64Array:
        """int64[m], idle chunks of the next `most` at `place`, by number."""
        here = self.placed.window(place, most)
        return np.asarray(here[self.busy[here] == 0])

    def take_orders(self) -> npt.NDArray[np.void]:
        """The commands decided since the last call, as `wire.MOVE` records."""
        orders = np.array(self.out, MOVE)
        self.out.clear()
        return orders


def _blocked_ways(spec: TenantSpec, places: int) -> I64Array:
    """int64[n+1, n+1]: ways to and from GPUs that the tenant cannot see are blocked for ever."""
    until = np.zeros((places, places), np.int64)
    if spec.visible is not None:
        unseen = [g for g in range(places - 1) if g not in spec.visible and g != spec.home]
        until[unseen] = until[:, unseen] = FOR_EVER
    return until
