# SPDX-License-Identifier: Apache-2.0
"""Torture of the module inside a lab guest; what counts is the kernel's log and memory."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import guest_kmod as lab
from guest_kmod import Result
from guest_kmod_resolve import Churner
from module_events import events, subscribe

from tierd.config.watching import ScanConfig
from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.errors import TargetGoneError, UnavailableError
from tierd.sources.kmod.netlink import Control
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import Event, Kind, PageFlags, ScanFlags
from tierd.sources.scan import ScanSource

WRITES = ScanFlags.DIRTY | ScanFlags.FLUSH
BUSY = {"period_us": 1000, "budget_ppm": 400_000, "hot_scans": 1, "cold_scans": 0}
SAMPLED = {**BUSY, "period_us": 4000, "sampling_interval_us": 2000}
"""Half of the time parts of an address space are armed and wait for their look."""
CHURN_LIMIT_S = 120
LEAK_BYTES = 20 << 10
"""Of vmalloc memory, for each time that the module is loaded; slabs vary by four times as much."""


def exits(times: int = 24) -> Result:
    """Targets are killed at any moment of a scan; their memory and structures come back."""
    with lab.module(), lab.connection() as control, lab.connection() as listener:
        subscribe(listener)
        before = slab("mm_struct")
        for number in range(times):
            pid = os.fork()
            if not pid:
                block = bytearray(32 << 20)
                while True:
                    block[::4096] = b"x" * (len(block) // 4096)
            control.scan_set(**(SAMPLED if number % 2 else {**BUSY, "sampling_interval_us": 0}))
            with contextlib.suppress(TargetGoneError):
                control.target_add(number, pid)
            time.sleep(random.random() / 10)
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        end = time.monotonic() + 20
        while control.targets() and time.monotonic() < end:
            time.sleep(0.1)
        gone = [target for event, target in events(listener) if event == Event.GONE]
        stats = control.scan_get().stats
        after = slab("mm_struct")
        return {
            "ok": stats["targets"] == 0
            and stats["history_bytes"] == 0
            and sorted(set(gone)) == sorted(gone)
            and len(gone) == stats["targets_gone"] > times / 2
            and after - before < times / 2,
            "gone": len(gone),
            "mm_structs": [before, after],
            "scanned_pages": stats["pages"],
        }


def slab(name: str) -> int:
    """Active objects of a slab cache (merged caches have other names: 0)."""
    # KASAN holds freed objects back for a while, and lets them go then.
    with contextlib.suppress(FileNotFoundError):
        Path(f"/sys/kernel/slab/{name}/shrink").write_text("1")
    for line in Path("/proc/slabinfo").read_text().splitlines():
        if line.startswith(f"{name} "):
            return int(line.split()[1])
    return 0


def churn(seconds: float = 6) -> Result:
    """Address spaces change under the scanner: mmap, mprotect, huge pages, fork, exec."""
    kinds = ("map", "huge", "fork", "exec")
    with (
        lab.module(),
        lab.connection() as control,
        lab.ring() as ring,
        contextlib.ExitStack() as stack,
    ):
        churners = [stack.enter_context(Churner(kind, 2000)) for kind in kinds]
        told = {
            name: churned(control, ring, churners, settings, seconds)
            for name, settings in {"whole": BUSY, "sampled": SAMPLED}.items()
        }
    return {"ok": all(each["ok"] for each in told.values()), **told}


def churned(
    control: Control,
    ring: Ring,
    churners: Sequence[Churner],
    settings: Mapping[str, int],
    seconds: float,
) -> Result:
    """What scans with these settings found, and whether all programs' memory stayed right.

    It lasts so many seconds, and on a busy host until enough has happened.
    """
    control.scan_set(**settings)
    before, execs = huge_events(), control.scan_get().stats["targets_exec"]
    for number, churner in enumerate(churners):
        control.target_add(number, churner.pid)
    begin, huge = time.monotonic(), 0
    while True:
        part = time.monotonic() + 1
        while time.monotonic() < part:
            huge += int(np.count_nonzero(lab.drain(ring)["flags"] & PageFlags.PMD))
            time.sleep(0.02)
        seen = {state.target: state.stats for state in control.targets()}
        rounds = [each["rounds"] for each in seen.values()]
        stats, after = control.scan_get().stats, huge_events()
        happened = {name: after[name] - before[name] for name in before}
        enough = (
            min(happened.values()) > 10
            and len(seen) == len(churners)
            and min(rounds) > 3
            and huge > 0
            and stats["targets_exec"] > execs
        )
        if time.monotonic() > begin + (seconds if enough else max(seconds, CHURN_LIMIT_S)):
            break
    alive = [churner.alive for churner in churners]
    for number in seen:
        with contextlib.suppress(TargetGoneError):
            control.target_del(number)
    time.sleep(0.3)
    lab.drain(ring)
    interval_ms = [each["sampling_interval_ns"] / 1e6 for each in seen.values()]
    # A process that runs another program now may not have been looked at since.
    least_ms = sorted(interval_ms)[1] if len(interval_ms) > 1 else 0
    return {
        "ok": all(alive) and enough and least_ms >= settings.get("sampling_interval_us", 0) / 1e3,
        "rounds": rounds,
        "interval_ms": interval_ms,
        "execs": stats["targets_exec"] - execs,
        "huge_records": huge,
        "huge_pages": happened,
        "lock_busy": stats["lock_busy"],
    }


def huge_events() -> dict[str, int]:
    """How often the kernel split and collapsed huge mappings since boot."""
    counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return {name: int(counts[name]) for name in ("thp_split_pmd", "thp_collapse_alloc")}


def dirty() -> Result:
    """Dirty bits go to the pages: nothing written is lost, and writes are told from reads."""
    with lab.module(), lab.connection() as control, lab.ring() as ring:
        told = {}
        for name, sampling_interval_us in (("whole", 0), ("sampled", 50_000)):
            control.scan_set(
                period_us=100_000,
                budget_ppm=400_000,
                hot_scans=1,
                flags=WRITES,
                sampling_interval_us=sampling_interval_us,
            )
            told[name] = writes(control, ring)
        # Dirty bits are told and taken whether the program may write at the time or not: NUMA
        # balancing takes permissions and gives them back.
        told["guarded"] = writes(control, ring, "guarded")
    return {"ok": all(each["ok"] for each in told.values()), **told}


def writes(control: Control, ring: Ring, kind: str = "write") -> Result:
    """What 20 scans tell of writes to every other page."""
    pages, target = 2000, 1
    with Churner(kind, pages) as churner:
        first = churner.first_vpn
        control.target_add(target, churner.pid, [(first, first + pages)])
        rounds = lab.Rounds(ring, target)
        met, written, read = (np.zeros(pages, bool) for _ in range(3))
        count = 0
        while count < 20:
            _, records = rounds.next(60)
            index = (records["page"] & np.uint64((1 << 48) - 1)) - np.uint64(first)
            # A page's first record tells of all that was written before.
            if kind == "guarded" and met.all() and not count:
                os.kill(churner.pid, signal.SIGUSR1)
            count += bool(met.all())
            again = met[index]
            met[index] = True
            marked = records["flags"] & PageFlags.DIRTY != 0
            written[index[marked & again]] = True
            read[index[~marked & again]] = True
        alive = churner.alive
        control.target_del(target)
    time.sleep(0.3)
    lab.drain(ring)
    odd = np.arange(pages) % 2 == 1
    return {
        "ok": bool(
            alive and written[~odd].mean() > 0.95 and not written[odd].any() and read[odd].any()
        ),
        "written_and_told": float(written[~odd].mean()),
        "not_written_but_told": int(np.count_nonzero(written[odd])),
        "alive": alive,
        "read_and_told": float(read[odd].mean()),
    }


def readers() -> Result:
    """Two readers see the same records; a full ring drops and counts, and stays whole."""
    with lab.module(ring_records=65536, max_readers=2), lab.connection() as control:
        first, second = Ring.open(), Ring.open()
        try:
            refused = False
            try:
                Ring.open().close()
            except UnavailableError:
                refused = True
            control.scan_set(**{**BUSY, "period_us": 20_000})
            with Churner("hold", 500) as churner:
                control.target_add(5, churner.pid, [(churner.first_vpn, churner.first_vpn + 500)])
                got: list[list[bytes]] = [[], []]
                end = time.monotonic() + 4
                while time.monotonic() < end:
                    for index, ring in enumerate((first, second)):
                        got[index].append(lab.drain(ring).tobytes())
                control.target_del(5)
                time.sleep(0.3)
                for index, ring in enumerate((first, second)):
                    got[index].append(lab.drain(ring).tobytes())
            same = b"".join(got[0]) == b"".join(got[1]) and len(b"".join(got[0])) > 0
            dropped_none = first.dropped == second.dropped == 0
            # One stops reading; the other goes on.
            control.scan_set(**BUSY)
            with Churner("map", 3000) as churner:
                control.target_add(6, churner.pid)
                end = time.monotonic() + 60
                while first.dropped < 1000 and time.monotonic() < end:
                    lab.drain(second)
                waiting = np.concatenate([view.copy() for view in first.views()])
                unread = len(waiting)
                whole = set(np.unique(waiting["kind"])) <= {Kind.PAGE, Kind.ROUND}
                overflow = first.dropped
                # A reader that writes nonsense harms itself only.
                first._head[0] = 2**63
                time.sleep(0.3)
                first._info["tail"][0] = 12345
                time.sleep(0.3)
            told = control.scan_get().stats["dropped"]
        finally:
            first.close()
            second.close()
        return {
            "ok": refused
            and same
            and dropped_none
            and overflow > 0
            and whole
            and unread == first.capacity
            and told >= overflow,
            "same": same,
            "third_refused": refused,
            "overflow": overflow,
            "unread": unread,
        }


def removal() -> Result:
    """rmmod while scanning, while the device is open, and under a running daemon's source."""
    lab.load()
    control = Control.open()
    control.scan_set(**SAMPLED)
    with Churner("map", 4000) as churner:
        control.target_add(1, churner.pid)
        time.sleep(0.5)
        lab.unload()  # nobody has the device open: scanning does not hold it
        while_scanning = not lab.loaded()
        gone = False
        try:
            control.scan_get()
        except UnavailableError:
            gone = True
        control.close()

        lab.load()
        source = ScanSource(ScanConfig(interval_ns=20_000_000))
        first = churner.first_vpn
        targets = [WatchedTarget(1, churner.pid, (WatchedRange(first, first + 4000),))]
        source.watch(targets)
        time.sleep(1)
        batches = source.poll()
        refused = subprocess.run(["rmmod", "tierd"], capture_output=True, check=False).returncode
        Path("/sys/module/tierd/parameters/closing").write_text("1")
        unavailable = not source.available().ok
        raised = False
        try:
            source.poll()
        except UnavailableError:
            raised = True
        lab.unload()
        again = source.available()
    return {
        "ok": while_scanning
        and gone
        and refused != 0
        and unavailable
        and raised
        and not lab.loaded()
        and not again.ok,
        "rmmod_while_open": refused,
        "batches_before": len(batches),
        "source_says": again.reason,
    }


