# SPDX-License-Identifier: Apache-2.0
"""The neoprof source with cards, ring and scanner that the test plays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fakecards import FakeCards, card, host
from fakering import FakeRing

from tierd.config.watching import NeoProfConfig, ScanConfig
from tierd.core.access import AccessBatch, Seen, WatchedRange, WatchedTarget
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import DEVICE, PARAMETERS
from tierd.sources.neoprof import (
    NeoProfSource,
)

S = 10**9
TARGETS = [WatchedTarget(0, 100, (WatchedRange(0x1000, 0x9000),))]


class Scanner:
    """Stands in for the scan source beside the cards."""

    def __init__(self, settings: ScanConfig, nodes: Sequence[int], keep: Any) -> None:
        self.settings, self.nodes, self.keep = settings, nodes, keep
        self.watched: list[Any] = []
        self.closed = False
        self.batches: list[AccessBatch] = []
        self.rounds = 5
        self.paces: list[int] = []
        self.dilution, self.taught_s = 1.0, 60.0
        self.aim: float | None = None
        self.seen = Seen(0.3, 0.025, 0.4)
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def watch(self, targets: Any) -> None:
        self.watched = list(targets)

    def poll(self) -> list[AccessBatch]:
        taken, self.batches = self.batches, []
        return taken

    def progress(self) -> tuple[int, float]:
        return self.rounds, 0.4

    def pace(self, period_us: int) -> None:
        self.paces.append(period_us)

    def close(self) -> None:
        self.closed = True


class Bench:
    """A source with everything around it."""

    def __init__(self, root: Path, *cards: Any, settings: NeoProfConfig | None = None) -> None:
        host(root, {0: (0, 4), 1: (4, 8)})
        (root / DEVICE).parent.mkdir(parents=True)
        (root / DEVICE).touch()
        (root / PARAMETERS).mkdir(parents=True)
        (root / PARAMETERS / "closing").write_text("N\n")
        self.now = 100 * S
        self.cards = FakeCards(*cards)
        self.rings: list[FakeRing] = []
        self.scanners: list[Scanner] = []
        self.source = NeoProfSource(
            settings,
            root=root,
            clock=lambda: self.now,
            open_cards=self.cards.open,  # type: ignore[arg-type]
            open_ring=self.open_ring,
            make_scan=self.make_scan,  # type: ignore[arg-type]
        )

    def open_ring(self, root: Path, kinds: Any) -> Ring:
        self.rings.append(FakeRing())
        return Ring(self.rings[-1].memory)

    def make_scan(self, settings: ScanConfig, nodes: Sequence[int], keep: Any) -> Scanner:
        self.scanners.append(Scanner(settings, nodes, keep))
        return self.scanners[-1]

    @property
    def ring(self) -> FakeRing:
        return self.rings[-1]


WHOLE = card(0, (512, 1024))
