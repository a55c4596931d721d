# SPDX-License-Identifier: Apache-2.0
"""Which pages are paged out to compressed memory or swap, and how old they have to be.

A page that was not accessed for a time A is accessed at most about once in A, so that its faults
cost at most F / A, where F is the time of a fault. It is paged out when that is below a price,
which follows what faults cost all programs together (Lagar-Cavilla et al., ASPLOS 2019, and Weiner
et al., ASPLOS 2022, steer in this way). With F the same for all pages, the price is an age.

Memory is visited in chunks. A page goes if it was cold at all visits of its chunk within an age,
and heat was known all the time. Heat tells an access from none for some half-lives, so that an age
of more takes several visits. A chunk of which nothing goes, or whose pages come back, is left alone
for longer between two ages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from tierd.core.bounds import PAGE_OUT_PAGES
from tierd.core.pagekey import HUGE_PAGES, BoolArray
from tierd.core.tuning import PAGE_OUT

IN_SWAP: Final = "it was in swap at the last visit"


def steps(age_s: float, half_life_s: float) -> int:
    """Times from one visit of a chunk to the next that make up an age."""
    return max(1, math.ceil(age_s / half_life_s / PAGE_OUT.visit_half_lives))


class Age:
    """How long a page has to be without an access.

    Args:
        least_s: never less than this.
        most_lost: share of one CPU's time that faults on swapped memory may cost.

    Attributes:
        seconds: the age now.
        lost: the share that they cost lately.
    """

    def __init__(self, least_s: float, most_lost: float) -> None:
        self._least_s, self._most_lost = least_s, most_lost
        self.seconds = least_s
        self.lost = 0.0

    def update(self, faults: int, fault_s: float, elapsed_s: float) -> bool:
        """Take in the faults of the last seconds; whether pages may be paged out now."""
        if elapsed_s > 0:
            share = faults * fault_s / elapsed_s
            weight = min(1.0, elapsed_s / PAGE_OUT.memory_s)
            self.lost += weight * (share - self.lost)
            if self.lost > self._most_lost:
                most = self._least_s * PAGE_OUT.most_age_factor
                self.seconds = min(most, self.seconds * (1 + weight))
            elif self.lost < self._most_lost / 2:
                self.seconds = max(self._least_s, self.seconds * (1 - weight / 4))
        return self.lost <= self._most_lost


class HeatAge(NamedTuple):
    """Of a heat table: how much it does not know, and half-lives by which heat has decayed.

    `unknown` counts folios that were evicted and samples that were lost.
    """

    unknown: int
    aged: float


class Seen(NamedTuple):
    """What a visit found of a chunk's pages, bool[PAGE_OUT_PAGES] each.

    Attributes:
        cold: pages that could go, and were not accessed since the visit before.
        present: in memory.
        swapped: paged out, by whomever.
    """

    cold: BoolArray
    present: BoolArray
    swapped: BoolArray


class Outcome(NamedTuple):
    """What a visit comes to.

    Attributes:
        going: which pages may go now, bool[PAGE_OUT_PAGES].
        back: pages that were in swap at the last visit and are in memory now.
        ends: an age is over: the next one begins after `Chunk.waits` more.
    """

    going: BoolArray
    back: int
    ends: bool


@dataclass(slots=True)
class Chunk:
    """What is remembered of a chunk: bits of its pages, and when it is visited next.

    Attributes:
        cold: those that were cold at each of the last `visits` visits.
        out: those that were in swap at the last visit.
        due_ns: the next visit.
        waits: ages from the end of one to the next visit.
        dense: a bit for each 2 MiB of the chunk whose pages do not compress.
        dense_until_ns: when that is forgotten.
        heat: of the heat table, at the last visit.
    """

    cold: bytes = b""
    visits: int = 0
    out: bytes = b""
    due_ns: int = 0
    waits: int = 1
    dense: int = 0
    dense_until_ns: int = 0
    heat: HeatAge = field(default_factory=lambda: HeatAge(-1, -math.inf))

    def limit(self, aged: float) -> float:
        """No page that was accessed since the last visit has less heat than this."""
        return float(2.0 ** max(-PAGE_OUT.most_half_lives, min(0.0, self.heat.aged - aged)))

    def visit(self, seen: Seen, heat: HeatAge, steps: int) -> Outcome:
        """Take in a visit.

        Args:
            heat: of the table, now.
            steps: times that pages have to be cold again, an age together.
        """
        out = bits(self.out)
        back = int(np.count_nonzero(out & seen.present))
        many = bool(back > PAGE_OUT.most_refaults * np.count_nonzero(out))
        known = (
            heat.unknown == self.heat.unknown
            and heat.aged - self.heat.aged <= PAGE_OUT.most_half_lives
        )
        going, ends = np.zeros(PAGE_OUT_PAGES, np.bool_), many
        if many:
            self.visits, self.cold = 0, b""
        elif self.visits == 0 or not known:
            self.visits, self.cold = 1, packed(seen.cold)
        elif self.visits < steps:
            self.visits, self.cold = self.visits + 1, packed(seen.cold & bits(self.cold))
        else:
            self.visits, going, ends = 0, seen.cold & bits(self.cold), True
            self.cold = packed(going)
        if ends:
            self.waits = max(1, self.waits // 2) if going.any() else 2 * self.waits
            self.waits = min(self.waits, PAGE_OUT.most_waits)
        self.out, self.heat = packed(seen.swapped), heat
        return Outcome(going, back, ends)

    def put_off(self, left: BoolArray, now_ns: int, steps: int) -> None:
        """These cannot go now: they alone may at the next visit, which is soon."""
        self.cold, self.due_ns, self.visits = packed(left), now_ns, steps

    def words(self, page: int, now_ns: int, steps: int) -> str:
        """What the last visit tells of a page of the chunk, one sentence; any thread may ask."""
        visits, wait_s = self.visits, (self.due_ns - now_ns) / 1e9
        again = f"; it is looked at again in {wait_s:.0f} s" if wait_s > 0 else "; its visit is due"
        if bits(self.out)[page]:
            return IN_SWAP
        if self.heat.unknown < 0:
            return f"it could not be looked at{again}" if self.due_ns else "no visit has come to it"
        if now_ns < self.dense_until_ns and self.dense >> page // HUGE_PAGES & 1:
            return f"it stays: samples near it do not compress{again}"
        if not bits(self.cold)[page]:
            why = "it, or much near it, was in use, or it is shared, locked or no anonymous memory"
            return f"it stays: {why}{again}"
        if not visits:
            return f"it was cold for long enough, and did not go{again}"
        cold = f"cold at {min(visits, steps)} of the {steps + 1} visits after which it goes"
        return f"it was {cold}{again}"

    def went(self, out: BoolArray) -> None:
        """These were paged out."""
        self.out = packed(bits(self.out) | out)


@dataclass(slots=True)
class PageOutState:
    """For status and metrics; replaced as a whole.

    Attributes:
        why_not: why nothing is paged out now.
        pages: 4 KiB pages by what became of them (`Visits.pages`).
        left_out: chunks that are never paged out, for there are too many.
        age_s: how long a page has to be without an access.
        lost: share of one CPU that faults on swapped memory cost.
        fault_s: time of a fault.
    """

    why_not: str
    pages: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0
    age_s: float = 0.0
    lost: float = 0.0
    fault_s: float = 0.0


def bits(packed_bits: bytes) -> BoolArray:
    """Bits of a chunk's pages, bool[PAGE_OUT_PAGES]; none of an empty text."""
    if not packed_bits:
        return np.zeros(PAGE_OUT_PAGES, np.bool_)
    return np.unpackbits(np.frombuffer(packed_bits, np.uint8)).astype(np.bool_)


def packed(marks: BoolArray) -> bytes:
    """What `bits` takes."""
    return np.packbits(marks).tobytes() if marks.any() else b""
