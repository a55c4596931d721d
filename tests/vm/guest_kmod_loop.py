# SPDX-License-Identifier: Apache-2.0
"""The demo's loop in a lab guest with a chosen source; prints one JSON line.

usage: guest_kmod_loop.py {scan,idlepage,damon} [--seconds S] [--until SHARE] [--size SIZE]
                          [--cpu SHARE]

Scattered hot set, all of it first on the slow node. With --until the workload ends when so
much has been served by DRAM for a while, so that a starved guest may take its time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
import guest_kmod_service as services
from guest_kmod_service import Daemon

FAST, SLOW = 0, 1
HELD_REPORTS = 15
"""Reports in a row, a second each, for which --until must hold."""


@contextlib.contextmanager
def workload(seconds: float, size: str) -> Iterator[subprocess.Popen[str]]:
    """The demo's workload, scattered; it ends with the block."""
    command = [str(lab.WORKLOADS / "hotset"), "--seconds", str(seconds), "--interval", "1"]
    command += [
        "--size",
        size,
        "--scattered",
        "--fast-node",
        str(FAST),
        "--slow-node",
        str(SLOW),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def main() -> int:
    """Run the loop, judge nothing but checksum and exit: the figures are the caller's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source", choices=("scan", "idlepage", "damon"))
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--until", type=float, default=2.0)
    parser.add_argument("--size", default="1200M")
    parser.add_argument("--cpu", type=float, help="the scanner's budget (the configured one)")
    parser.add_argument("--config", default=str(services.DEMO_CONFIG))
    args = parser.parse_args()
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    services.CGROUP.mkdir(exist_ok=True)
    uses_module = args.source == "scan"
    with (
        lab.module() if uses_module else contextlib.nullcontext(),
        services.running([args.source], config=args.config, cpu=args.cpu) as daemon,
        lab.tlbtick(),
        workload(args.seconds, args.size) as work,
    ):
        result = watch(work, daemon, args.source, args.until)
    result |= {"source": args.source, "tlbtick_us": lab.TLB_PERIOD_US, "dmesg": lab.splats()[:5]}
    print(json.dumps(result), flush=True)
    return 0 if result["checksum_ok"] and not result["dmesg"] and result["exit"] == 0 else 1


def scanner_of(daemon: Daemon, source: str) -> int:
    """The thread that scans, 0 if none does: the module's, or one of the service's."""
    if source == "scan":
        return lab.scanner_pid()
    tasks = Path(f"/proc/{daemon.pid}/task").glob("*/comm")
    found = [task for task in tasks if task.read_text().strip() == "tierd-idle"]
    return int(found[0].parent.name) if found else 0


def watch(work: subprocess.Popen[str], daemon: Daemon, source: str, until: float) -> dict[str, Any]:
    """Hand the workload to the service when it runs, and collect the figures."""
    result: dict[str, Any] = {"samples": []}
    started = spent = scanner = 0
    assert work.stdout is not None
    for line in work.stdout:
        report = json.loads(line)
        if report["event"] == "start":
            result["hot_pages"] = report["hot_pages"]
            (services.CGROUP / "cgroup.procs").write_text(str(work.pid))
            started = time.monotonic_ns()
        if not scanner and report["event"] == "sample":
            scanner = scanner_of(daemon, source)
            spent = lab.cpu_ns(scanner) if scanner else 0
        seconds = (time.monotonic_ns() - started) / 1e9
        if report["event"] == "sample":
            result["samples"].append((round(seconds, 1), report["fast_share"]))
            last = [share for _, share in result["samples"][-HELD_REPORTS:]]
            if len(last) == HELD_REPORTS and min(last) >= until:
                work.send_signal(signal.SIGINT)
        if report["event"] == "end":
            if scanner:
                used = (lab.cpu_ns(scanner) - spent) / 1e9 / seconds
                result |= {"scanner_cpu_share": round(used, 4), "scanner_budget": daemon.scan_share}
            result["daemon_cpu_share"] = round(lab.cpu_ns(daemon.pid) / 1e9 / seconds, 3)
            result["fast_share_after"] = report["fast_share"]
            result["checksum_ok"] = report["checksum_ok"]
            result["exit"] = daemon.stop()
    moved = ("promoted_pages", "demoted_pages")
    result |= {name: daemon.totals.get(name) for name in (*moved, "ticks", "lost_samples")}
    result["moves"] = sum(daemon.totals.get(name, 0) for name in moved)
    result["selected"] = daemon.selected
    for level in (0.5, 0.9):
        times = [t for t, share in result["samples"] if share >= level]
        result[f"seconds_to_{level}"] = times[0] if times else None
    result["samples"] = result["samples"][::5]
    return result


if __name__ == "__main__":
    sys.exit(main())
