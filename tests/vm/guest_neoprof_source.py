# SPDX-License-Identifier: Apache-2.0
"""The daemon's side of NeoProf cards in a lab guest: what it makes of their bad luck."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tierd.config.model import Config
from tierd.config.watching import NeoProfConfig, ScanConfig
from tierd.core import bounds

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
import neoprof_lab as np_lab
import numpy as np
from guest_kmod import Result
from neoprof_lab import CXL_NODE, FULL, INTERRUPTING, PUBLISHED, SMALL, Pages, cards, host

from tierd.core.access import WatchedRange, WatchedTarget
from tierd.engine.fastpath.thresholds import Costs, HotnessThresholdController
from tierd.policy.neomem import NeoMemSettings
from tierd.sources.kmod.uapi import CardDo, CardState
from tierd.sources.neoprof import NeoProfSource
from tierd.sources.scan import ScanSource
from tierd.sources.selection import SourceSelector

PART = 256 << 20
NOTHING_MOVED = Costs(0, 0, 0, 0, 0)
INTERVAL_NS = 10_000_000


@contextlib.contextmanager
def module() -> Iterator[None]:
    """The module over a window that works; nobody is its target yet."""
    host().ask("magic", on=True)
    host().ask("answering", on=True)
    with lab.module():
        lab.load_cards(timeout_ms=np_lab.TIMEOUT_MS)
        yield


def part_of(pfn: int) -> int:
    """Start of the part that holds a page frame."""
    return (pfn << 12) // PART * PART


def place_cards(first: int, second: int) -> None:
    """Two cards in front of a part of the node each, the others in front of nothing."""
    for card, start in ((FULL, first), (SMALL, second)):
        host().ask("decoders", card=card, decoders=[{"start": start, "size": PART}])
    for card in (PUBLISHED, INTERRUPTING):
        host().ask("decoders", card=card, decoders=[])


def target(pages: Pages) -> list[WatchedTarget]:
    """This process, and the memory of `pages`."""
    return [WatchedTarget(3, os.getpid(), (WatchedRange(pages.vpn, pages.vpn + pages.count),))]


def decide(thresholds: HotnessThresholdController, source: NeoProfSource) -> dict[int, Any]:
    """A period's decisions, by card."""
    time.sleep(2 * INTERVAL_NS / 1e9)
    assert thresholds.update(source, NOTHING_MOVED, time.monotonic_ns())
    return dict(thresholds.decisions)


def polled(source: NeoProfSource, wanted: int) -> set[int]:
    """Pages of hot records, as soon as there are so many."""
    found: set[int] = set()

    def look() -> bool:
        for batch in source.poll():
            if batch.source == source.name:
                found.update(batch.page.tolist())
        return len(found) >= wanted

    np_lab.until(look, f"not {wanted} hot pages")
    return found


