# SPDX-License-Identifier: Apache-2.0
"""What the NeoProf driver promises, in a lab guest with simulated cards."""

from __future__ import annotations

import os
import signal
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
    INTERRUPTING,
    PUBLISHED,
    SMALL,
    WRITE,
    Pages,
    cards,
    drained,
    driver,
    host,
    ring,
)

from tierd.errors import UnavailableError
from tierd.kmod import Cards
from tierd.kmod.cardapi import CardDo, CardFlags, CardState, Features, Track
from tierd.kmod.neoprof import CardRange, histogram_edges
from tierd.kmod.uapi import NO_TARGET, Kind, OwnerStatus, PageFlags

CLASS = Path("/sys/class/neoprof")
TRACE = Path("/sys/kernel/tracing")


def refused(connection: Cards, number: int, **settings: object) -> str:
    """The reason with which settings are refused; empty if they are not."""
    try:
        connection.set(number, **settings)  # type: ignore[arg-type]
    except UnavailableError as error:
        return str(error)
    return ""


def hot_pages() -> Result:
    """Records name exactly the pages that were accessed more often than the threshold."""
    pages = Pages(2000)
    rng = np.random.default_rng(1)
    hot = rng.permutation(pages.count)[:300]
    with driver(), cards() as connection, ring(Kind.HOT) as records:
        (TRACE / "events/tierd/neoprof_drain/enable").write_text("1")
        card = connection.card(FULL)
        ours = [(item.start, item.end) for item in card.ranges]
        connection.set(FULL, threshold=50, epoch_us=0, track=Track.BOTH, enable=True)
        host().push(FULL, pages.pfns, 20)
        host().push(FULL, pages.pfns[hot], 40)
        drained(connection, FULL)
        np_lab.until(
            lambda: connection.card(FULL).stats["reported"] >= len(hot), "no hot pages reported"
        )
        card = drained(connection, FULL)
        found = lab.drain(records)
        trace = (TRACE / "trace").read_text()
        sysfs = {
            path.name: path.read_text().strip()
            for path in (CLASS / "neoprof0").iterdir()
            if path.is_file() and path.name != "uevent"
        }
    keys = set((np.uint64(7 << 48) | pages.vpns[hot]).tolist())
    frames = dict(zip(pages.vpns.tolist(), pages.pfns.tolist(), strict=True))
    right = all(frames[int(r["page"]) & ((1 << 48) - 1)] == int(r["pfn"]) for r in found)
    return {
        "ok": set(found["page"].tolist()) == keys
        and len(found) == len(keys)
        and right
        and bool(np.all(found["kind"] == Kind.HOT))
        and bool(np.all(found["node"] == np_lab.CXL_NODE))
        and bool(np.all(found["value"] == 51))
        and bool(np.all(found["history"] == FULL))
        and bool(np.all(found["flags"] == PageFlags.HOT | PageFlags.ANON))
        and ours == np_lab.node_ranges()
        and card.nodes == {np_lab.CXL_NODE}
        and card.stats["reported"] == 300
        and "neoprof_drain: card=0" in trace
        and sysfs["backend"] == "window"
        and sysfs["state"] == "counting"
        and len(sysfs["ranges"].splitlines()) == len(ours),
        "records": len(found),
        "stats": dict(card.stats),
        "sysfs": sysfs,
    }


