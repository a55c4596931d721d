# SPDX-License-Identifier: Apache-2.0
"""The NeoProf cards that count for the source: which, above which threshold, since when."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tierd.config.watching import NeoProfConfig
from tierd.core import bounds
from tierd.core.access import Availability
from tierd.core.errors import TargetGoneError, UnavailableError
from tierd.sources.kmod.neoprof import Card, Cards, Profile
from tierd.sources.kmod.uapi import CardDo, CardFlags, CardState, Features, Track

log = logging.getLogger(__name__)

CLASS: Final = "sys/class/neoprof"
TRACKS: Final = {
    "auto": Track.READS,
    "reads": Track.READS,
    "writes": Track.WRITES,
    "both": Track.BOTH,
}


class HmuDevices:
    """The cards in use; see the module's text.

    Args:
        cards: the connection, closed with the set.
        first_threshold: their threshold until the first profile says better.
        begun: called with a card, as of its enabling or clearing, when an epoch of it begins.
        lost: called with the number of a card that is let go.

    Attributes:
        suspect: whether a card did not answer, or refused, since the last check.
    """

    def __init__(
        self,
        cards: Cards,
        settings: NeoProfConfig,
        *,
        begun: Callable[[Card], None],
        lost: Callable[[int], None],
        first_threshold: int = 64,
    ) -> None:
        self._cards = cards
        self._settings = settings
        self._first_threshold = first_threshold
        self._begun = begun
        self._lost = lost
        self._using: dict[int, Card] = {}
        self._coalesce = False
        self.suspect = False

    @property
    def using(self) -> Mapping[int, Card]:
        """The cards in use, by number, as they were last seen."""
        return self._using

    @property
    def coalescing(self) -> bool:
        """Whether a run of requests counts once, on every card."""
        return all(CardFlags.COALESCE in card.settings.flags for card in self._using.values())

    def enable_all(self) -> None:
        """Let all cards count that can.

        Raises:
            UnavailableError: none can, or none could be enabled.
        """
        found = usable(self._cards.cards())
        if not found:
            raise UnavailableError("no NeoProf card can count", hint="see docs/concepts/neomem.md")
        # Counts of two kinds cannot be compared.
        able = all(Features.COALESCE in card.geometry.features for card in found)
        self._coalesce = self._settings.merge_requests and able
        for card in found:
            self._enable(card)
        if not self._using:
            raise UnavailableError("no NeoProf card could be enabled")

    def check(self) -> bool:
        """Look after the cards; true if others are in use now: some went away, or came back.

        Raises:
            UnavailableError: none is left.
        """
        found = {card.number: card for card in self._cards.cards()}
        self.suspect = False
        before = set(self._using)
        for number in before:
            card = found.get(number)
            if card is not None and card.state is CardState.COUNTING:
                self._using[number] = card
                continue
            why = "it was removed" if card is None else why_not(card)
            log.warning('card=%d event=device_lost reason="%s"', number, why)
            del self._using[number]
            self._lost(number)
        for number, card in found.items():
            if number not in before and card in usable([card]):
                self._enable(card)
        if not self._using:
            raise UnavailableError(
                "no NeoProf card counts any more", hint="another source takes over"
            )
        return set(self._using) != before

    def profiles(self) -> dict[int, Profile]:
        """A snapshot of every card; those that do not answer are left out.

        The statistics of `using` are of the same moment then, as far as the module tells them.
        """
        found = {}
        for number, card in self._using.items():
            try:
                profile = found[number] = self._cards.profile(number)
            except (TargetGoneError, UnavailableError) as error:
                log.warning('card=%d event=no_profile reason="%s"', number, error)
                self.suspect = True
                continue
            if profile.stats:
                self._using[number] = replace(card, stats=profile.stats)
        return found

    def program(self, number: int, threshold: int) -> None:
        """Set a card's threshold; a card that refuses is found out by the next check."""
        card = self._using[number]
        if card.settings.threshold != threshold and self._try_set(number, threshold=threshold):
            self._using[number] = replace(
                card, settings=replace(card.settings, threshold=threshold)
            )

    def clear(self) -> None:
        """Begin a new epoch on all cards, with no greater threshold than the first.

        What suits a whole epoch is reached late in it: by then nobody tells what is hot now.
        """
        for number, card in list(self._using.items()):
            self.program(number, min(card.settings.threshold, self._first_threshold))
            has_clear = Features.CLEAR in card.geometry.features
            do = CardDo.CLEAR if has_clear else CardDo.RESET
            if self._try_set(number, do=do, enable=None if has_clear else True):
                self._begun(card)

    def close(self) -> None:
        """Stop the cards, and let go of them."""
        for number in self._using:
            self._try_set(number, enable=False)
        self._using = {}
        self._cards.close()

    def _enable(self, card: Card) -> None:
        settings = self._settings
        has = card.geometry.features
        flags = card.settings.flags & CardFlags.RANDOM
        if settings.conservative_update and Features.CONSERVATIVE in has:
            flags |= CardFlags.CONSERVATIVE
        if self._coalesce and Features.COALESCE in has:
            flags |= CardFlags.COALESCE
        threshold = min(self._first_threshold, card.geometry.threshold_max)
        done = self._try_set(
            card.number,
            do=CardDo.RESET,
            drain_us=settings.poll_interval_ns // 1000,
            epoch_us=0,
            threshold=threshold,
            track=TRACKS[settings.access_type] if Features.TRACK in has else None,
            unit_log2=12,
            flags=flags,
            enable=True,
        )
        if not done:
            return
        kept = replace(card.settings, threshold=threshold, flags=flags)
        self._using[card.number] = replace(card, settings=kept)
        self._begun(card)
        log.info(
            "card=%d event=device_enabled backend=%s device=%s nodes=%s",
            card.number,
            card.backend,
            card.device,
            ",".join(map(str, sorted(card.nodes))),
        )

    def _try_set(self, number: int, **settings: object) -> bool:
        """Set something on a card; False if it is gone or refused."""
        try:
            self._cards.set(number, **settings)  # type: ignore[arg-type]
        except (TargetGoneError, UnavailableError) as error:
            log.warning('card=%d event=device_refused reason="%s"', number, error)
            self.suspect = True
            return False
        return True