def reload(cycles: int = 25) -> Result:
    """Loaded and unloaded so many times; memory is where it was."""

    def cycle(number: int) -> None:
        lab.load()
        if number % 10 == 0:
            with lab.connection() as control:
                control.target_add(1, os.getpid())
                with lab.ring() as ring:
                    control.scan_set(**(SAMPLED if number % 20 else BUSY))
                    time.sleep(0.05)
                    lab.drain(ring)
        lab.unload()

    for number in range(5):
        cycle(number)
    before = lab.memory()
    for number in range(cycles):
        cycle(number)
    time.sleep(1)
    after = lab.memory()
    grown = {name: after[name] - before[name] for name in before if name != "MemFree"}
    return {
        "ok": grown["VmallocUsed"] < min(2 << 20, cycles * LEAK_BYTES)
        and grown["SUnreclaim"] < min(8 << 20, 4 * cycles * LEAK_BYTES)
        and "tierd" not in Path("/proc/slabinfo").read_text(),
        "grown_bytes": grown,
    }


CHECKS = {
    "exits": exits,
    "churn": churn,
    "dirty": dirty,
    "readers": readers,
    "removal": removal,
    "reload": reload,
    "exits_often": functools.partial(exits, 40),
    "churn_long": functools.partial(churn, 60),
    "reload_often": functools.partial(reload, 200),
}

if __name__ == "__main__":
    sys.exit(lab.main(CHECKS))
