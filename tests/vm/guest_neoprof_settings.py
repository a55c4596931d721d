# SPDX-License-Identifier: Apache-2.0
"""Settings, units and layouts of NeoProf cards, in a lab guest."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
import neoprof_lab as np_lab
import numpy as np
from guest_kmod import Result
from neoprof_lab import (
    FULL,
    PUBLISHED,
    SMALL,
    WRITE,
    Pages,
    cards,
    drained,
    driver,
    host,
    refused,
    ring,
)

from tierd.sources.kmod.neoprof import CardRange, histogram_edges
from tierd.sources.kmod.uapi import CardDo, CardFlags, CardState, Features, Kind, PageFlags, Track


def settings() -> Result:
    """Settings are checked before any is taken; ranges by netlink stand in for decoders."""
    start, end = np_lab.node_ranges()[-1]  # where the kernel takes memory first
    pages = Pages(64)
    reasons = {}
    with driver(), cards() as connection, ring(Kind.HOT) as records:
        bad: dict[str, dict[str, object]] = {
            "epoch": {"epoch_us": 4_095_001},
            "rank": {"error_rank": 1 << 30},
            "fine": {"ranges": [CardRange(start, end, 0, 256, 2, 0)]},
            "place": {"ranges": [CardRange(start, end, 0, 4096, 2, 2)]},
            "page": {"ranges": [CardRange(start + 1, end)]},
            "twice": {"ranges": [CardRange(start, end), CardRange(start, end)]},
            "drain": {"drain_us": 10},
            "unit": {"unit_log2": 30},
        }
        before = connection.card(FULL)
        for name, words in bad.items():
            reasons[name] = refused(connection, FULL, threshold=123, **words)
        untouched = connection.card(FULL)
        v1 = refused(connection, PUBLISHED, flags=CardFlags.CONSERVATIVE | CardFlags.RANDOM)
        # The card has every second block of 8 KiB: the host's pages 2, 3, 6, 7, ...
        half = [CardRange(start, end, 0, 8192, 2, 1)]
        connection.set(FULL, ranges=half, threshold=0, epoch_us=0, enable=True)
        frames = pages.pfns
        low = (frames >= start >> 12) & (frames < end >> 12) & (frames >> np.uint64(1) & 1 == 1)
        offset = frames[low] - np.uint64(start >> 12)
        device = (offset >> np.uint64(2) << np.uint64(1)) | (offset & np.uint64(1))
        host().push(FULL, device, 1, device=True)
        drained(connection, FULL)
        got = set(lab.drain(records)["pfn"].tolist())
        # What is refused does not reset the card first.
        reasons["reset"] = refused(connection, FULL, do=CardDo.RESET, error_rank=1 << 30)
        given = connection.card(FULL)
        connection.set(FULL, ranges=[], enable=False)
        again = connection.card(FULL)
        # Decoders that interleave do not tell the place, unless they say so.
        for control in (1 << 4 | 4, 1 << 4 | 4 | 1 << 14 | 1 << 24, 1 << 4 | 3 | 1 << 14):
            decoder = {"start": start, "size": end - start, "control": control}
            host().ask("decoders", card=SMALL, decoders=[decoder])
            connection.set(SMALL, do=CardDo.RESET)
            card = connection.card(SMALL)
            reasons[f"decoder {control:#x}"] = f"{card.why} {[r.position for r in card.ranges]}"
            reasons[f"start {control:#x}"] = refused(connection, SMALL, enable=True)
        # A decoder of no bytes may be committed before one that has some.
        decoders = [
            {"start": start, "size": 0, "control": 0},
            {"start": start, "size": end - start, "control": 0},
        ]
        host().ask("decoders", card=SMALL, decoders=decoders)
        connection.set(SMALL, do=CardDo.RESET)
        behind_none = connection.card(SMALL).ranges
        host().ask("decoders", card=SMALL, decoders=[])
        connection.set(SMALL, do=CardDo.RESET)
        nothing = connection.card(SMALL).why
    card_start = again.ranges[0].device
    uio = f"{1 << 4 | 4 | 1 << 14 | 1 << 24:#x}"
    return {
        "ok": all(reasons[name] for name in bad)
        and untouched.settings == before.settings
        and untouched.ranges == before.ranges
        and "finer than a page" in reasons["fine"]
        and got == set(frames[low].tolist())
        and len(got) > 0
        and given.ranges[0].ways == 2
        and "error rank" in reasons["reset"]
        and given.state is CardState.COUNTING
        and [(each.start, each.end, each.device) for each in behind_none] == [(start, end, 0)]
        and [(r.start, r.end) for r in again.ranges] == np_lab.node_ranges()
        and again.state is CardState.STOPPED
        and card_start == 0
        and "place in the set" in reasons[f"decoder {1 << 4 | 4:#x}"]
        and "give ranges" in reasons[f"start {1 << 4 | 4:#x}"]
        and reasons[f"decoder {uio}"] == " [1]"
        and not reasons[f"start {uio}"]
        and "no HDM decoder" in nothing
        and "failed" in v1,
        "reasons": reasons,
        "found": len(got),
        "v1": v1,
    }


def runs() -> Result:
    """A page's lines one after the other are one use where the card is told so, and add up."""
    pages = Pages(2)
    with driver(), cards() as connection:
        can = bool(connection.card(FULL).geometry.features & Features.COALESCE)
        told = {}
        for flags in (CardFlags(0), CardFlags.COALESCE):
            connection.set(FULL, flags=flags, threshold=60000, epoch_us=0, enable=True)
            host().push(FULL, pages.pfns, 1, lines=64)
            counters = connection.profile(FULL).counters
            names = ("offered", "counted", "skipped_run")
            told[int(flags)] = [counters[name] for name in names]
            connection.set(FULL, enable=False)
        flags = connection.card(FULL).settings.flags
    return {
        "ok": can
        and told == {0: [128, 128, 0], int(CardFlags.COALESCE): [128, 2, 126]}
        and CardFlags.COALESCE in flags,
        "told": told,
        "can": can,
    }