def owners() -> Result:
    """What is no target's page is counted by its reason, and told to those that ask."""
    shared, own = Pages(20), Pages(30)
    gone = Pages(10)
    gone_pfns = gone.pfns
    gone.map.madvise(4)  # MADV_DONTNEED
    pid = os.fork()
    if pid == 0:
        try:
            signal.pause()
        finally:
            os._exit(0)
    try:
        # The child has made no copies of its own: both map the same frames.
        shared_pfns = shared.pfns
        with driver(), cards() as connection, ring(Kind.HOT, Kind.FRAME) as records:
            connection.set(FULL, threshold=5, epoch_us=0, enable=True)
            host().push(FULL, shared_pfns, 10)
            host().push(FULL, gone_pfns, 10)
            card = drained(connection, FULL)
            found = lab.drain(records)
            # The card's range bitmap has bits of 256 MiB each; the range given is smaller.
            start = np_lab.node_ranges()[0][0]
            connection.set(
                SMALL,
                ranges=[CardRange(start, start + (64 << 20))],
                threshold=5,
                epoch_us=0,
                enable=True,
            )
            host().push(SMALL, np.array([(128 << 20) >> 12]), 10, device=True)
            small = drained(connection, SMALL)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    # Now they are this process's alone, and then nobody's target.
    with driver(), cards() as connection, ring(Kind.HOT) as quiet:
        connection.set(FULL, threshold=5, epoch_us=0, enable=True)
        host().push(FULL, own.pfns, 10)
        after = drained(connection, FULL)
        control_records = len(lab.drain(quiet))
    status = found["page"] & np.uint64(0xFFFF)
    return {
        "ok": card.stats["shared"] >= 20
        and card.stats["gone"] + card.stats["other"] + card.stats["file"] >= 1
        and small.stats["outside"] == 1
        and bool(np.all(found["kind"] == Kind.FRAME))
        and int(np.count_nonzero(status == OwnerStatus.SHARED)) >= 20
        and set((found["page"] >> np.uint64(48)).tolist()) == {NO_TARGET}
        and set(shared_pfns.tolist()) <= set(found["pfn"].tolist())
        and after.stats["reported"] == 30
        and control_records == 30,
        "stats": dict(card.stats),
        "after": dict(after.stats),
        "frames": len(found),
        "quiet": control_records,
    }


def profiles() -> Result:
    """A profile is one moment: its histogram is of all counters, its counts add up."""
    pages = Pages(600)
    with driver(), cards() as connection:
        connection.set(FULL, threshold=60000, epoch_us=0, error_rank=200, enable=True)
        empty = connection.profile(FULL)
        host().push(FULL, pages.pfns[:300], 100)
        host().push(FULL, pages.pfns[300:] | WRITE >> np.uint64(12), 10)
        full = connection.profile(FULL)
        card = connection.card(FULL)
        connection.set(FULL, do=CardDo.CLEAR)
        cleared = connection.profile(FULL)
    edges = histogram_edges()
    counts = full.counters
    hundred = int(np.searchsorted(edges, 100, "right") - 1)
    return {
        "ok": int(empty.histogram[0]) == card.geometry.width == int(empty.histogram.sum())
        and int(full.histogram.sum()) == card.geometry.width
        and int(full.histogram[hundred]) >= 290
        and counts["read_beats"] == 30000
        and counts["write_beats"] == 3000
        and counts["cycles"] >= 16500
        and counts["offered"] == counts["counted"] == 33000
        and bool(full.valid & Features.ERROR_BOUND)
        and full.error_low <= 100 <= full.error_high
        and full.error_rank == 200
        and full.threshold == 60000
        and empty.error_low == empty.error_high == 0
        and counts["sequence"] > empty.counters["sequence"]
        and int(cleared.histogram[0]) == card.geometry.width
        and cleared.counters["epoch"] > counts["epoch"],
        "counters": dict(counts),
        "bound": [full.error_low, full.error_high],
    }


def thresholds() -> Result:
    """Threshold 0 reports each page touched, the greatest none, one above is refused."""
    pages = Pages(100)
    with driver(), cards() as connection, ring(Kind.HOT) as records:
        connection.set(FULL, threshold=0, epoch_us=0, enable=True)
        host().push(FULL, pages.pfns, 1)
        drained(connection, FULL)
        touched = len(lab.drain(records))
        top = connection.card(FULL).geometry.threshold_max
        connection.set(FULL, threshold=top, do=CardDo.CLEAR)
        host().push(FULL, pages.pfns[:2], top + 100)
        drained(connection, FULL)
        none = len(lab.drain(records))
        why = refused(connection, FULL, threshold=top + 1)
        saturated = connection.profile(FULL).counters["saturated"]
    return {
        "ok": touched == 100 and none == 0 and "threshold" in why and saturated > 0,
        "touched": touched,
        "none": none,
        "why": why,
    }


