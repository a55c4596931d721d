# SPDX-License-Identifier: Apache-2.0
"""What the NeoProf driver promises, in a lab guest with simulated cards."""

from __future__ import annotations

import mmap
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import guest_kmod as lab
import guest_neoprof_mishaps
import guest_neoprof_settings
import guest_neoprof_source
import neoprof_lab as np_lab
import numpy as np
from frame_owners import NO_TARGET, OwnerStatus
from guest_kmod import Result
from neoprof_lab import (
    FULL,
    INTERRUPTING,
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

from tierd.sources.hmu_devices import RequestCount
from tierd.sources.kmod.neoprof import CardRange, histogram_edges
from tierd.sources.kmod.uapi import CardDo, Features, Kind, PageFlags, Track

CLASS = Path("/sys/class/neoprof")
TRACE = Path("/sys/kernel/tracing")


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
            # Not before: who opens a ring prefers far memory meanwhile, for copies on write, too.
            gone = Pages(10)
            gone_pfns = gone.pfns
            gone.map.madvise(mmap.MADV_DONTNEED)
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
        requests = RequestCount()
        known = requests.count([FULL])
        host().push(FULL, pages.pfns[:10], 7)
        asked = requests.count([FULL]) - known
        told = (CLASS / f"neoprof{FULL}/requests").read_text()
        requests.close()
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
        and (int(told), asked) == (33070, 70)
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
    with driver(drain_frames=64), cards() as connection, ring(Kind.FRAME) as records:
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
    for check in (hot_pages, owners, profiles, thresholds, overflow, interrupts)
}
"""Those of this file; run as a program it knows those of its neighbours as well."""
NEIGHBOURS = (guest_neoprof_settings, guest_neoprof_source, guest_neoprof_mishaps)

if __name__ == "__main__":
    for neighbour in NEIGHBOURS:
        CHECKS |= neighbour.CHECKS
    sys.exit(lab.main(CHECKS))
