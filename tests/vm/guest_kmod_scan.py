# SPDX-License-Identifier: Apache-2.0
"""Checks of the scanner inside a lab guest: what it finds, how fast, within its budget."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
from guest_kmod import Hotset, Result

from tierd.sources.kmod.netlink import Control
from tierd.sources.kmod.ring import Ring

TARGET = 3
NUMBERS = itertools.count(TARGET + 1)
"""Of targets, each for the records of one run of a check."""
CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
VPN = np.uint64((1 << 48) - 1)
DEBT_NS = 20_000_000
"""A piece of work in which the host ran others: charged, and paid back after the window."""


def score(found: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Precision and recall of page numbers."""
    right = len(np.intersect1d(found, truth))
    return {
        "precision": round(right / max(1, len(found)), 4),
        "recall": round(right / len(truth), 4),
    }


def accuracy(size: str = "256M") -> Result:
    """Hot pages at random, one in ten, 90 % of accesses: ten scans find them."""
    with (
        # The ring holds more than a round's records, so that a reader may be late by one.
        lab.module(ring_records=1 << 19),
        lab.tlbtick(),
        Hotset(size=size) as work,
        lab.connection() as control,
        lab.ring() as ring,
    ):
        control.scan_set(period_us=400_000, budget_ppm=50_000, hot_scans=2, cold_scans=0)
        control.target_add(TARGET, work.pid, work.ranges)
        start = time.monotonic()
        records = lab.Rounds(ring, TARGET).until(10, 120)
        seconds = time.monotonic() - start
        (target,) = control.targets()
        state = control.scan_get()
        seen = np.unpackbits(records["history"][:, None], axis=1).sum(axis=1)
        vpn = records["page"] & VPN
        order = np.lexsort((records["history"], seen))[::-1]
        top = score(vpn[order[: len(work.hot)]], work.hot)
        classed = score(vpn[seen >= 5], work.hot)
        ok = min(top["precision"], top["recall"]) >= 0.98 and ring.dropped == 0
        return {
            "ok": ok,
            "hottest": top,
            "seen_in_5_of_8": classed,
            "period_s": round(target.stats["period_ns"] / 1e9, 2),
            "hot_pages": len(work.hot),
            "records": len(records),
            "dropped": ring.dropped,
            "seconds_for_10_scans": round(seconds, 2),
            "round_cpu_ms": target.stats["round_cpu_ns"] / 1e6,
            "round_pages": target.stats["round_pages"],
            "history_bytes": state.stats["history_bytes"],
            "tlbtick_us": lab.TLB_PERIOD_US,
        }


AMPLE_PPM = 200_000
SCARCE = 1 / 3
"""The part of what rounds took with an ample budget that a scarce one leaves them."""


TRIES = 6

Found = dict[str, float]
"""What one round found, by what it is."""


def look(
    control: Control, ring: Ring, work: Hotset, sampling_interval_us: int, *, ppm: int, rounds: int
) -> tuple[Found, float]:
    """What the round after so many finds, and the budget that they needed."""
    # The scanner may write the last records of a target after it was removed.
    target = next(NUMBERS)
    pid = lab.scanner_pid()
    control.scan_set(
        period_us=400_000,
        budget_ppm=ppm,
        hot_scans=1,
        cold_scans=0,
        report_scans=1,
        sampling_interval_us=sampling_interval_us,
    )
    begun, before = time.monotonic_ns(), lab.cpu_ns(pid)
    control.target_add(target, work.pid, work.ranges)
    lab.Rounds(ring, target).until(rounds, 120)
    spent = lab.cpu_ns(pid)
    records = lab.Rounds(ring, target).until(1, 120)
    (known,) = control.targets()
    control.target_del(target)
    needed_ppm = 1e6 * (lab.cpu_ns(pid) - before) / (time.monotonic_ns() - begun)
    seen = np.zeros(work.pages)
    last = (records["page"] & VPN).astype(np.int64) - work.first_vpn
    seen[last] = np.unpackbits(records["history"][:, None], axis=1).sum(axis=1)
    hot = np.zeros(work.pages, bool)
    hot[work.hot.astype(np.int64) - work.first_vpn] = True
    told = {
        "looks_at_hot": round(float(seen[hot].mean()), 3),
        "looks_at_others": round(float(seen[~hot].mean()), 3),
        "accessed": known.stats["round_accessed"] / known.stats["round_pages"],
        "interval_ms": known.stats["sampling_interval_ns"] / 1e6,
        "period_ms": known.stats["period_ns"] / 1e6,
        "round_cpu_ms": known.stats["round_cpu_ns"] / 1e6,
        "budget_ppm": ppm,
        "cpu_ms": (lab.cpu_ns(pid) - spent) / 1e6,
    }
    return told, needed_ppm


