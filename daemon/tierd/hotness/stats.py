# SPDX-License-Identifier: Apache-2.0
"""What a heat table counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HeatStats:
    """Counters of a heat table since it was made.

    Attributes:
        tracked: folios in the table now.
        huge: those of them that are 2 MiB folios.
        capacity: the most folios that the table will hold.
        memory_bytes: memory the table holds.
        ingested: records counted.
        evicted: folios that gave way to others because the table was full.
        dropped: records not counted, by reason: "invalid" (count negative, not a
            number or beyond 2^60; key of all ones) and "full".
        folded: blocks whose 4 KiB entries became one 2 MiB entry.
        split: 2 MiB entries that became 4 KiB entries.
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
