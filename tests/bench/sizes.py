# SPDX-License-Identifier: Apache-2.0
"""What the service takes as hosts grow: CPU time, memory, and the time of a tick, by watched pages.

The real loop runs on made-up hosts with 1, 4, 16 and 64 million watched pages (4 to 256 GiB), whose
time passes while the loop sleeps (`tests/support/large_host.py`). Each case has a process of its
own. It begins with an empty table, and is measured from the end of the first residency scan on.

    sizes.py [--pages N ...] [--case NAME ...] [--seconds S] [--warm-up S] [--json]

CPU time is that of the service's threads, in percent of one CPU, by modelled seconds. `kernel` is
what a kernel would have used for the service's calls besides, by `KERNEL`; that of moves is apart.
`perf stat` counts the instructions of a case, where the processor does. Memory is what the process
grew by since before the service was made; `peak` is the most at any moment. Ticks are in ms of CPU
time, the kernel's among it; `warm` are those before the first residency scan ended.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from large_host import SECOND, START_NS, LargeHost
from large_host_meter import forget_peak, rss_bytes
from large_host_service import in_place, make_service

from tierd.core.pagekey import PAGE_SIZE
from tierd.engine.loop import Service
from tierd.engine.process import keep_heap, load_all, rest_collector
from tierd.observe.tick_record import TickRecord

MILLION = 1 << 20
PAGES = (1 * MILLION, 4 * MILLION, 16 * MILLION, 64 * MILLION)
CASES: dict[str, dict[str, Any]] = {
    "stationary": {},
    "moving": {"moves_s": 30.0},
    "targets": {"targets": 1024, "churn": 1},
    "huge": {"huge": True},
    "huge-moving": {"huge": True, "moves_s": 30.0},
}
"""A stationary hot set of one process; one of which a 16th is replaced every 30 s; 1,024
processes; folios of 2 MiB."""


class Spans(NamedTuple):
    """Modelled seconds: that are measured, after the first scan, and until then at most."""

    seconds: float
    settle: float
    warm_up: float


class Watch:
    """An observer of ticks that ends the run, and measures from the end of the warm-up on."""

    def __init__(self, host: LargeHost, service: Service, spans: Spans) -> None:
        self._host, self._service, self._spans = host, service, spans
        self._begun_ns = host.now
        self._walked_ns = self._from_ns = 0
        self._tick_ns = 0
        self.ticks: list[int] = []
        self.warm: list[int] = []
        self.before: dict[str, float] = {}
        self.after: dict[str, float] = {}

    def begin(self) -> None:
        """A tick begins."""
        meter = self._host.meter
        self._tick_ns = meter.process_ns() + meter.kernel_ns

    def on_tick(self, tick: TickRecord) -> None:
        """Take it in."""
        try:
            self._take()
        except Exception:
            self._service.work.stopping = True
            raise

    def _take(self) -> None:
        host, meter = self._host, self._host.meter
        spent = meter.process_ns() + meter.kernel_ns - self._tick_ns
        (self.ticks if self._from_ns else self.warm).append(spent)
        if not self._walked_ns and self._service.components.tracking.all_walked:
            self._walked_ns = host.now
        late = host.now - self._begun_ns > self._spans.warm_up * SECOND
        settled = self._walked_ns and host.now - self._walked_ns >= self._spans.settle * SECOND
        if not self._from_ns and (settled or late):
            self._from_ns, self.before = host.now, self._figures()
        if self._from_ns and host.now - self._from_ns >= self._spans.seconds * SECOND:
            self.after = self._figures()
            self._service.work.stopping = True

    def _figures(self) -> dict[str, float]:
        meter, totals = self._host.meter, self._service.totals
        return {
            "time_ns": self._host.now,
            "cpu_ns": meter.process_ns(),
            "kernel_ns": meter.kernel_ns,
            "samples": totals.samples,
            "lost": totals.lost_samples,
            "ticks": totals.ticks,
            **{f"part_{name}": spent for name, spent in totals.part_cpu_ns.items()},
        }


def measure(pages: int, case: str, spans: Spans, profile: str = "") -> dict[str, Any]:
    """Run a case in this process."""
    keep_heap()
    load_all()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        host = LargeHost(Path(folder), pages, **CASES[case])
        rest_collector()
        before, _ = rss_bytes()
        forget_peak()
        with in_place(host):
            service = make_service(host)
            watch = Watch(host, service, spans)
            service.observe(watch)
            service.work.run = _timed(watch, service.work.run)  # type: ignore[method-assign]
            if profile:
                import cProfile

                profiler = cProfile.Profile()
                profiler.runcall(service.run)
                profiler.dump_stats(profile)
            else:
                service.run()
            return _result(host, service, watch, before) | {"case": case}


def _timed(watch: Watch, run: Callable[..., bool]) -> Callable[..., bool]:
    def timed(*args: Any, **named: Any) -> bool:
        watch.begin()
        return run(*args, **named)

    return timed


def _result(host: LargeHost, service: Service, watch: Watch, before: int) -> dict[str, Any]:
    first, last = watch.before, watch.after
    span = (last["time_ns"] - first["time_ns"]) / 1e9
    heat, tracking = service.components.heat.stats(), service.components.tracking
    now, peak = rss_bytes()
    walk_ns = sum(each.walk_cpu_ns for each in tracking._pages.values())
    share = {name: (last[name] - first[name]) / 1e7 / span for name in ("cpu_ns", "kernel_ns")}
    names = [name for name in last if name.startswith("part_")]
    ticks = watch.ticks or [0]
    return {
        "walked": bool(watch._walked_ns),
        "pages": host.pages,
        "watched_gib": host.pages * PAGE_SIZE / (1 << 30),
        "modelled_s": round(span),
        "warm_up_s": round((first["time_ns"] - START_NS) / 1e9),
        "cpu_percent": round(share["cpu_ns"], 3),
        "kernel_percent": round(share["kernel_ns"], 3),
        "parts_percent": {
            name[5:]: round((last[name] - first.get(name, 0)) / 1e7 / span, 3) for name in names
        },
        "samples_per_s": round((last["samples"] - first["samples"]) / span),
        "lost_samples": last["lost"],
        "ticks_per_s": round((last["ticks"] - first["ticks"]) / span, 2),
        "tick_mean_ms": round(sum(ticks) / len(ticks) / 1e6, 2),
        "tick_max_ms": round(max(ticks) / 1e6, 2),
        "warm_tick_mean_ms": round(sum(watch.warm) / max(1, len(watch.warm)) / 1e6, 2),
        "warm_tick_max_ms": round(max(watch.warm) / 1e6, 2),
        "walk_cpu_s": round(walk_ns / 1e9, 2),
        "rss_mib": round((now - before) / 2**20, 1),
        "peak_mib": round((peak - before) / 2**20, 1),
        "rss_percent_of_watched": round(100 * (now - before) / (host.pages * PAGE_SIZE), 4),
        "peak_percent_of_watched": round(100 * (peak - before) / (host.pages * PAGE_SIZE), 4),
        "heat_mib": round(heat.memory_bytes / 2**20, 1),
        "heat_tracked": heat.tracked,
        "heat_capacity": heat.capacity,
        "evicted": heat.evicted,
        "origins_mib": round(service.work.origins.memory_bytes / 2**20, 1),
        "moved_gib": round(service.totals.moved_bytes / 2**30, 2),
    }


def main() -> int:
    """Always 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--pages", type=int, nargs="*", default=PAGES)
    parser.add_argument("--case", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--settle", type=float, default=120)
    parser.add_argument("--warm-up", type=float, default=7200)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--profile", default="")
    args = parser.parse_args()
    if args.one:
        logging.basicConfig(level=logging.WARNING)
        spans = Spans(args.seconds, args.settle, args.warm_up)
        result = measure(args.pages[0], args.case[0], spans, args.profile)
        print(json.dumps(result))
        return 0
    results = []
    for case in args.case:
        for pages in args.pages:
            begun = time.monotonic()
            command = [sys.executable, __file__, "--one", "--case", case, "--pages", str(pages)]
            command += ["--seconds", str(args.seconds), "--settle", str(args.settle)]
            command += ["--warm-up", str(args.warm_up)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            result = json.loads(done.stdout.splitlines()[-1])
            result["wall_s"] = round(time.monotonic() - begun)
            results.append(result)
            if not args.json:
                print("  ".join(f"{k}={v}" for k, v in result.items()), flush=True)
    if args.json:
        print(json.dumps({"bench": "sizes", "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