def two_parts() -> Result:
    """Two cards with a part of a node each: both count, the rest is the scanner's."""
    pages = Pages(300)
    mine = part_of(int(pages.pfns[0]))
    inside = (pages.pfns << np.uint64(12)) // np.uint64(PART) == mine // PART
    others = [
        start
        for low, high in np_lab.node_ranges()
        for start in range(-(-low // PART) * PART, high - PART + 1, PART)
        if start != mine
    ]
    place_cards(mine, others[0])
    with module():
        source = NeoProfSource(NeoProfConfig(epoch_ns=60 * 10**9), first_threshold=9)
        settings = NeoMemSettings.of(Config())
        thresholds = HotnessThresholdController(settings, INTERVAL_NS)
        try:
            source.watch(target(pages))
            using = sorted(source.cards)
            idle = decide(thresholds, source)
            for number in using:
                source.program(number, 9)
            host().push(FULL, pages.pfns[inside], 12)
            found = polled(source, int(np.count_nonzero(inside)))
            busy = decide(thresholds, source)
            coverage = dict(source.coverage.covered)
        finally:
            source.close()
            np_lab.decode_node()
    keys = set((np.uint64(3 << 48) | pages.vpns[inside]).tolist())
    return {
        "ok": using == [FULL, SMALL]
        and found == keys
        and CXL_NODE in source.coverage.partial
        and 0.2 < coverage[CXL_NODE] < 0.3
        # Histograms of nothing but zeros: the least count that means something.
        and [each.state.threshold for each in idle.values()] == [settings.least_count] * 2
        and busy[SMALL].quantile == 0
        and busy[FULL].state.threshold >= settings.least_count,
        "using": using,
        "found": len(found),
        "inside": len(keys),
        "coverage": coverage,
        "idle": [str(each) for each in idle.values()],
        "busy": [str(each) for each in busy.values()],
    }


def ends() -> Result:
    """Thresholds at both ends, and a hot list that overflows between them."""
    pages = Pages(200)
    start = np_lab.node_ranges()[-1][0] >> 12
    many = np.arange(start, start + 1000)
    np_lab.decode_node()
    with module():
        source = NeoProfSource(NeoProfConfig(epoch_ns=60 * 10**9, poll_interval_ns=10**9))
        thresholds = HotnessThresholdController(
            replace(NeoMemSettings.of(Config()), p_min=0.5, p_init=0.5, p_max=0.5), INTERVAL_NS
        )
        try:
            source.watch(target(pages))
            decide(thresholds, source)
            with cards() as other:
                source.program(SMALL, 0)
                lowest = other.card(SMALL).settings.threshold
                host().push(SMALL, many, 1)
                overflow = decide(thresholds, source)[SMALL]
                host().push(SMALL, many, 1)
                again = decide(thresholds, source)[SMALL]
                top = other.card(FULL).geometry.threshold_max
                source.program(FULL, top)
                highest = other.card(FULL).settings.threshold
                states = [other.card(number).state for number in (FULL, SMALL)]
        finally:
            source.close()
    return {
        "ok": lowest == 0
        and highest == top
        and overflow.overflow
        and overflow.state.boost == 2
        and not again.overflow
        and again.state.boost == 1
        and states == [CardState.COUNTING] * 2,
        "ends": [lowest, highest, top],
        "overflow": [str(overflow), str(again)],
        "states": [str(state) for state in states],
    }


def falls_back() -> Result:
    """The window goes: the scanner takes over, and the cards again when they are back."""
    pages = Pages(300)
    np_lab.decode_node()
    with module():
        # Emulated CPUs keep translations, and accessed bits stay clear, unless they are flushed.
        sources = SourceSelector([NeoProfSource(), ScanSource(ScanConfig(flush_tlb=True))])
        names = []

        def look(now: int) -> str:
            sources.watch(target(pages), now)
            return "" if sources.active is None else sources.active.name

        def accesses(now: int) -> int:
            for page in range(pages.count):
                pages.map[pages.offset + page * 4096] = 1
            return sum(map(len, sources.poll(now)))

        now = time.monotonic_ns()
        try:
            names.append(look(now))
            host().ask("magic", on=False)
            with cards() as other:
                np_lab.until(
                    lambda: other.card(FULL).state is CardState.FAILED, "the card did not fail"
                )
                time.sleep(1.1 * bounds.DEVICE_CHECK_NS / 1e9)
                np_lab.until(
                    lambda: sources.poll(now) == [] and sources.active is None, "it is not told"
                )
                why = sources.reasons["neoprof"]
                names.append(look(now))
                scanned = np_lab.until(lambda: accesses(now), "the scanner tells nothing")
                host().ask("magic", on=True)
                for number in (FULL, SMALL, INTERRUPTING):
                    other.set(number, do=CardDo.RESET)
            names.append(look(now + bounds.SOURCE_RETRY_NS // 2))
            names.append(look(now + 2 * bounds.SOURCE_RETRY_NS))
        finally:
            sources.close()
    return {
        "ok": names == ["neoprof", "scan", "scan", "neoprof"] and scanned > 0,
        "names": names,
        "scanned": scanned,
        "why": why,
    }


CHECKS = {check.__name__: check for check in (two_parts, ends, falls_back)}

if __name__ == "__main__":
    sys.exit(lab.main(CHECKS))