def sampling_interval() -> Result:
    """A tenth of the pages has six tenths of the accesses, and the others are used some times a
    second: whole periods find nearly all of them so, scans with a sampling interval tell them
    apart. They find as many with a budget that a round has to wait for: sampled pages do not wait
    for it."""
    told: dict[str, Found] = {}
    held = False
    with (
        lab.module(),
        lab.tlbtick(),
        Hotset("--hot-access", "0.6", size="64M") as work,
        lab.connection() as control,
        lab.ring() as ring,
    ):
        told["whole"], _ = look(control, ring, work, 0, ppm=AMPLE_PPM, rounds=9)
        told["part"], needed_ppm = look(control, ring, work, 10_000, ppm=AMPLE_PPM, rounds=9)
        ppm = max(200, round(SCARCE * needed_ppm))
        tried = []
        for _ in range(TRIES):
            told["scarce"], needed_ppm = look(control, ring, work, 10_000, ppm=ppm, rounds=3)
            tried.append(told["scarce"])
            # A host that has other work may stop the scanner's CPU during a sampling interval,
            # which is long then: but not always.
            if held := apart(**told):
                break
            if not waited(told["scarce"], told["part"]):
                # What is scarce is measured: what a round costs is ten times what it was just
                # before, or a tenth.
                ppm = max(200, round(SCARCE * needed_ppm))
    return {"ok": held, **told, "tried": tried}


def waited(scarce: Found, part: Found) -> bool:
    """A round had to wait for its budget."""
    return scarce["period_ms"] > 1.2 * part["period_ms"]


def apart(whole: Found, part: Found, scarce: Found) -> bool:
    """What `sampling_interval` says of them holds."""
    return (
        whole["interval_ms"] == 0
        # The last pages of a part are armed up to a quarter of it later than the first.
        and part["interval_ms"] >= 7.5
        and part["accessed"] < 0.8 * whole["accessed"]
        and part["looks_at_others"] < 0.5 * part["looks_at_hot"]
        and waited(scarce, part)
        and scarce["interval_ms"] < 0.1 * scarce["period_ms"]
        and scarce["accessed"] < (part["accessed"] + whole["accessed"]) / 2
    )


def pagemap_ns(pid: int, first_vpn: int, pages: int) -> int:
    """CPU time of this thread for reading the pagemap of a range."""
    fd = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY)
    start = time.thread_time_ns()
    offset, end = first_vpn * 8, (first_vpn + pages) * 8
    while offset < end:
        offset += len(os.pread(fd, min(1 << 20, end - offset), offset))
    spent = time.thread_time_ns() - start
    os.close(fd)
    return spent


