# SPDX-License-Identifier: Apache-2.0
"""`HeatView`, the policy's queries of the heat table, and `HeatStats`, its counters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tierd.core.access import F32Array
from tierd.core.migration import U8Array
from tierd.core.pagekey import BoolArray, I16Array, U64Array


def heat_of_rate(half_life_s: float) -> float:
    """Heat that a page with one access a second reaches in the long run."""
    return half_life_s / math.log(2)


@dataclass(frozen=True, slots=True)
class HeatStats:
    """Counters of a heat table since it was made.

    Attributes:
        huge: those of them that are 2 MiB folios.
        capacity: the most folios that the table will hold.
        evicted: folios that were displaced because the table was full.
        dropped: records not counted, by reason: "invalid" (count negative, not a
            number or beyond 2^60; key of all ones) and "full".
        folded: blocks whose 4 KiB entries became one 2 MiB entry.
        split: 2 MiB entries that became 4 KiB entries.
        passed: slots that passes over the whole table have read, to grow, evict, maintain or
            forget.
        compared: slots of which queries and evictions have read the tags, a byte or two each.
    """

    tracked: int
    huge: int
    capacity: int
    memory_bytes: int
    ingested: int
    evicted: int
    folded: int
    split: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    passed: int = 0
    compared: int = 0


@dataclass(frozen=True, slots=True)
class PageSet:
    """Some tracked folios.

    Attributes:
        page: uint64[n] page keys (first 4 KiB page of the folio).
        heat: float32[n] decayed accesses per 4 KiB.
        node: int16[n] node last known, -1 where unknown.
        order: uint8[n] log2 of the folio's 4 KiB pages.
        idle_s: float32[n] seconds since the page was last moved by tierd,
            infinity if it never was.
    """

    page: U64Array
    heat: F32Array
    node: I16Array
    order: U8Array
    idle_s: F32Array

    def __len__(self) -> int:
        return len(self.page)


class HeatView(Protocol):
    """The policy's queries; answers are snapshots at the time of the last tick.

    Where `among`, bool[targets], is given, only pages of targets t with among[t] count.
    """

    def hottest(
        self, node: int, n: int, min_heat: float = 0.0, among: BoolArray | None = None
    ) -> PageSet:
        """At most `n` folios on `node`, hottest first, with heat > `min_heat`."""
        ...

    def folios(
        self, node: int, n: int, min_heat: float = 0.0, among: BoolArray | None = None
    ) -> PageSet:
        """The same of 2 MiB folios only."""
        ...

    def coldest(self, node: int, n: int, among: BoolArray | None = None) -> PageSet:
        """At most `n` folios on `node`, coldest first."""
        ...

    def least(self, node: int) -> float:
        """A lower bound of the heat of folios on `node`; infinity if none is tracked there."""
        ...
