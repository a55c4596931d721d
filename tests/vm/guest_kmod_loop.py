# SPDX-License-Identifier: Apache-2.0
"""The demo's loop in a lab guest with a chosen source; prints one JSON line.

usage: guest_kmod_loop.py {scan,damon,both} [--seconds S] [--unload-at S] [--config FILE]

Scattered hot set, all of it first on the slow node. With `both` the order is scan, damon,
and --unload-at asks the module to go while the service runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab

FAST, SLOW = 0, 1
CGROUP = Path("/sys/fs/cgroup/tiered")


class Selected(logging.Handler):
    """Passes on which source was selected."""

    def emit(self, record: logging.LogRecord) -> None:
        words = dict(w.split("=", 1) for w in record.getMessage().split() if "=" in w)
        if words.get("event") == "source_selected":
            print("selected", words["source"], flush=True)


def service(config: str, names: list[str], cpu: float | None) -> None:
    """Run the service with these sources; the child's side."""
    from tierd.config import loads
    from tierd.service import build as rooms

    settings = loads(Path(config).read_text())
    scan = settings.sources.scan
    scan = replace(scan, cpu_share=scan.cpu_share if cpu is None else cpu)
    sources = replace(settings.sources, order=tuple(names), scan=scan)
    made, _ = rooms.build(replace(settings, sources=sources))
    logging.getLogger("tierd.service.selection").addHandler(Selected())
    logging.getLogger("tierd").setLevel(logging.INFO)
    print("ready", scan.cpu_share, flush=True)
    code = made.run()
    print(json.dumps({"totals": made.totals.as_json()}), flush=True)
    sys.exit(code)


def start_service(args: argparse.Namespace, names: list[str]) -> subprocess.Popen[str]:
    """Start it and wait until it runs; it finds its target when that is in the cgroup."""
    command = [sys.executable, __file__, "service", "--config", args.config]
    command += ["--cpu", str(args.cpu)] if args.cpu is not None else []
    command += ["--names", *names]
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    said = daemon.stdout.readline().split()
    if said[:1] != ["ready"]:
        raise RuntimeError(f"the service ended with {daemon.wait()}")
    args.cpu = float(said[1])
    return daemon


def workload(seconds: float) -> subprocess.Popen[str]:
    """The demo's workload, scattered."""
    command = [str(lab.WORKLOADS / "hotset"), "--seconds", str(seconds), "--interval", "1"]
    command += [
        "--size",
        "1200M",
        "--scattered",
        "--fast-node",
        str(FAST),
        "--slow-node",
        str(SLOW),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def main() -> int:
    """Run the loop, judge nothing but checksum and exit: the figures are the caller's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source", choices=("scan", "damon", "both", "service"))
    parser.add_argument("--names", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--unload-at", type=float, default=0)
    parser.add_argument("--cpu", type=float, help="the scanner's budget (the configured one)")
    parser.add_argument("--config", default=str(lab.ROOT / "tests/demo/tierd.toml"))
    args = parser.parse_args()
    if args.source == "service":
        service(args.config, args.names, args.cpu)
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    names = {"scan": ["scan"], "damon": ["damon"], "both": ["scan", "damon"]}[args.source]
    result: dict[str, Any] = {"source": args.source, "tlbtick_us": lab.TLB_PERIOD_US}
    uses_module = "scan" in names
    CGROUP.mkdir(exist_ok=True)
    with (
        lab.module() if uses_module else contextlib.nullcontext(),
        lab.tlbtick(),
        start_service(args, names) as daemon,
        workload(args.seconds) as work,
    ):
        result |= watch(work, daemon, args, uses_module)
    result["dmesg"] = lab.splats()[:5]
    print(json.dumps(result), flush=True)
    return 0 if result["checksum_ok"] and not result["dmesg"] else 1


def watch(
    work: subprocess.Popen[str],
    daemon: subprocess.Popen[str],
    args: argparse.Namespace,
    uses_module: bool,
) -> dict[str, Any]:
    """Hand the workload to the service when it runs, and collect the figures."""
    result: dict[str, Any] = {"samples": [], "scanner_budget": args.cpu}
    said: list[str] = []
    started = spent = 0
    pid = lab.scanner_pid() if uses_module else 0
    unloaded = False
    assert daemon.stdout is not None
    threading.Thread(target=said.extend, args=[daemon.stdout], daemon=True).start()
    assert work.stdout is not None
    for line in work.stdout:
        report = json.loads(line)
        if report["event"] == "start":
            result["hot_pages"] = report["hot_pages"]
            (CGROUP / "cgroup.procs").write_text(str(work.pid))
            started = time.monotonic_ns()
            spent = lab.cpu_ns(pid) if pid else 0
        seconds = (time.monotonic_ns() - started) / 1e9
        if report["event"] == "sample":
            result["samples"].append((round(seconds, 1), report["fast_share"]))
            if args.unload_at and not unloaded and seconds > args.unload_at:
                Path("/sys/module/tierd/parameters/closing").write_text("1")
                time.sleep(3)
                lab.unload()
                unloaded = True
        if report["event"] == "end":
            if pid and not unloaded:
                result["scanner_cpu_share"] = round((lab.cpu_ns(pid) - spent) / 1e9 / seconds, 4)
            usage = Path(f"/proc/{daemon.pid}/schedstat").read_text().split()
            result["daemon_cpu_share"] = round(int(usage[0]) / 1e9 / seconds, 3)
            result["fast_share_after"] = report["fast_share"]
            daemon.send_signal(signal.SIGTERM)
            result["checksum_ok"] = report["checksum_ok"]
    result["exit"] = daemon.wait(timeout=60)
    time.sleep(0.5)
    totals = next((json.loads(x)["totals"] for x in said if x.startswith('{"totals"')), {})
    moved = ("promoted_pages", "demoted_pages")
    result |= {name: totals.get(name) for name in (*moved, "ticks", "lost_samples")}
    result["moves"] = sum(totals.get(name, 0) for name in moved)
    result["selected"] = [x.split()[1] for x in said if x.startswith("selected ")]
    result["unloaded"] = unloaded
    result["damon"] = Path("/sys/kernel/mm/damon/admin").is_dir()
    for level in (0.5, 0.9):
        times = [t for t, share in result["samples"] if share >= level]
        result[f"seconds_to_{level}"] = times[0] if times else None
    result["samples"] = result["samples"][::5]
    return result


if __name__ == "__main__":
    sys.exit(main())
