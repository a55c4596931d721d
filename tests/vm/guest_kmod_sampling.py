# SPDX-License-Identifier: Apache-2.0
"""Checks of sampling intervals inside a lab guest: refusals, and changes within an interval."""

from __future__ import annotations

import errno
import functools
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
from guest_kmod import Result
from guest_kmod_resolve import Churner

from tierd.core.errors import UnavailableError
from tierd.core.process import keep_only
from tierd.sources.kmod.netlink import Control
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import Kind, ScanFlags
from tierd.sources.scan_records import ScanSummary, summaries

PERIOD_US = 100_000
INTERVALS = "sampling-interval-us is 0, or from 100 to period-us"
REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"sampling_interval_us": 1}, INTERVALS),
    ({"sampling_interval_us": 50}, INTERVALS),
    ({"sampling_interval_us": 99}, INTERVALS),
    ({"sampling_interval_us": PERIOD_US + 1}, INTERVALS),
    ({"sampling_interval_us": 2**32 - 1}, INTERVALS),
    ({"sampling_interval_us": 50, "hot_scans": 4, "budget_ppm": 123_456}, INTERVALS),
    # The sampling interval in force is longer.
    ({"period_us": 9_999}, INTERVALS),
    ({"period_us": 20_000, "sampling_interval_us": 30_000}, INTERVALS),
    ({"budget_ppm": 50}, "budget-ppm is from 100 to 1000000"),
    ({"hot_scans": 1}, "cold-scans is less than hot-scans"),
    ({"cold_scans": 2}, "cold-scans is less than hot-scans"),
    # By the kernel's own policy of attributes; its words.
    ({"period_us": 999}, ""),
    ({"hot_scans": 9}, ""),
    ({"report_scans": 0}, ""),
)


def answer(control: Control, settings: dict[str, Any]) -> tuple[str, str]:
    """The error's name and text, or two empty ones."""
    try:
        control.scan_set(**settings)
    except UnavailableError as error:
        cause = error.__cause__
        assert isinstance(cause, OSError)
        assert cause.errno is not None
        return errno.errorcode[cause.errno], cause.strerror or ""
    return "", ""


def in_force(control: Control) -> dict[str, Any]:
    """All settings."""
    state = control.scan_get()
    return {name: getattr(state, name) for name in state.__slots__ if name != "stats"}


def refused() -> Result:
    """Values out of range: ERANGE, the reason in words, and none of the message is taken."""
    wrong = {}
    with lab.module(), lab.connection() as control:
        control.scan_set(
            period_us=PERIOD_US,
            budget_ppm=50_000,
            hot_scans=2,
            cold_scans=1,
            report_scans=1,
            sampling_interval_us=10_000,
        )
        before = in_force(control)
        for settings, reason in REFUSED:
            told = answer(control, settings)
            same = in_force(control) == before
            if told[0] != "ERANGE" or reason not in told[1] or not told[1] or not same:
                wrong[repr(settings)] = [*told, same]
        taken = {
            "least": {"sampling_interval_us": 100},
            "whole period": {"sampling_interval_us": PERIOD_US},
            "with a longer period": {
                "period_us": 2 * PERIOD_US,
                "sampling_interval_us": PERIOD_US + 1,
            },
            "none": {"sampling_interval_us": 0},
            "short period then": {"period_us": 1000},
        }
        for name, settings in taken.items():
            told = answer(control, settings)
            now = in_force(control)
            if told[0] or any(now[key] != value for key, value in settings.items()):
                wrong[name] = [*told, now["sampling_interval_us"], now["period_us"]]
    return {"ok": not wrong, "wrong": wrong, "refused": len(REFUSED), "taken": len(taken)}


NEED_FLUSH: tuple[dict[str, Any], ...] = (
    {"sampling_interval_us": 10_000},
    {"flags": ScanFlags.FLUSH},
    {"flags": ScanFlags.DIRTY},
)


def flush() -> Result:
    """As later kernels have it: what needs a flush is refused with the reason where the CPU has no
    INVPCID, and scans without an interval go on; where it has, all is taken."""
    with lab.module("TIERD_FLUSH_BY_INVPCID"), lab.connection() as control, lab.tlbtick():
        can = " invpcid" in Path("/proc/cpuinfo").read_text()
        shown = lab.parameter("can_flush")
        told = []
        for settings in NEED_FLUSH:
            control.scan_set(sampling_interval_us=0, flags=ScanFlags(0), period_us=PERIOD_US)
            told.append(answer(control, settings))
        with Churner("hold", 3000) as churner:
            control.target_add(1, churner.pid)
            end = time.monotonic() + 60
            while control.scan_get().stats["rounds"] < 3 and time.monotonic() < end:
                time.sleep(0.05)
            rounds = control.scan_get().stats["rounds"]
    refused_all = all(
        name == errno.errorcode[errno.EOPNOTSUPP]
        and "no INVPCID" in text
        and key in text.replace("-", "_")
        for (name, text), key in zip(told, ("sampling_interval_us", "flush", "dirty"), strict=True)
    )
    return {
        "ok": rounds >= 3
        and (shown == "Y") == can
        and (not any(name for name, _ in told) if can else refused_all),
        "cpu_has_invpcid": can,
        "can_flush": shown,
        "told": told,
        "rounds": rounds,
    }


