# SPDX-License-Identifier: Apache-2.0
"""Which pages are paged out to compressed memory or swap, and how old they have to be.

A page that was not accessed for a time A is accessed at most about once in A, so that its faults
cost at most F / A, where F is the time of a fault. It is paged out when that is below a price,
which follows what faults cost all programs together (Lagar-Cavilla et al., ASPLOS 2019, and Weiner
et al., ASPLOS 2022, steer in this way). With F the same for all pages, the price is an age.

Memory is visited in chunks. A page goes if it was cold at all visits of its chunk within the age,
and the heat table kept all it learned in between. Heat tells an access from none for some
half-lives, so that an age of more takes several visits. A chunk whose pages come back is visited
more seldom.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tierd.core.bounds import PAGE_OUT_PAGES
from tierd.core.pagekey import BoolArray
from tierd.core.tuning import PAGE_OUT


def steps(age_s: float, half_life_s: float) -> int:
    """Visits of a chunk in an age."""
    return max(1, math.ceil(age_s / half_life_s / PAGE_OUT.visit_half_lives))


class Age:
    """How long a page has to be without an access.

    Args:
        least_s: never less than this.
        most_lost: share of one CPU's time that faults of all targets may cost.

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


@dataclass(slots=True)
class Chunk:
    """What is remembered of a chunk: bits of its pages, and when it is visited next.

    Attributes:
        cold: those that were cold at each of the last `visits` visits.
        out: those that were paged out and had not come back.
        due_ns: the next visit.
        waits: ages between two visits.
        dense: a bit for each block of the chunk whose pages do not compress.
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

    def visit(
        self, cold: BoolArray, present: BoolArray, heat: HeatAge, steps: int = 1
    ) -> tuple[BoolArray, int]:
        """Which pages may go now, bool[PAGE_OUT_PAGES], and how many came back.

        Args:
            cold: pages that could go, and were not accessed since the visit before.
            present: pages in memory.
            heat: of the table, now.
            steps: times that pages have to be cold again, an age together.
        """
        out = bits(self.out)
        back = int(np.count_nonzero(out & present))
        if many := back > PAGE_OUT.most_refaults * np.count_nonzero(out):
            self.waits = min(2 * self.waits, PAGE_OUT.most_waits)
        else:
            self.waits = max(1, self.waits // 2)
        self.out = packed(out & ~present)
        going = np.zeros(PAGE_OUT_PAGES, np.bool_)
        lasts = cold & bits(self.cold)
        told = heat.aged - self.heat.aged <= PAGE_OUT.most_half_lives
        if many or not told or heat.unknown != self.heat.unknown:
            self.visits, lasts = 0, cold
        elif self.visits >= steps:
            self.visits, going, lasts = 0, lasts, cold
        self.visits += 1
        self.cold, self.heat = packed(lasts), heat
        return going, back

    def put_off(self, going: BoolArray, now_ns: int) -> None:
        """Not all of these can go now: they alone may at the next visit, which is soon."""
        self.cold, self.due_ns, self.visits = packed(going), now_ns, PAGE_OUT.most_waits

    def went(self, out: BoolArray) -> None:
        """These were paged out."""
        self.out = packed(bits(self.out) | out)
        self.cold = packed(bits(self.cold) & ~out)


@dataclass(slots=True)
class PageOutState:
    """For status and metrics; replaced as a whole.

    Attributes:
        why_not: why nothing is paged out now.
        pages: 4 KiB pages by what became of them (`Visits.pages`).
        left_out: chunks that are never paged out, for there are too many.
        age_s: how long a page has to be without an access.
        lost: share of one CPU that faults of targets cost.
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