def speed() -> Result:
    """A round of accessed bits against /proc/PID/pagemap, same range, same boot, CPU time."""
    with lab.module(), lab.tlbtick(), Hotset() as work, lab.connection() as control:
        control.scan_set(period_us=1000, budget_ppm=1_000_000)
        pid = lab.scanner_pid()
        scans, pagemaps = [], []
        for _ in range(9):
            # By turns, so that what else the host does falls on both.
            control.target_add(TARGET, work.pid, work.ranges)
            while (before := control.targets()[0].stats["rounds"]) < 3:
                time.sleep(0.01)
            spent = lab.cpu_ns(pid)
            time.sleep(0.5)
            rounds, now = control.targets()[0].stats["rounds"], lab.cpu_ns(pid)
            control.target_del(TARGET)
            scans.append((now - spent) / max(1, rounds - before))
            pagemaps.append(pagemap_ns(work.pid, work.first_vpn, work.pages))
        scan, pagemap = float(np.median(scans)), float(np.median(pagemaps))
        return {
            "ok": pagemap >= 5 * scan,
            "pages": work.pages,
            "scan_ms": round(scan / 1e6, 3),
            "pagemap_ms": round(pagemap / 1e6, 3),
            "ratio": round(pagemap / scan, 2),
            "scans_ms": [round(value / 1e6, 1) for value in scans],
            "pagemaps_ms": [round(value / 1e6, 1) for value in pagemaps],
            "clocksource": CLOCK.read_text().strip(),
            "scan_ns_a_page": round(scan / work.pages, 1),
        }


def budget(windows: Sequence[tuple[float, int, int]] = ((0.01, 16, 2), (0.2, 8, 3))) -> Result:
    """The scanner's thread takes what it may, and no more, when there is more to scan.

    Args:
        windows: share of a CPU, seconds, how often it is tried.
    """
    with lab.module(), lab.tlbtick(), Hotset() as work, lab.connection() as control:
        pid = lab.scanner_pid()
        told = []
        control.scan_set(period_us=1000, budget_ppm=20_000)
        control.target_add(TARGET, work.pid, work.ranges)
        # More than it may is wrong in any window; less can be the host's doing, but not in all.
        for wanted, seconds in [each[:2] for each in windows for _ in range(each[2])]:
            if any(each["wanted"] == wanted and each["ok"] for each in told):
                continue
            control.scan_set(budget_ppm=round(wanted * 1e6))
            time.sleep(1)
            start, spent = time.monotonic_ns(), lab.cpu_ns(pid)
            time.sleep(seconds)
            took, passed = lab.cpu_ns(pid) - spent, time.monotonic_ns() - start
            off, bound = took - wanted * passed, 0.1 * wanted * passed + DEBT_NS
            told.append({"wanted": wanted, "share": round(took / passed, 4), "off_ns": round(off)})
            told[-1] |= {"ok": abs(off) <= bound, "too_much": off > bound}
        held = {each["wanted"] for each in told if each["ok"]}
        # What waking up takes is as much as so little brings in: it gets on with its work still. (A
        # slice in which the host ran others is paid back first, which takes some ten seconds.)
        control.scan_set(budget_ppm=500)
        time.sleep(1)
        before, end = control.scan_get().stats["pages"], time.monotonic() + 90
        while not (scarce_pages := control.scan_get().stats["pages"] - before):
            if time.monotonic() > end:
                break
            time.sleep(0.1)
        # A scan that needs less than its budget keeps its period and takes less.
        control.scan_set(budget_ppm=1_000_000, period_us=2_000_000)
        time.sleep(5)
        period_s = control.targets()[0].stats["period_ns"] / 1e9
        return {
            "ok": held == {each[0] for each in windows}
            and not any(each["too_much"] for each in told)
            and scarce_pages > 0
            and period_s >= 1.99,
            "shares": told,
            "scarce_pages": scarce_pages,
            "period_s": period_s,
        }


if __name__ == "__main__":
    checks = {
        "accuracy": accuracy,
        "sampling_interval": sampling_interval,
        "speed": speed,
        "budget": budget,
        "accuracy_large": functools.partial(accuracy, "1G"),
        "budget_long": functools.partial(budget, ((0.01, 32, 2), (0.05, 16, 3), (0.2, 16, 3))),
    }
    sys.exit(lab.main(checks))
