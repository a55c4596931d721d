# SPDX-License-Identifier: Apache-2.0
"""Checks in a lab guest of what the scanner leaves to the kernel's own users of accessed bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
from guest_kmod import Result

PAGES = 4096
TOUCHED = PAGES // 4
SCANS = 4
TABLE_PAGES, CHUNK_BYTES = 512, 656
COST_PAGES = 16384
COST_PERIOD_S = 5
"""More than the time for which a mark lasts."""
MOST_OF_A_SCAN = 0.2
TOUCHER = """
import mmap, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # also in the threads of numpy
huge, pages, touched = sys.argv[1] == "huge", int(sys.argv[2]), int(sys.argv[3])
memory = mmap.mmap(-1, (pages + 512) * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
import numpy as np
whole = np.frombuffer(memory, np.uint8)
first = -(whole.ctypes.data >> 12) % 512
each = whole[first * 4096 :][: pages * 4096 : 4096]
each[:] = 1
print((whole.ctypes.data >> 12) + first, flush=True)
while True:
    signal.sigwait([signal.SIGUSR1])
    each[:touched] += 1
    print("touched", flush=True)
"""
"""Has pages, and uses a quarter of them once for each signal."""


def option(name: str) -> bool:
    """Whether the running kernel has an option."""
    release = os.uname().release
    places = (Path(f"/boot/config-{release}"), Path(f"/lib/modules/{release}/build/.config"))
    config = next(each for each in places if each.exists())
    return f"CONFIG_{name}=y" in config.read_text()


def referenced(pid: int, first: int, pages: int) -> int:
    """Pages of a range that the kernel takes for used since its accessed bits were cleared.

    smaps counts a page by its entry's bit, or by what its struct page says (PG_young).
    """
    found, inside = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        word = line.split(maxsplit=1)[0]
        if not word.endswith(":"):
            start, end = (int(part, 16) >> 12 for part in word.split("-"))
            inside = start < first + pages and end > first
        elif inside and word == "Referenced:":
            found += int(line.split()[1]) // 4
    return found


def use(work: subprocess.Popen[str]) -> None:
    """Have a toucher use its pages once; if it ended, say so."""
    assert work.stdout is not None
    work.send_signal(signal.SIGUSR1)
    said = work.stdout.readline()
    if said != "touched\n":
        raise RuntimeError(f"the toucher said {said!r}, status {work.poll()}")


def seen(kind: str, sampling_interval_us: int) -> dict[str, int]:
    """What the kernel sees of pages that were used once: before the first scan, and between two."""
    command = [sys.executable, "-c", TOUCHER, kind, str(PAGES), str(TOUCHED)]
    with (
        lab.connection() as control,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as work,
    ):
        assert work.stdout is not None
        first = int(work.stdout.readline())

        def touch() -> int:
            Path(f"/proc/{work.pid}/clear_refs").write_text("1")
            use(work)
            return referenced(work.pid, first, PAGES)

        def scanned() -> int:
            before = control.targets()[0].stats["rounds"]
            end = time.monotonic() + 60
            while control.targets()[0].stats["rounds"] < before + SCANS and time.monotonic() < end:
                time.sleep(0.02)
            return referenced(work.pid, first, PAGES)

        try:
            control.scan_set(
                period_us=50_000, budget_ppm=800_000, sampling_interval_us=sampling_interval_us
            )
            used = touch()
            control.target_add(1, work.pid, [(first, first + PAGES)])
            long_ago = scanned()
            touch()
            after = scanned()
            # A window later, what is used again is marked again, and nothing else is.
            time.sleep(5)
            touch()
            later = scanned()
            Path(f"/proc/{work.pid}/clear_refs").write_text("1")
            idle = scanned()
        finally:
            work.kill()
    return {"long_ago": long_ago, "used": used, "after": after, "later": later, "idle": idle}


def young() -> Result:
    """What scans find accessed stays so for the kernel, by pages and by huge pages, whether they
    clear bits once or twice; with the option off, or a kernel that cannot keep it, it does not.

    What the first scan finds may have been used at any time before, and is not told."""
    can = option("PAGE_IDLE_FLAG")
    told: dict[str, dict[str, int]] = {}
    with lab.module(), lab.tlbtick():
        default = lab.parameter("mark_young")
        for kind, interval_us in (("small", 0), ("small", 10_000), ("huge", 10_000)):
            told[f"{kind} {interval_us}"] = seen(kind, interval_us)
        with lab.connection() as control:
            marked = control.scan_get().stats["marked"]
    with lab.module(mark_young=0), lab.tlbtick():
        told["off"] = seen("small", 0)
        with lab.connection() as control:
            unmarked = control.scan_get().stats["marked"]
    kept = [each for name, each in told.items() if name != "off"]
    return {
        "ok": (default == "Y") == can
        and (marked > 0) == can
        and unmarked == 0
        and all(each["used"] == TOUCHED and each["idle"] == each["long_ago"] == 0 for each in kept)
        and all(each[at] == (TOUCHED if can else 0) for each in kept for at in ("after", "later"))
        and told["off"]["after"] == told["off"]["later"] == 0,
        "can": can,
        "mark_young": default,
        "marked": marked,
        **told,
    }


def unwatched() -> Result:
    """A table without a history is not looked at, and its accessed bits are left to others; by
    default there are histories for all."""
    watched = 2
    told: dict[str, tuple[int, int]] = {}
    for name, limit in (("bounded", watched * CHUNK_BYTES), ("default", 0)):
        with (
            lab.module(mark_young=0, history_bytes=limit),
            lab.tlbtick(),
            lab.connection() as control,
            subprocess.Popen(
                [sys.executable, "-c", TOUCHER, "small", str(PAGES), str(PAGES)],
                stdout=subprocess.PIPE,
                text=True,
            ) as work,
        ):
            assert work.stdout is not None
            first = int(work.stdout.readline())
            Path(f"/proc/{work.pid}/clear_refs").write_text("1")
            use(work)
            control.scan_set(period_us=50_000, budget_ppm=800_000, sampling_interval_us=10_000)
            control.target_add(1, work.pid, [(first, first + PAGES)])
            end = time.monotonic() + 60
            while control.targets()[0].stats["rounds"] < SCANS and time.monotonic() < end:
                time.sleep(0.02)
            told[name] = referenced(work.pid, first, PAGES), int(lab.parameter("history_full"))
            work.kill()
    return {
        "ok": told["bounded"][0] == PAGES - watched * TABLE_PAGES
        and told["bounded"][1] > 0
        and told["default"] == (0, 0),
        **told,
    }


def cost() -> Result:
    """What marking takes of a scan at most: every page is in use, and no mark lasts until the next
    scan. CPU time of a scan with it and without, by turns, where the clock counts instructions."""
    taken: dict[str, list[float]] = {"1": [], "0": []}
    marked = accessed = 0
    switch = Path("/sys/module/tierd/parameters/mark_young")
    command = [sys.executable, "-c", TOUCHER, "small", str(COST_PAGES), str(COST_PAGES)]
    with (
        lab.module(),
        lab.connection() as control,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as work,
    ):
        assert work.stdout is not None
        first = int(work.stdout.readline())
        control.scan_set(period_us=COST_PERIOD_S * 1_000_000, budget_ppm=1_000_000)
        control.target_add(1, work.pid, [(first, first + COST_PAGES)])
        for turn in range(6):
            which = "01"[turn % 2]
            switch.write_text(which)
            before, spent = control.scan_get().stats, lab.cpu_ns(lab.scanner_pid())
            for _ in range(4 * COST_PERIOD_S):
                use(work)
                time.sleep(1)
            after, took = control.scan_get().stats, lab.cpu_ns(lab.scanner_pid()) - spent
            if turn > 1:
                taken[which].append(took / (after["rounds"] - before["rounds"]) / 1e6)
                marked += after["marked"] - before["marked"]
                accessed += after["accessed"] - before["accessed"] if which == "1" else 0
        work.kill()
    with_ms, without_ms = (float(np.mean(taken[which])) for which in "10")
    share = 1 - without_ms / with_ms
    return {
        "ok": share <= MOST_OF_A_SCAN and marked >= 0.99 * accessed > 0,
        "scan_ms": round(without_ms, 2),
        "with_marking_ms": round(with_ms, 2),
        "share_of_a_scan": round(share, 3),
        "marked": marked,
        "accessed": accessed,
        "each_ms": {which: [round(each, 2) for each in values] for which, values in taken.items()},
    }


if __name__ == "__main__":
    sys.exit(lab.main({"young": young, "unwatched": unwatched, "cost": cost}))