class RequestCount:
    """Counts requests to the memory of cards, from files of the driver.

    They are asked for more often than a profile, and cost less there.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._files: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._total = 0
        self._silent: set[int] = set()
        self.silent = False
        """Whether a card did not tell in the last `count`."""

    def count(self, numbers: Collection[int]) -> int:
        """Requests that these cards have seen since each was first asked; it never falls.

        A card that does not tell, or is gone, counts none.
        """
        for number in self._files.keys() - set(numbers):
            self._forget(number)
        self.silent = False
        for number in numbers:
            told = self._read(number)
            if told is None:
                self.silent = True
                self._forget(number)
                continue
            # A card that was reset begins at 0.
            self._total += max(0, told - self._last.get(number, told))
            self._last[number] = told
        return self._total

    def close(self) -> None:
        """Let go of the files."""
        for number in list(self._files):
            self._forget(number)

    def _read(self, number: int) -> int | None:
        try:
            if number not in self._files:
                path = self._root / CLASS / f"neoprof{number}" / "requests"
                self._files[number] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return int(os.pread(self._files[number], bounds.COUNT_BYTES, 0))
        except (OSError, ValueError) as error:
            if number not in self._silent:
                self._silent.add(number)
                log.info('card=%d event=no_request_count reason="%s"', number, error)
            return None

    def _forget(self, number: int) -> None:
        self._last.pop(number, None)
        if (descriptor := self._files.pop(number, None)) is not None:
            os.close(descriptor)


def availability(open_cards: Callable[[], Cards]) -> Availability:
    """Whether there is a card that can count, and why not."""
    try:
        with contextlib.closing(open_cards()) as cards:
            found = cards.cards()
    except UnavailableError as error:
        return Availability(False, error.message, error.hint)
    able = usable(found)
    if able:
        return Availability(True, f"{len(able)} NeoProf card(s) of {len(found)} can count")
    if not found:
        return Availability(
            False, "no NeoProf card was found", "modprobe tierd_neoprof (docs/hardware/driver.md)"
        )
    told = "; ".join(f"card {card.number}: {why_not(card)}" for card in found)
    return Availability(False, f"no NeoProf card can count: {told}", "see docs/concepts/neomem.md")


def usable(cards: Sequence[Card]) -> list[Card]:
    """Those that can count memory in use."""
    return [card for card in cards if card.state is not CardState.FAILED and card.nodes]


def why_not(card: Card) -> str:
    """Why a card does not count."""
    if card.state is CardState.FAILED:
        return card.why or "it failed"
    if not card.nodes:
        return card.why or "none of its memory is in use as system memory"
    return f"it is {card.state.name.lower()}"
