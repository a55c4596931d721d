# SPDX-License-Identifier: Apache-2.0
"""NeoProf cards as an access source: every request to slow memory, counted in hardware.

Owns: cards through the kernel module: which count, since when, above which threshold; and
the scanner that sees what they do not.
Must not touch: the algorithm that chooses thresholds (`tierd.policy.neomem`), moves.

What an entry means in accesses, and how that compares with accessed bits: `sources.hotlist`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tierd.access import AccessBatch, Availability, BoolArray, WatchedTarget
from tierd.errors import TargetGoneError, UnavailableError
from tierd.kmod.cardapi import CardDo, CardFlags, CardState, Features, Track
from tierd.kmod.neoprof import Card, Cards, Profile
from tierd.kmod.ring import RecordArray, Ring
from tierd.kmod.uapi import Kind
from tierd.pagekey import U64Array
from tierd.sources.cardmap import CardMap, Coverage
from tierd.sources.hotlist import Epoch, HotList, empty_batch
from tierd.sources.scan import ScanSettings, ScanSource

log = logging.getLogger(__name__)

CHECK_NS: Final = 10**9
"""Cards are asked how they are this often."""
LOOK_US: Final = 1_000_000
"""The scanner beside the cards looks no more often, once it knows: it finds what is cold, the
cards what is hot, and each look at a large fast tier is many records."""
KNOWN_ROUNDS: Final = 4
"""Scans after which the scanner's silence about a page of the fast tier means something."""
TRACKS: Final = {"reads": Track.READS, "writes": Track.WRITES, "both": Track.BOTH}


@dataclass(frozen=True, slots=True)
class NeoProfSettings:
    """How cards count.

    Attributes:
        drain_us: time between two looks into a card's hot list.
        clear_us: length of an epoch.
        track: "reads", "writes" or "both".
        conservative: conservative update of the sketch, where the card has it.
        first_threshold: until the first profile says better.
        scan: how the scanner looks at what no card sees.
    """

    drain_us: int = 10_000
    clear_us: int = 5_000_000
    track: str = "both"
    conservative: bool = True
    first_threshold: int = 64
    scan: ScanSettings = field(default_factory=ScanSettings)


