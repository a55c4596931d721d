# SPDX-License-Identifier: Apache-2.0
"""Checks of physical-to-virtual lookups inside a lab guest."""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import guest_kmod as lab
from frame_owners import NO_TARGET, FrameOwners, OwnerStatus, frame_owners
from frames import frames_of
from guest_kmod import Result

TARGET = 9
CHURN = Path(__file__).with_name("guest_kmod_churn.py")


class Churner:
    """A process of guest_kmod_churn.py."""

    def __init__(self, kind: str, pages: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(CHURN), kind, str(pages)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.pid = self.process.pid
        self.first_vpn = int(self.process.stdout.readline().split()[1])
        self.pages = pages

    def __enter__(self) -> Churner:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def alive(self) -> bool:
        """False also when it found its memory changed (exit status 3)."""
        return self.process.poll() is None

    def frames(self) -> np.ndarray:
        """The frames of its steady area now, 0 where there is none."""
        return frames_of(self.pid, self.first_vpn, self.pages)


def left_behind(owners: FrameOwners, frames: np.ndarray) -> int:
    """Frames of a process that is gone which are told as its still: they are nobody's, or somebody
    else's. (Where the scanner had its memory in hand as it ended, a worker takes that down.)"""
    end = time.monotonic() + 30
    while left := int(np.count_nonzero(owners.resolve(frames)["target"] == TARGET)):
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    return left


def lookups(seconds: float = 3) -> Result:
    """10 000 frames while the process maps, unmaps, forks and ends: no answer is wrong.

    Frames of the steady area that pagemap shows at the same address before and after the
    lookup were there during it: they must be told with that address, or as busy.
    """
    told: dict[str, int] = {}
    wrong = checked = rounds = 0
    times = []
    example: dict[str, Any] = {}
    with lab.module(), lab.connection() as control, frame_owners() as owners:
        for kind in ("map", "fork", "huge", "exec"):
            with Churner(kind, 10_000) as churner:
                control.target_add(TARGET, churner.pid)
                end = time.monotonic() + seconds
                while time.monotonic() < end and churner.alive:
                    before = churner.frames()
                    start = time.thread_time_ns()
                    table = owners.resolve(before)
                    times.append(time.thread_time_ns() - start)
                    after = churner.frames()
                    rounds += 1
                    stayed = (before == after) & (before != 0)
                    vpn = np.arange(churner.pages, dtype=np.uint64) + np.uint64(churner.first_vpn)
                    mapped = table["status"] == OwnerStatus.MAPPED
                    shared = table["status"] == OwnerStatus.SHARED
                    busy = table["status"] == OwnerStatus.BUSY
                    right = mapped & (table["target"] == TARGET) & (table["pid"] == churner.pid)
                    right = (right | shared) & (table["vpn"] == vpn)
                    off = stayed & ~right & ~busy
                    wrong += int(np.count_nonzero(off))
                    if off.any() and not example:
                        at = int(np.argmax(off))
                        example = {"kind": kind, "vpn": int(vpn[at]), "pid": churner.pid}
                        example["told"] = str(table[at])
                        example["pages"] = np.flatnonzero(off)[:32].tolist()
                    # What did not stay may be anybody's by now, but never ours elsewhere.
                    ours = mapped & (table["pid"] == churner.pid) & stayed
                    wrong += int(np.count_nonzero(ours & (table["vpn"] != vpn)))
                    checked += int(np.count_nonzero(stayed))
                    for status in OwnerStatus:
                        count = int(np.count_nonzero(table["status"] == status))
                        told[status.name] = told.get(status.name, 0) + count
                ok = churner.alive
                if not ok:
                    raise RuntimeError(f"{kind}: ended with {churner.process.poll()}")
                last = churner.frames()
            wrong += left_behind(owners, last)
            with contextlib.suppress(Exception):
                control.target_del(TARGET)
    return {
        "ok": wrong == 0 and checked > 50_000,
        "wrong": wrong,
        "first_wrong": example,
        "checked": checked,
        "rounds": rounds,
        "told": told,
        "ns_a_frame": round(float(np.median(times)) / 10_000),
    }


def stopped() -> Result:
    """With everything held still each answer is exact, shared and file pages included."""
    with (
        lab.module(),
        frame_owners() as owners,
        tempfile.NamedTemporaryFile(dir="/dev/shm") as file,
    ):
        file.write(b"x" * (64 * 4096))
        file.flush()
        with Churner("hold", 4096) as churner:
            private = owners.resolve(churner.frames())
            with mmap.mmap(file.fileno(), 64 * 4096) as area:
                area[::4096] = b"y" * 64
                own = np.frombuffer(area, np.uint8)
                first = own.ctypes.data >> 12
                pages = owners.resolve(frames_of(os.getpid(), first, 64))
                del own
            mine = mmap.mmap(-1, 64 * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            mine[::4096] = b"z" * 64
            view = np.frombuffer(mine, np.uint8)
            first = view.ctypes.data >> 12
            child = os.fork()
            if not child:
                signal.pause()
            shared = owners.resolve(frames_of(os.getpid(), first, 64))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            alone = owners.resolve(frames_of(os.getpid(), first, 64))
            vpn = np.arange(4096, dtype=np.uint64) + np.uint64(churner.first_vpn)
            exact = bool(
                (private["status"] == OwnerStatus.MAPPED).all()
                and (private["vpn"] == vpn).all()
                and (private["pid"] == churner.pid).all()
                and (private["target"] == NO_TARGET).all()
            )
        nonsense = np.array([0, 1, 1 << 40, 1 << 63, 2**64 - 1], np.uint64)
        strange = owners.resolve(nonsense)
    ok = exact
    ok &= bool((pages["status"] == OwnerStatus.FILE).all())
    ok &= bool((shared["status"] == OwnerStatus.SHARED).all())
    ok &= bool((alone["status"] == OwnerStatus.MAPPED).all())
    ok &= bool((strange["target"] == NO_TARGET).all() and (strange["pid"] == 0).all())
    return {
        "ok": ok,
        "private": exact,
        "file": np.unique(pages["status"]).tolist(),
        "shared": np.unique(shared["status"]).tolist(),
        "after_child_ended": np.unique(alone["status"]).tolist(),
        "nonsense": strange["status"].tolist(),
    }


def alternatives() -> Result:
    """What other ways of finding owners cost here: CPU ms for 10 000 frames of 1 GiB."""
    pages = 262_144
    with lab.module(), lab.connection() as control, frame_owners() as owners:  # noqa: SIM117
        with Churner("hold", pages) as churner:
            frames = churner.frames()
            asked = np.random.default_rng(1).choice(frames, 10_000, replace=False)
            reverse, pagemap, walks = [], [], []
            pid = lab.scanner_pid()
            for _ in range(5):
                start = time.thread_time_ns()
                table = owners.resolve(asked)
                reverse.append(time.thread_time_ns() - start)
                start = time.thread_time_ns()
                order = np.argsort(all_frames := churner.frames())
                found = order[np.searchsorted(all_frames, asked, sorter=order)]
                pagemap.append(time.thread_time_ns() - start)
            control.scan_set(period_us=1000, budget_ppm=1_000_000)
            control.target_add(
                TARGET, churner.pid, [(churner.first_vpn, churner.first_vpn + pages)]
            )
            time.sleep(1)
            before, spent = control.targets()[0].stats["rounds"], lab.cpu_ns(pid)
            time.sleep(2)
            walks.append(
                (lab.cpu_ns(pid) - spent) / (control.targets()[0].stats["rounds"] - before)
            )
            same = table["vpn"] == found.astype(np.uint64) + np.uint64(churner.first_vpn)
    return {
        "ok": bool(same.all()),
        "reverse_lookup_ms": round(min(reverse) / 1e6, 2),
        "walk_of_all_tables_ms": round(min(walks) / 1e6, 2),
        "pagemap_and_sort_ms": round(min(pagemap) / 1e6, 2),
        "index_bytes_of_1_gib": pages * 8,
    }


CHECKS = {
    "lookups": lookups,
    "stopped": stopped,
    "alternatives": alternatives,
    "lookups_long": functools.partial(lookups, 20),
}

if __name__ == "__main__":
    sys.exit(lab.main(CHECKS))