def huge() -> Result:
    """A unit of 2 MiB that is one huge page is one record; epochs clear by themselves."""
    pages = Pages(1024, huge=True)
    smaps = subprocess.run(
        ["grep", "-A20", f"^{pages.vpn << 12:x}-", f"/proc/{os.getpid()}/smaps"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    with driver(), cards() as connection, ring(Kind.HOT) as records:
        connection.set(
            FULL, unit_log2=21, threshold=9, epoch_us=0, flags=CardFlags.CONSERVATIVE, enable=True
        )
        host().push(FULL, pages.pfns[[0, 3, 511, 512]], 3)
        host().push(FULL, pages.pfns[[5]], 3)
        drained(connection, FULL)
        units = lab.drain(records)
        connection.set(FULL, unit_log2=12, epoch_us=100, threshold=4)
        host().push(FULL, pages.pfns[[7]], 6)
        drained(connection, FULL)
        single = lab.drain(records)
    whole = bool(len(units)) and bool(units["flags"][0] & PageFlags.PMD)
    return {
        "ok": (len(units) == 1 and int(units["order"][0]) == 9 if whole else len(units) == 512)
        and int(units["page"][0]) == 7 << 48 | pages.vpn
        and len(single) == 1
        and int(single["page"][0]) == 7 << 48 | pages.vpn + 7,
        "whole": whole,
        "records": len(units),
        "smaps": smaps[:200],
    }


def published() -> Result:
    """The published layout behind the same interface, and what it cannot do says so."""
    pages = Pages(200)
    with driver(window_v1=1 << PUBLISHED), cards() as connection, ring(Kind.HOT) as records:
        card = connection.card(PUBLISHED)
        connection.set(PUBLISHED, threshold=20, epoch_us=0, enable=True)
        host().push(PUBLISHED, pages.pfns, 30)
        host().push(PUBLISHED, pages.pfns | WRITE >> np.uint64(12), 2)
        first = connection.profile(PUBLISHED)
        second = connection.profile(PUBLISHED)
        requests = np_lab.no_requests(PUBLISHED)
        drained(connection, PUBLISHED)
        found = lab.drain(records)
        reasons = [
            refused(connection, PUBLISHED, flags=CardFlags.CONSERVATIVE),
            refused(connection, PUBLISHED, track=Track.WRITES),
            refused(connection, PUBLISHED, unit_log2=21),
        ]
        resets = host().ask("published", card=PUBLISHED)["resets"]
        connection.set(PUBLISHED, epoch_us=100_000)
        np_lab.until(
            lambda: host().ask("published", card=PUBLISHED)["resets"] >= resets + 4, "no epochs"
        )
        connection.set(PUBLISHED, enable=False)
        stopped = host().ask("published", card=PUBLISHED)
    thirty = int(np.searchsorted(histogram_edges(), 30, "right") - 1)
    return {
        "ok": card.backend == "neoprof-v1"
        and not card.geometry.features & (Features.CONSERVATIVE | Features.COUNT)
        and set(found["pfn"].tolist()) == set(pages.pfns.tolist())
        and bool(np.all(found["value"] == 21))
        and int(first.histogram[thirty]) == int(second.histogram[thirty]) == 200
        and int(second.histogram.sum()) == card.geometry.width
        and first.counters["read_beats"] == 6000
        and first.counters["write_beats"] == 400
        and requests == errno.EOPNOTSUPP
        and all(reasons)
        and stopped["threshold"] == 0xFFFF,
        "reasons": reasons,
        "records": len(found),
        "histogram": [
            {int(bin_): int(item.histogram[bin_]) for bin_ in np.flatnonzero(item.histogram)}
            for item in (first, second)
        ],
        "beats": [first.counters["read_beats"], first.counters["write_beats"]],
    }


CHECKS = {check.__name__: check for check in (settings, runs, huge, published)}

if __name__ == "__main__":
    sys.exit(lab.main(CHECKS))