class NeoProfSource:
    """An `AccessSource`; see the module's text.

    Args:
        settings: how cards count.
        root: root of /dev and /sys ("/" but in tests).
        clock: CLOCK_MONOTONIC in ns.
        open_cards, open_ring, make_scan: make the connections.
    """

    name = "neoprof"

    def __init__(
        self,
        settings: NeoProfSettings | None = None,
        *,
        root: Path = Path("/"),
        clock: Callable[[], int] = time.monotonic_ns,
        open_cards: Callable[[], Cards] = Cards.open,
        open_ring: Callable[[Path, Collection[Kind]], Ring] = Ring.open,
        make_scan: Callable[[ScanSettings, Callable[[RecordArray], BoolArray]], ScanSource]
        | None = None,
    ) -> None:
        self.settings = settings or NeoProfSettings()
        self._root = root
        self._clock = clock
        self._open_cards = open_cards
        self._open_ring = open_ring
        self._make_scan = make_scan or self._scanner
        self._cards: Cards | None = None
        self._ring: Ring | None = None
        self._scan: ScanSource | None = None
        self._using: dict[int, Card] = {}
        self._map = CardMap(())
        self._dropped = 0
        self._check_ns = 0
        self._looks = self.settings.scan
        self._list = HotList(self.name, self._looks.period_us / 1e6)
        self._learning = True
        self._targets: Sequence[WatchedTarget] = ()
        self.coverage = Coverage({})
        self.rounds = 0
        """Whole scans of every target since its start: what the scanner knows."""

    def _scanner(
        self, settings: ScanSettings, keep: Callable[[RecordArray], BoolArray]
    ) -> ScanSource:
        return ScanSource(settings, root=self._root, clock=self._clock, keep=keep)

    # ------------------------------------------------------------- an AccessSource

    def available(self) -> Availability:
        """Whether the module is loaded, lets us in, and knows a card that works."""
        if self._cards is not None:
            return Availability(True, "NeoProf cards are counting")
        module = ScanSource(root=self._root).available()
        if not module.ok:
            return module
        try:
            cards = self._open_cards()
        except UnavailableError as error:
            return Availability(False, error.message, error.hint)
        try:
            found = cards.cards()
        except UnavailableError as error:
            return Availability(False, error.message, error.hint)
        finally:
            cards.close()
        usable = _usable(found)
        if usable:
            return Availability(True, f"{len(usable)} NeoProf card(s) of {len(found)} can count")
        if not found:
            return Availability(False, "no NeoProf card was found", "docs/neomem.md says which are")
        told = "; ".join(f"card {card.number}: {_why_not(card)}" for card in found)
        return Availability(False, f"no NeoProf card can count: {told}", "see docs/neomem.md")

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
        try:
            self._scan.watch(targets)
        except UnavailableError:
            self.close()
            raise

    def poll(self) -> list[AccessBatch]:
        """Accesses that cards and scanner told since the last call.

        Raises:
            UnavailableError: the last card failed or went away, or the module is going.
        """
        if self._ring is None or self._scan is None:
            return []
        try:
            return self._poll(self._ring, self._scan)
        except UnavailableError:
            self.close()
            raise

    def close(self) -> None:
        """Stop the cards, and let go of the module."""
        if self._cards is not None:
            for number in self._using:
                self._try_set(number, enable=False)
            self._cards.close()
            self._cards = None
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        if self._scan is not None:
            self._scan.close()
            self._scan = None
        self._using, self.rounds = {}, 0
        self._list = HotList(self.name, self._list.look_s)

    # ------------------------------------------------------------- for who steers it

    @property
    def counting(self) -> bool:
        """True while cards count for us."""
        return bool(self._using)

    @property
    def cards(self) -> Mapping[int, Card]:
        """The cards in use, by number, as they were last seen."""
        return self._using

    @property
    def rate_cap(self) -> float:
        """Accesses a second beyond which a page's heat does not grow."""
        return self._list.rate_cap

    @property
    def epochs(self) -> Mapping[int, Epoch]:
        """The cards' epochs, by number."""
        return self._list.epochs

    def profiles(self) -> dict[int, Profile]:
        """A snapshot of every card; those that do not answer are left out."""
        found = {}
        for number in self._using:
            assert self._cards is not None
            try:
                found[number] = self._cards.profile(number)
            except (TargetGoneError, UnavailableError) as error:
                log.warning('card=%d event=no_profile reason="%s"', number, error)
        return found

    def program(self, number: int, threshold: int) -> None:
        """Set a card's threshold; a card that refuses is found out by the next check."""
        if self._using[number].settings.threshold != threshold and self._try_set(
            number, threshold=threshold
        ):
            card = self._using[number]
            settings = replace(card.settings, threshold=threshold)
            self._using[number] = replace(card, settings=settings)

    def promoted(self, page: U64Array) -> None:
        """These pages, uint64[n] keys, have left the cards: they are not credited further."""
        self._list.leave(page)

    def clear(self) -> AccessBatch:
        """Begin a new epoch on all cards; what is credited for the one that ends."""
        batch = self._list.end_epoch(self._clock())
        for number, card in list(self._using.items()):
            has_clear = Features.CLEAR in card.geometry.features
            do = CardDo.CLEAR if has_clear else CardDo.RESET
            if self._try_set(number, do=do, enable=None if has_clear else True):
                self._list.begin(number, self._clock(), 1 << card.settings.downsample)
        return batch

    # ------------------------------------------------------------- inside

    def _start(self) -> None:
        cards = self._open_cards()
        self._cards = cards
        try:
            usable = _usable(cards.cards())
            if not usable:
                raise UnavailableError("no NeoProf card can count", hint="see docs/neomem.md")
            self._ring = self._open_ring(self._root, (Kind.HOT,))
            self._dropped = self._ring.dropped
            for card in usable:
                self._enable(card)
            if not self._using:
                raise UnavailableError("no NeoProf card could be enabled")
            self._cover()
        except UnavailableError:
            self.close()
            raise

    def _enable(self, card: Card) -> None:
        settings = self.settings
        has = card.geometry.features
        flags = card.settings.flags & ~(CardFlags.CONSERVATIVE | CardFlags.PERSIST)
        if settings.conservative and Features.CONSERVATIVE in has:
            flags |= CardFlags.CONSERVATIVE
        threshold = min(settings.first_threshold, card.geometry.threshold_max)
        done = self._try_set(
            card.number,
            do=CardDo.RESET,
            drain_us=settings.drain_us,
            epoch_us=0,
            threshold=threshold,
            track=TRACKS[settings.track] if Features.TRACK in has else None,
            unit_log2=12,
            flags=flags,
            enable=True,
        )
        if not done:
            return
        kept = replace(card.settings, threshold=threshold)
        self._using[card.number] = replace(card, settings=kept)
        self._list.begin(card.number, self._clock(), 1 << card.settings.downsample)
        log.info(
            "card=%d event=card_enabled backend=%s device=%s nodes=%s",
            card.number,
            card.backend,
            card.device,
            ",".join(map(str, sorted(card.nodes))),
        )

    def _cover(self) -> None:
        """Let the scanner see what the cards in use do not."""
        self._map = CardMap(self._using.values())
        self.coverage = self._map.coverage(self._root)
        for node in sorted(self.coverage.partial):
            share = self.coverage.covered[node]
            log.info("node=%d event=card_sees_a_part share=%.3f rest=scan", node, share)
        if self._scan is not None:
            self._scan.close()
        nodes = self.coverage.unseen or (1023,)
        looks = replace(self._looks, nodes=nodes)
        self._scan = self._make_scan(looks, self._unseen)
        self._learning = True

    def _learn(self, scan: ScanSource) -> None:
        """How often the scanner has looked; it slows down when it knows hot from cold."""
        self.rounds, self._list.look_s = scan.looked()
        if self._learning and self.rounds >= KNOWN_ROUNDS:
            self._learning = False
            scan.pace(max(self._looks.period_us, LOOK_US))

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
        check = now >= self._check_ns
        if check:
            self._check_ns = now + CHECK_NS
            self._check()
            # A check may have put another scanner in place.
            scan = self._scan or scan
        if check or self._learning:
            self._learn(scan)
        batches = self._hot(ring, now)
        oldest = min((epoch.start_ns for epoch in self.epochs.values()), default=now)
        if now - oldest >= self.settings.clear_us * 1000:
            batches.append(self.clear())
        return [batch for batch in batches if len(batch) or batch.lost] + scan.poll()

    def _check(self) -> None:
        """Look after the cards; those that failed or went away are let go."""
        assert self._cards is not None
        found = {card.number: card for card in self._cards.cards()}
        before = set(self._using)
        for number in list(self._using):
            card = found.get(number)
            if card is not None and card.state is CardState.COUNTING:
                self._using[number] = card
                continue
            why = "it was removed" if card is None else _why_not(card)
            log.warning('card=%d event=card_lost reason="%s"', number, why)
            del self._using[number]
            self._list.epochs.pop(number, None)
        for number, card in found.items():
            if number not in before and card in _usable([card]):
                self._enable(card)
        if not self._using:
            raise UnavailableError(
                "no NeoProf card counts any more", hint="another source takes over"
            )
        if set(self._using) != before:
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

    def _try_set(self, number: int, **settings: object) -> bool:
        """Set something on a card; False if it is gone or refused."""
        assert self._cards is not None
        try:
            self._cards.set(number, **settings)  # type: ignore[arg-type]
        except (TargetGoneError, UnavailableError) as error:
            log.warning('card=%d event=card_refused reason="%s"', number, error)
            return False
        return True


def _usable(cards: Sequence[Card]) -> list[Card]:
    return [card for card in cards if card.state is not CardState.FAILED and card.nodes]


def _why_not(card: Card) -> str:
    if card.state is CardState.FAILED:
        return card.why or "it failed"
    if not card.nodes:
        return card.why or "none of its memory is in use as system memory"
    return f"it is {card.state.name.lower()}"
