# SPDX-License-Identifier: Apache-2.0
"""`ServiceView`: the state of the host at the last tick, for explanations of a page's place."""

from __future__ import annotations

from collections.abc import Mapping

from tierd.core.nodes import NodeUsage
from tierd.core.tiermap import TierMap
from tierd.engine.tracking import Tracking
from tierd.sources.neoprof import NeoProfSource
from tierd.sources.selection import SourceSelector


class ServiceView:
    """The queries of `tierd.observe.explain`.

    Attributes:
        tiers: at the last tick.
        usage: the use of the nodes' memory at that tick.
    """

    def __init__(self, tracking: Tracking, sources: SourceSelector) -> None:
        self._tracking = tracking
        self._sources = sources
        self.tiers = TierMap((), {})
        self.usage: Mapping[int, NodeUsage] = {}

    @property
    def pids(self) -> Mapping[int, int]:
        """Target number → pid."""
        return self._tracking.pids

    @property
    def source(self) -> NeoProfSource | None:
        """The source in use, if it is `neoprof`."""
        active = self._sources.active
        return active if isinstance(active, NeoProfSource) and active.cards else None

    @property
    def epoch_ns(self) -> int:
        """Start of the earliest present epoch, CLOCK_MONOTONIC; 0 without cards."""
        epochs = {} if self.source is None else self.source.epochs
        return min((epoch.start_ns for epoch in epochs.values()), default=0)

    def movable(self, key: int) -> bool:
        """Whether the page is in a range that may be moved."""
        return any(start <= key < end for start, end in self._tracking.spans())

    def thresholds(self) -> Mapping[str, int]:
        """Counts above which a page is hot, by card; empty without cards."""
        source = self.source
        if source is None:
            return {}
        return {str(number): card.settings.threshold for number, card in source.cards.items()}
