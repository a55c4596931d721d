# SPDX-License-Identifier: Apache-2.0
"""Runs in the guest: what module and service take as memory grows (docs/operate/scale.md).

    python tests/vm/guest_kmod_scale.py MIB

A process holds so much memory in 4 KiB pages and uses a sixteenth of it. What is counted is held
against the formula of the page; CPU time is printed, for the emulated processor has its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import guest_kmod as lab
import guest_kmod_service as services

from tierd.config.model import Config, heat_bytes

TOUCHER = """
import mmap, sys, time
import numpy as np
size = int(sys.argv[1]) << 20
held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held.madvise(mmap.MADV_NOHUGEPAGE)
view = np.frombuffer(held, np.uint8)[:: mmap.PAGESIZE]
view[:] = 1
print(view.ctypes.data >> 12, flush=True)
used = view[: len(view) // 16]
while True:
    used += 1
    time.sleep(0.05)
"""
TABLE_PAGES = 512
HISTORY_BYTES = 656
"""Of a page table (docs/reference/kmod.md)."""
BASE_BYTES = 128 << 20
"""The service with nothing to watch, without the agents that `tierd run` starts."""
SCANS = 10
SETTLED_S, WINDOW_S = 30, 60
CONFIG = Path("/tmp/scale.toml")
SETTINGS = (
    '[targets]\nmatch = { cgroup = "/tiered" }\nrefresh_interval = "500ms"\n'
    '[policy]\nbreak_even_time = "1min"\n'
)
"""The defaults, but for who is watched, and that some uses a second pay for a move."""


def alone(pid: int, first: int, pages: int) -> dict[str, Any]:
    """The module by itself: what a scan of all pages takes, and its histories."""
    with lab.module(), lab.connection() as control:
        control.scan_set(period_us=1000, budget_ppm=1_000_000)
        control.target_add(1, pid, [(first, first + pages)])
        thread = lab.scanner_pid()
        while not (first_round := control.targets()[0].stats["rounds"]):
            time.sleep(0.02)
        before = lab.cpu_ns(thread)
        while (scans := control.targets()[0].stats["rounds"] - first_round) < SCANS:
            time.sleep(0.02)
        spent = (lab.cpu_ns(thread) - before) / scans
        stats = control.targets()[0].stats
        history = control.scan_get().stats["history_bytes"]
    # The memory may begin and end within a page table.
    tables = -(-(first + pages) // TABLE_PAGES) - first // TABLE_PAGES
    return {
        "ok": stats["round_pages"] == pages and history == tables * HISTORY_BYTES,
        "round_pages": stats["round_pages"],
        "history_bytes": history,
        "history_of_a_tib": history * (1 << 28) // pages,
        "scan_ns_a_page": round(spent / pages, 2),
    }


def service(pid: int) -> dict[str, Any]:
    """The service with its defaults beside it: memory and CPU of each part of it."""
    CONFIG.write_text(SETTINGS)
    services.CGROUP.mkdir(exist_ok=True)
    with lab.module(), lab.tlbtick(), services.running(["scan"], config=CONFIG) as daemon:
        (services.CGROUP / "cgroup.procs").write_text(str(pid))
        time.sleep(SETTLED_S)
        thread = lab.scanner_pid()
        scanner, own, ticks = lab.cpu_ns(thread), cpu_s(daemon.pid), daemon.ticks
        begun = time.monotonic()
        time.sleep(WINDOW_S)
        seconds = time.monotonic() - begun
        scanner, own = (lab.cpu_ns(thread) - scanner) / 1e9, cpu_s(daemon.pid) - own
        ticks = daemon.ticks - ticks
        memory = pss_bytes(daemon.pid)
        status = daemon.stop()
    return {
        "ok": status == 0 and daemon.samples > 0 and memory <= BASE_BYTES + heat_bytes(Config()),
        "ticks": ticks,
        "samples": daemon.totals["samples"],
        "pss_bytes": memory,
        "heat_bytes": heat_bytes(Config()),
        "part_cpu_seconds": daemon.totals["part_cpu_seconds"],
        "scanner_share": round(scanner / seconds, 4),
        "service_share": round(own / seconds, 4),
    }


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its children that live."""
    total = 0.0
    for one in (pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def pss_bytes(pid: int) -> int:
    """Memory of a process and its children, what they share with others in part."""
    total = 0
    for one in (pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
        lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


def scale(mib: int) -> lab.Result:
    """Both, of one process."""
    with subprocess.Popen(
        [sys.executable, "-c", TOUCHER, str(mib)], stdout=subprocess.PIPE, text=True
    ) as work:
        assert work.stdout is not None
        pages = mib << 8
        try:
            first = int(work.stdout.readline())
            module, daemon = alone(work.pid, first, pages), service(work.pid)
        finally:
            work.kill()
    return {"ok": module["ok"] and daemon["ok"], "pages": pages, "module": module, "daemon": daemon}


if __name__ == "__main__":
    mib = int(sys.argv.pop())
    sys.exit(lab.main({"scale": lambda: scale(mib)}))