def overflow() -> Result:
    """A full hot list is counted; a drain that is bounded leaves the rest for the next one."""
    start = np_lab.node_ranges()[-1][0] >> 12
    many = np.arange(start, start + 1000)
    with driver(neoprof_drain_frames=64), cards() as connection, ring(Kind.FRAME) as records:
        connection.set(SMALL, threshold=0, epoch_us=0, drain_us=1_000_000, enable=True)
        drained(connection, SMALL, 1)
        host().push(SMALL, many, 1)
        small = np_lab.until(
            lambda: (card := connection.card(SMALL)).stats["overflows"] and card, "no overflow"
        )
        connection.set(FULL, threshold=0, epoch_us=0, drain_us=50_000, enable=True)
        host().push(FULL, many, 1)
        full = np_lab.until(
            lambda: (card := connection.card(FULL)).stats["entries"] >= 1000 and card, "not drained"
        )
        outside = connection.card(SMALL).stats["outside"]
        part = small.ranges
        dropped = (CLASS / "neoprof1/dropped").read_text().strip()
        frames = len(lab.drain(records))
    return {
        "ok": small.stats["level_max"] <= 63
        and full.stats["limited"] >= 3
        and full.stats["overflows"] == 0
        and int(dropped) >= 1
        and outside == 0
        and len(part) == 1
        and part[0].end - part[0].start == 512 << 20
        and frames > 0,
        "small": dict(small.stats),
        "full": dict(full.stats),
    }


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
    with driver(neoprof_window_v1=1 << PUBLISHED), cards() as connection, ring(Kind.HOT) as records:
        card = connection.card(PUBLISHED)
        connection.set(PUBLISHED, threshold=20, epoch_us=0, enable=True)
        host().push(PUBLISHED, pages.pfns, 30)
        host().push(PUBLISHED, pages.pfns | WRITE >> np.uint64(12), 2)
        first = connection.profile(PUBLISHED)
        second = connection.profile(PUBLISHED)
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


def interrupts() -> Result:
    """A list that is half full interrupts: it is drained long before its time."""
    start = np_lab.node_ranges()[-1][0] >> 12
    some = np.arange(start, start + 40)
    with driver(), cards() as connection, ring(Kind.FRAME) as records:
        features = connection.card(INTERRUPTING).geometry.features
        plain = connection.card(SMALL).geometry.features
        connection.set(INTERRUPTING, threshold=0, epoch_us=0, drain_us=10_000_000, enable=True)
        drained(connection, INTERRUPTING, 1)
        for _ in range(3):
            before = connection.card(INTERRUPTING).stats["entries"]
            connection.set(INTERRUPTING, do=CardDo.CLEAR)
            host().push(INTERRUPTING, some, 1)
            np_lab.until(
                lambda: connection.card(INTERRUPTING).stats["entries"] >= before + 40,  # noqa: B023
                "the list is not drained",
            )
        card = connection.card(INTERRUPTING)
        found = len(lab.drain(records))
    return {
        "ok": bool(features & Features.INTERRUPT)
        and not plain & Features.INTERRUPT
        and card.stats["interrupts"] >= 3
        and card.stats["entries"] == found == 120
        and card.stats["overflows"] == 0,
        "stats": dict(card.stats),
        "found": found,
    }


CHECKS = {
    check.__name__: check
    for check in (
        hot_pages,
        owners,
        profiles,
        thresholds,
        overflow,
        settings,
        huge,
        published,
        interrupts,
    )
}

if __name__ == "__main__":
    sys.exit(lab.main(CHECKS))
