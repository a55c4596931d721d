# SPDX-License-Identifier: Apache-2.0
"""NeoProf cards as an access source: every request to slow memory, counted in hardware.

The cards themselves are in `sources.hmu_devices`, what their hot lists mean in `sources.hotlist`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tierd.config.watching import NeoProfConfig, ScanConfig
from tierd.core import bounds
from tierd.core.access import (
    LINES_PER_PAGE,
    AccessBatch,
    AdaptiveSource,
    Availability,
    Seen,
    WatchedTarget,
)
from tierd.core.errors import UnavailableError
from tierd.core.pagekey import BoolArray, U64Array
from tierd.core.tuning import HMU, PACING, SCAN
from tierd.sources.hmu_coverage import Coverage, HmuCoverage
from tierd.sources.hmu_devices import HmuDevices, RequestCount, availability
from tierd.sources.hotlist import Epoch, HotList, empty_batch
from tierd.sources.kmod.neoprof import Card, Cards, Profile
from tierd.sources.kmod.ring import RecordArray, Ring
from tierd.sources.kmod.uapi import Kind
from tierd.sources.scan import ScanSource

log = logging.getLogger(__name__)

Keep = Callable[[RecordArray], BoolArray]
"""Which page records are counted."""


class NeoProfSource(AdaptiveSource):
    """An `AccessSource`; see the module's text.

    Args:
        scan: how the module scans what no card sees.
        first_threshold: of cards, until the first profile says better.
    """

    name = "neoprof"

    def __init__(
        self,
        settings: NeoProfConfig | None = None,
        scan: ScanConfig | None = None,
        *,
        first_threshold: int = 64,
        root: Path = Path("/"),
        clock: Callable[[], int] = time.monotonic_ns,
        open_cards: Callable[[], Cards] = Cards.open,
        open_ring: Callable[[Path, Collection[Kind]], Ring] = Ring.open,
        make_scan: Callable[[ScanConfig, Sequence[int], Keep | None], ScanSource] | None = None,
    ) -> None:
        self.settings = settings or NeoProfConfig()
        self._first_threshold = first_threshold
        self._root = root
        self._clock = clock
        self._open_cards = open_cards
        self._open_ring = open_ring
        self.make_scan = make_scan or (
            lambda settings, nodes, keep: ScanSource(
                settings, nodes=nodes, alone=False, root=root, clock=clock, keep=keep
            )
        )
        """Makes the scanner of what cards do not see."""
        self._cards: HmuDevices | None = None
        self._requests = RequestCount(root)
        self._ring: Ring | None = None
        self._scan: ScanSource | None = None
        self._map = HmuCoverage(())
        self._dropped = 0
        self._checked_ns = self._learned_ns = 0
        scan = scan or ScanConfig()
        self._scan_interval_us = scan.interval_ns // 1000
        self._scan_settings = replace(scan, interval_ns=scan.interval_ns // SCAN.beside_factor)
        self._list = HotList(self.name, self._scan_settings.interval_ns / 1e9)
        self._learning = True
        self._targets: Sequence[WatchedTarget] = ()
        self._aim: float | None = None
        self.coverage = Coverage({})
        self.rounds = 0
        """Whole scans of every target since its start: what the scanner knows."""

    def available(self) -> Availability:
        """Whether the module is loaded, lets us in, and knows a card that works."""
        if self._cards is not None:
            return Availability(True, "NeoProf cards are counting")
        module = ScanSource(root=self._root).available()
        if not module.ok:
            return module
        return availability(self._open_cards)

    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        """Count for these targets from now on.

        Raises:
            UnavailableError: no card works, or the module refused.
        """
        self._targets = targets
        if self._cards is None:
            if not any(target.ranges for target in targets):
                return
            self._start()
        assert self._scan is not None
        with self.closed_on_failure():
            self._scan.watch(targets)

    @property
    def unseen(self) -> frozenset[int]:
        """Targets that the scanner cannot see, of which cards see a part only."""
        return frozenset() if self._scan is None else self._scan.unseen

    def poll(self) -> list[AccessBatch]:
        """Accesses that cards and scanner told since the last call.

        Raises:
            UnavailableError: the last card failed or went away, or the module is going.
        """
        if self._ring is None or self._scan is None:
            return []
        with self.closed_on_failure():
            return self._poll(self._ring, self._scan)

    def close(self) -> None:
        """Stop the cards, and let go of the module."""
        if self._cards is not None:
            self._cards.close()
            self._cards = None
        self._requests.close()
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        if self._scan is not None:
            self._scan.close()
            self._scan = None
        self.rounds = 0
        self._list = HotList(self.name, self._list.scan_s)

    @property
    def cards(self) -> Mapping[int, Card]:
        """The cards that count for us, by number, as they were last seen."""
        return {} if self._cards is None else self._cards.using

    @property
    def rate_cap(self) -> float:
        """Accesses a second beyond which a page's heat does not grow."""
        return self._list.rate_cap

    @property
    def visits(self) -> float:
        """Accesses, as accessed bits show them, that a counted request stands for."""
        if self.settings.lines_per_access:
            return 1 / self.settings.lines_per_access
        return 1.0 if self._coalescing else 1 / HMU.requests_per_access

    @property
    def _coalescing(self) -> bool:
        return self._cards is not None and self._cards.coalescing

    @property
    def copy_requests(self) -> int:
        """Counted requests that a page's own copy into slow memory makes."""
        return HMU.copy_runs if self._coalescing else LINES_PER_PAGE

    @property
    def knows_cold(self) -> bool:
        """Whether the module has scanned often enough to know the hot from the cold."""
        return self.rounds >= SCAN.known_scans

    @property
    def taught_s(self) -> float:
        """For how long scans of programs that run have gone to heat."""
        return 0.0 if self._scan is None else self._scan.taught_s

    @property
    def seen(self) -> Seen | None:
        """What the last whole scans of all targets found; None when the scanner is not in use."""
        return None if self._scan is None else self._scan.seen

    @property
    def unwatched(self) -> int | None:
        """As of the scanner."""
        return None if self._scan is None else self._scan.unwatched

    @property
    def dilution(self) -> float:
        """The share of time whose accesses go to heat, in (0, 1]."""
        return self._list.dilution

    @property
    def aim(self) -> float | None:
        """Share of the targets' pages that fast memory has room for; None: not known."""
        return self._aim

    @aim.setter
    def aim(self, share: float | None) -> None:
        self._aim = share
        if self._scan is not None:
            self._scan.aim = share

    @property
    def epochs(self) -> Mapping[int, Epoch]:
        """The cards' epochs, by number."""
        return self._list.epochs

    @property
    def backlog(self) -> float:
        """The share of the fuller one of its rings that is not read yet, in [0, 1]."""
        ring = 0.0 if self._ring is None else self._ring.filled
        return max(ring, 0.0 if self._scan is None else self._scan.backlog)

    def profiles(self) -> dict[int, Profile]:
        """A snapshot of every card; those that do not answer are left out."""
        return {} if self._cards is None else self._cards.profiles()

    @property
    def counted_nodes(self) -> frozenset[int]:
        """Nodes that are behind cards as a whole."""
        return self.coverage.whole if self._cards is not None else frozenset()

    def requests(self) -> int:
        """Requests to the cards in use that tell them, since some moment; costs little."""
        return self._requests.count(self.cards)

    def counted_requests(self) -> int | None:
        """The same; None where a card does not tell."""
        total = self.requests()
        return None if self._requests.silent or not self.cards else total

    def program(self, number: int, threshold: int) -> None:
        """Set a card's threshold; a card that refuses is found out by the next check."""
        assert self._cards is not None
        self._cards.program(number, threshold)

    def promoted(self, page: U64Array) -> None:
        """These pages, uint64[n] keys, have left the cards: they are not credited further."""
        self._list.leave(page)

    def demoted(self, page: U64Array) -> None:
        """These pages, uint64[n] keys, were written to memory that cards see, maybe."""
        self._list.arrive(page, self._clock())

    def clear(self) -> AccessBatch:
        """Begin a new epoch on all cards; what is credited for the one that ends."""
        batch = self._list.end_epoch(self._clock())
        if self._cards is not None:
            self._cards.clear()
        return batch

    def _start(self) -> None:
        self._cards = HmuDevices(
            self._open_cards(),
            self.settings,
            begun=self._epoch_begins,
            lost=self._list.forget,
            first_threshold=self._first_threshold,
        )
        with self.closed_on_failure():
            self._ring = self._open_ring(self._root, (Kind.HOT,))
            self._dropped = self._ring.dropped
            self._cards.enable_all()
            self._cover()

    def _epoch_begins(self, card: Card) -> None:
        self._list.begin(card.number, self._clock(), 1 << card.settings.downsample)

    def _cover(self) -> None:
        """Let the scanner see what the cards in use do not."""
        self._list.visits = self.visits
        self._list.copy_requests = self.copy_requests
        self._map = HmuCoverage(self.cards.values())
        self.coverage = self._map.coverage(self._root)
        for node in sorted(self.coverage.partial):
            share = self.coverage.covered[node]
            log.info("node=%d event=device_sees_a_part share=%.3f rest=scan", node, share)
        if self._scan is not None:
            self._scan.close()
        nodes = self.coverage.unseen or (1023,)
        # Where cards see all of a node or nothing, the scanner leaves alone what they see.
        keep = self._unseen if self.coverage.partial else None
        self._scan = self.make_scan(self._scan_settings, nodes, keep)
        self._scan.aim = self._aim
        self._learning = True

    def _learn(self, scan: ScanSource) -> None:
        """How often the module has scanned; it slows down when it knows hot from cold."""
        self.rounds, self._list.scan_s = scan.progress()
        self._list.dilution = scan.dilution
        if self._learning and self.knows_cold:
            self._learning = False
            scan.pace(max(self._scan_interval_us, SCAN.beside_period_us))

    def _unseen(self, records: RecordArray) -> BoolArray:
        """Which page records no card tells of; without frame numbers, by their nodes."""
        keep: BoolArray = ~self._map.sees(records["pfn"])
        return keep

    def _poll(self, ring: Ring, scan: ScanSource) -> list[AccessBatch]:
        if ring.closing:
            raise UnavailableError(
                "the tierd kernel module is about to be removed", hint="another source takes over"
            )
        now = self._clock()
        self._check_if_due(now)
        # A check may have put another scanner in place.
        scan = self._scan or scan
        batches = self._hot(ring, now)
        if any(len(batch) for batch in batches):
            # A program may well use nothing but what cards see.
            scan.wake()
        if self._learning or now - self._learned_ns >= SCAN.beside_period_us * 1000:
            self._learned_ns = now
            self._learn(scan)
        oldest = min((epoch.start_ns for epoch in self.epochs.values()), default=now)
        if now - oldest >= self.settings.epoch_ns:
            batches.append(self.clear())
        elif self._learning:
            batches.append(self._list.credit(now))
        return [batch for batch in batches if len(batch) or batch.lost] + scan.poll()

    def _check_if_due(self, now: int) -> None:
        """Look after the cards; what is lost with one is scanned from now on."""
        assert self._cards is not None
        due_ns = PACING.upkeep_interval_ns if self._cards.suspect else bounds.DEVICE_CHECK_NS
        if now - self._checked_ns < min(due_ns, bounds.DEVICE_CHECK_NS):
            return
        self._checked_ns = now
        if self._cards.check():
            self._cover()
            assert self._scan is not None
            self._scan.watch(self._targets)

    def _hot(self, ring: Ring, now: int) -> list[AccessBatch]:
        """The records of the ring as batches; no view outlives this call."""
        lost, self._dropped = ring.dropped - self._dropped, ring.dropped
        batches: list[AccessBatch] = []
        count = 0
        for view in ring.views():
            batches.append(self._list.take(view, now, 0 if batches else lost))
            count += len(view)
        if count:
            ring.consume(count)
        elif lost:
            batches.append(empty_batch(self.name, now, lost))
        return batches