def held(control: Control) -> tuple[int, int]:
    """Targets that the module has, and bytes of their histories."""
    stats = control.scan_get().stats
    return stats["targets"], stats["history_bytes"]


def shorter(control: Control, ring: Ring) -> tuple[bool, int]:
    """Who waits for the next look waits no longer than the period that is set by then: whether
    all wait with a long one, and the fewest rounds of any that came with a short one."""

    def rounds() -> list[int]:
        return [each.stats["rounds"] for each in control.targets()]

    control.scan_set(period_us=600_000_000, sampling_interval_us=0)
    time.sleep(1)
    before = rounds()
    time.sleep(1)
    waits = before == rounds()
    control.scan_set(period_us=4000)
    end, came = time.monotonic() + 60, 0
    while came < 10 and time.monotonic() < end:
        lab.drain(ring)
        time.sleep(0.05)
        came = min(now - then for now, then in zip(rounds(), before, strict=True))
    return waits, came


def changes(least_s: float = 6) -> Result:
    """Intervals, periods, ranges and targets change at any moment; scans go on after it."""
    rng = random.Random(11)
    pages, number = 3000, 2
    counts = {"settings": 0, "ranges": 0, "anew": 0}
    with (
        lab.module(),
        lab.connection() as control,
        lab.ring() as ring,
        Churner("map", pages) as churner,
        Churner("huge", pages) as other,
    ):
        first = churner.first_vpn
        control.scan_set(budget_ppm=400_000, hot_scans=1, cold_scans=0)
        control.target_add(number, churner.pid)
        control.target_add(number + 1, other.pid)
        begin = time.monotonic()
        while (seconds := time.monotonic() - begin) < least_s or (
            min(counts.values()) <= 10 and seconds < 60
        ):
            what = rng.random()
            if what < 0.6:
                period_us = rng.choice((1000, 4000, 20_000, 400_000))
                sampling_interval_us = rng.choice((0, 100, 1000, period_us // 2, period_us))
                control.scan_set(
                    period_us=period_us,
                    sampling_interval_us=sampling_interval_us,
                    flags=rng.choice((ScanFlags(0), ScanFlags.DIRTY, ScanFlags.FLUSH)),
                )
                counts["settings"] += 1
            elif what < 0.9:
                start = first + rng.randrange(pages - 1)
                size = rng.randrange(1, first + pages - start)
                control.target_set(number, rng.choice(([], [(start, start + size)])))
                counts["ranges"] += 1
            else:
                control.target_del(number)
                control.target_add(number, churner.pid)
                counts["anew"] += 1
            time.sleep(rng.random() / 50)
            lab.drain(ring)
        control.scan_set(period_us=4000, sampling_interval_us=2000, flags=ScanFlags(0))
        control.target_set(number, [(first, first + pages)])
        before = {each.target: each.stats["rounds"] for each in control.targets()}
        rounds = dict.fromkeys(before, 0)
        end = time.monotonic() + 60
        while min(rounds.values()) < 10 and time.monotonic() < end:
            lab.drain(ring)
            time.sleep(0.05)
            last = {each.target: each.stats for each in control.targets()}
            rounds = {target: last[target]["rounds"] - before[target] for target in before}
        waits, anew = shorter(control, ring)
        alive = churner.alive and other.alive
        for target in before:
            control.target_del(target)
        # The scanner may have one in hand still, which goes when it lets go of it.
        end = time.monotonic() + 30
        while any(left := held(control)) and time.monotonic() < end:
            time.sleep(0.05)
    return {
        "ok": alive
        and min(rounds.values()) >= 10
        # The last pages of a part are armed up to a quarter of it later than the first.
        and min(each["sampling_interval_ns"] for each in last.values()) >= 1_500_000
        and waits
        and anew >= 10
        and last[number]["round_pages"] >= pages
        and left == (0, 0)
        and min(counts.values()) > 10,
        "alive": alive,
        "rounds_after": list(rounds.values()),
        "waits": waits,
        "rounds_of_a_shorter_period": anew,
        "interval_ms": [each["sampling_interval_ns"] / 1e6 for each in last.values()],
        "round_pages": last[number]["round_pages"],
        "changed": counts,
        "left": left,
    }


def removal() -> Result:
    """rmmod while pages are armed for long does not wait for their look."""
    lab.load()
    with lab.connection() as control, Churner("hold", 4000) as churner:
        control.scan_set(
            period_us=600_000_000, sampling_interval_us=600_000_000, budget_ppm=400_000
        )
        control.target_add(1, churner.pid)
        end = time.monotonic() + 20
        while not (armed := control.scan_get().stats["tables"]) and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.2)
        looked = control.targets()[0].stats["rounds"]
        start = time.monotonic()
        lab.unload()
        took_s = time.monotonic() - start
    return {
        "ok": armed > 0 and looked == 0 and not lab.loaded() and took_s < 60,
        "tables_armed": armed,
        "rounds": looked,
        "took_s": round(took_s, 2),
    }


MOVER = """
import mmap, signal, sys, time
import numpy as np
huge, pages = sys.argv[1] == "huge", int(sys.argv[2])
memory = mmap.mmap(-1, (pages + 512) * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
whole = np.frombuffer(memory, np.uint8)
first = -(whole.ctypes.data >> 12) % 512
each = whole[first * 4096 :][: pages * 4096 : 4096]
each[:] = 1
sets = [each[: pages // 4], each[pages // 2 : pages // 2 + pages // 4]]
signal.signal(signal.SIGUSR1, lambda *_: sets.reverse())
print((whole.ctypes.data >> 12) + first, flush=True)
while True:
    sets[0] += 1
    time.sleep(0.002)
"""
"""Uses a quarter of its pages all the time, and another one after a signal."""


def looks(ring: Ring, count: int, frames: set[bool] | None = None) -> list[ScanSummary]:
    """What the next looks found, as they end; into `frames` whether records of pages had theirs."""
    found: list[ScanSummary] = []
    end = time.monotonic() + 60
    while len(found) < count and time.monotonic() < end:
        records = lab.drain(ring)
        found += summaries(records)
        if frames is not None:
            frames.update((records["pfn"][records["kind"] == Kind.PAGE] != 0).tolist())
        time.sleep(0.01)
    return found


def moved(kind: str, pages: int, *, frames: bool = True) -> Result:
    """What looks tell of a program that begins to use other pages.

    `frames`: whether this reader is told which frames pages are in.
    """
    told: set[bool] = set()
    with (
        lab.connection() as control,
        lab.ring() as ring,
        subprocess.Popen(
            [sys.executable, "-c", MOVER, kind, str(pages)], stdout=subprocess.PIPE, text=True
        ) as work,
    ):
        assert work.stdout is not None
        first = int(work.stdout.readline())
        # So long that the program and the helper run in it, whatever else the host does.
        control.scan_set(
            period_us=500_000,
            sampling_interval_us=400_000,
            budget_ppm=800_000,
            hot_scans=2,
            cold_scans=1,
            report_scans=8,
        )
        control.target_add(1, work.pid, [(first, first + pages)])
        try:
            looks(ring, 14, told)
            stands = looks(ring, 6)
            work.send_signal(signal.SIGUSR1)
            moves = looks(ring, 4)
            looks(ring, 12)
            after = looks(ring, 6)
        finally:
            work.kill()
    used, silent = pages // 4, [each.newly_idle for each in moves]
    # A folio that is mapped as a whole is one page that becomes hot.
    came = used // 512 if kind == "huge" else used
    newcomers = [each.newly_hot for each in moves if each.newly_hot_fraction > 0.9]
    calm = [each for each in stands + after if each.newly_idle or each.newly_hot]
    at = silent.index(max(silent))
    return {
        # The look under way when it moved finds both sets used, or a part of each.
        "ok": not calm
        and told == {frames}
        and {each.accessed for each in stands + after} == {used}
        and silent[at] == used
        and moves[at].newly_idle_fraction == 1.0
        and sum(newcomers) == came,
        "silent": silent,
        "frames": sorted(told),
        "newcomers": [each.newly_hot for each in moves],
        "not_calm": calm,
        "accessed": [each.accessed for each in stands + moves + after],
    }


def without_frames() -> Result:
    """The same for a reader that may not know of frames: how many fell silent is none of those."""
    keep_only(("CAP_NET_ADMIN", "CAP_SYS_PTRACE"))
    return moved("small", 4096, frames=False)


def turnover() -> Result:
    """Looks count what is not used any more, and what has just begun to be."""
    with lab.module(), lab.tlbtick():
        told = {kind: moved(kind, 4096) for kind in ("small", "huge")}
        # Capabilities are a thread's.
        with ThreadPoolExecutor(1) as thread:
            told["without frames"] = thread.submit(without_frames).result()
    return {"ok": all(each["ok"] for each in told.values()), **told}


CHECKS = {
    "refused": refused,
    "flush": flush,
    "changes": changes,
    "removal": removal,
    "turnover": turnover,
    "changes_long": functools.partial(changes, 60),
}

if __name__ == "__main__":
    sys.exit(lab.main(CHECKS))
