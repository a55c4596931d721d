# SPDX-License-Identifier: Apache-2.0
"""Which memory profiling cards see, and which nobody watches.

A card may have part of a node only: another device behind the same node, or a range whose
decoder is not known. What it does not see must come from another source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tierd.core.pagekey import PAGE_SHIFT, BoolArray, U64Array
from tierd.sources.kmod.neoprof import Card, CardRange
from tierd.topology.node_meminfo import block_size, memory_blocks


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of each node the cards see.

    Attributes:
        covered: node → share of its memory that a card counts, 0 to 1.
    """

    covered: dict[int, float]

    @property
    def whole(self) -> frozenset[int]:
        """Nodes of which nothing is unseen."""
        return frozenset(node for node, share in self.covered.items() if share > 0.999)

    @property
    def partial(self) -> frozenset[int]:
        """Nodes of which a part is seen, and a part is not."""
        return frozenset(node for node, share in self.covered.items() if 0 < share <= 0.999)

    @property
    def unseen(self) -> tuple[int, ...]:
        """Nodes that need another source, for all or a part of their memory."""
        return tuple(sorted(set(self.covered) - self.whole))


class HmuCoverage:
    """The memory behind some cards."""

    def __init__(self, cards: Iterable[Card]) -> None:
        self.ranges: Sequence[CardRange] = [part for card in cards for part in card.ranges]

    def sees(self, pfn: U64Array) -> BoolArray:
        """Whether a card counts accesses to these page frames, bool[n] for uint64[n]."""
        seen: BoolArray | None = None
        for part in self.ranges:
            # A frame begins within the range: those before it are beyond any end.
            first, end = -(-part.start >> PAGE_SHIFT), -(-part.end >> PAGE_SHIFT)
            inside = pfn - np.uint64(first) < np.uint64(max(0, end - first))
            # Interleaved finer than a page, every page is seen in part: that will do.
            if part.ways > 1 and part.granularity >= 1 << PAGE_SHIFT:
                address = (pfn << np.uint64(PAGE_SHIFT)) - np.uint64(part.start)
                block = address // np.uint64(part.granularity)
                inside &= block % np.uint64(part.ways) == np.uint64(part.position)
            seen = inside if seen is None else seen | inside
        return np.zeros(len(pfn), np.bool_) if seen is None else seen

    def coverage(self, root: Path = Path("/")) -> Coverage:
        """How much of each online node the cards see."""
        block = block_size(root)
        covered = {}
        for node, blocks in memory_blocks(root).items():
            total = len(blocks) * block
            if total:
                seen = sum(self._bytes_in(start * block, (start + 1) * block) for start in blocks)
                covered[node] = min(1.0, seen / total)
        return Coverage(covered)

    def _bytes_in(self, start: int, end: int) -> float:
        seen = 0.0
        for part in self.ranges:
            overlap = min(end, part.end) - max(start, part.start)
            fine = part.granularity < 1 << PAGE_SHIFT
            seen += max(0, overlap) / (1 if fine else part.ways)
        return seen
