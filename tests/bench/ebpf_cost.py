# SPDX-License-Identifier: Apache-2.0
"""What the eBPF sources cost: in the kernel, on the way to heat, and in memory.

    python3 tests/bench/ebpf_cost.py TOUCH [--way bcc|prebuilt] [--pages N]

Run as root; TOUCH is built from tests/workloads/touch.c. Prints one JSON line each:

kernel   nanoseconds a run of the programs as the kernel times them (BPF_ENABLE_STATS; its
         two clock reads are in all figures, so the empty program is what to compare with)
         and of a whole page fault without an event, with the empty program, with ours
user     samples a second on one core from the ring, or from the table, into heat
moves    nanoseconds a run of the programs that watch migrations, as the kernel times them
         while it compacts memory; microseconds of CPU that one look at the counts takes
         (the service looks once a second); needs tracefs
memory   resident MiB of a process with the service's modules: before any source, with the
         source loaded by the helper, and with bcc inside the process itself
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vm"))

import numpy as np
from guest_ebpf_ground import Touch

from tierd.core.access import AccessBatch, WatchedRange, WatchedTarget
from tierd.sources.ebpf import host, syscalls
from tierd.sources.ebpf.loader import Loading, Program
from tierd.sources.ebpf.perf import decode, sample_dtype
from tierd.sources.ebpf.sampler import Sampler
from tierd.sources.ebpf.table import EventPlan, Mode, SamplerSettings, Watched
from tierd.sources.faults import SAMPLE, fault_event

ROUNDS = 5


def show(name: str, **figures: Any) -> None:
    """One line."""
    print(json.dumps({"bench": name} | figures), flush=True)


def kernel(program: str, way: str, pages: int) -> None:
    """Time the programs, and whole faults with one after the other in turn."""
    touch = Touch(program, pages, 1, 0)
    empty = Loading(Program("empty", (("on_nothing", "perf_event"),)), [way]).wait()
    settings = SamplerSettings(
        table_bytes=16 << 20, ring_bytes=1024 * host.possible_cpus() * 4096, ways=(way,)
    )
    plan = EventPlan(fault_event(), "on_fault", None)
    watched = Watched([touch.target])
    only = empty.programs["on_nothing"]

    def with_sampler(mode: int, targets: dict[int, int]) -> tuple[float, float]:
        sampler.follow_cpus()
        sampler.set_targets(targets)
        sampler.set_mode(mode)
        sampler.drain(watched)
        whole = fault_ns(touch)
        sampler.drain(watched)
        with os.fdopen(syscalls.enable_run_statistics(), "rb"):
            return whole, run_ns(sampler.program_runs, touch)

    whole: dict[str, list[float]] = {}
    runs: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        whole.setdefault("none", []).append(fault_ns(touch))
        event = syscalls.perf_event_open(fault_event().encode(), -1, 0)
        syscalls.event_attach(event, only)
        whole.setdefault("empty", []).append(fault_ns(touch))
        with os.fdopen(syscalls.enable_run_statistics(), "rb"):
            runs.setdefault("empty", []).append(run_ns(lambda: syscalls.program_runs(only), touch))
        os.close(event)
        sampler = Sampler("faults", [plan], settings)
        sampler.start()
        sampler.ready(wait=True)
        for name, mode, targets in (
            ("foreign", Mode.COUNT, {}),
            ("table", Mode.COUNT, watched.targets),
            ("raw", Mode.PASS, watched.targets),
        ):
            fault, run = with_sampler(mode, targets)
            whole.setdefault(name, []).append(fault)
            runs.setdefault(name, []).append(run)
        sampler.close()
    touch.close()
    # The same pages again and again: the table is in the CPU's caches.
    touch = Touch(program, 1000, 200, 0)
    watched = Watched([touch.target])
    sampler = Sampler("faults", [plan], settings)
    sampler.start()
    sampler.ready(wait=True)
    runs["table_hot"] = [with_sampler(Mode.COUNT, watched.targets)[1]]
    sampler.close()
    touch.close()
    empty.close()
    show(
        "kernel",
        way=way,
        pages=pages,
        run_ns={name: round(min(values)) for name, values in runs.items()},
        fault_ns={name: round(min(values)) for name, values in whole.items()},
    )


def fault_ns(touch: Touch) -> float:
    """Nanoseconds a fault, the lesser of two rounds."""
    found = []
    for _ in range(2):
        begin = time.perf_counter_ns()
        touch.say("go")
        found.append((time.perf_counter_ns() - begin) / touch.faults())
    return min(found)


def run_ns(runs: Any, touch: Touch) -> float:
    """Nanoseconds a run, the median of a few."""
    found = []
    for _ in range(3):
        before = runs()
        touch.say("go")
        after = runs()
        found.append((after[0] - before[0]) / max(1, after[1] - before[1]))
    return float(statistics.median(found))


def user(way: str) -> None:
    """From ring bytes, and from a table, to heat."""
    from tierd.hotness.table import HeatTable

    size, pages = 400_000, 50_000
    rng = np.random.default_rng(1)
    data = np.zeros(size, sample_dtype(SAMPLE))
    data["type"], data["size"] = 9, data.dtype.itemsize
    data["pid"] = 77
    data["addr"] = rng.integers(0, pages, size, dtype=np.uint64) << np.uint64(12)
    raw = data.tobytes()
    watched = Watched([WatchedTarget(3, 77, (WatchedRange(0, pages),))])

    def through(kind: str) -> float:
        heat = HeatTable(capacity_pages=1 << 18, half_life_s=5.0)
        begin = time.process_time_ns()
        if kind == "raw":
            samples = decode(raw, data.dtype).samples
            samples = samples[watched.known(samples["pid"])]
            key = watched.keys(samples["pid"], samples["addr"])
            key = key[watched.inside(key)]
            count = np.ones(len(key), np.float32)
        else:
            slots = table[table["count"] > 0]
            key = np.ascontiguousarray(slots["key"])
            key = key[watched.inside(key)]
            count = slots["count"].astype(np.float32)
        heat.ingest(AccessBatch(key, count, 1, "bench"))
        return size / ((time.process_time_ns() - begin) / 1e9)

    from tierd.sources.ebpf.table import SLOT

    table = np.zeros(131072, SLOT)
    seen, counts = np.unique(data["addr"] >> np.uint64(12), return_counts=True)
    table["key"][: len(seen)] = seen | np.uint64(3 << 48)
    table["count"][: len(seen)] = counts
    rng.shuffle(table)
    show(
        "user",
        way=way,
        samples=size,
        pages=pages,
        raw_samples_per_s=round(max(through("raw") for _ in range(ROUNDS))),
        table_samples_per_s=round(max(through("table") for _ in range(ROUNDS))),
    )


def moves(way: str) -> None:
    """Let the kernel compact memory under the watch."""
    from tierd.sources.migrations import MigrationWatch

    watch = MigrationWatch(SamplerSettings(table_bytes=1 << 20, ways=(way,)))
    state = watch.available()
    if not state.ok:
        show("moves", way=way, error=state.reason)
        return
    watch.start()
    watch.ready(wait=True)
    assert watch._sampler is not None
    watch.poll()
    pages, looks, run = 0, [], (0, 0)
    with os.fdopen(syscalls.enable_run_statistics(), "rb"):
        before = watch._sampler.program_runs()
        for _ in range(ROUNDS):
            Path("/proc/sys/vm/compact_memory").write_text("1")
            begin = time.thread_time_ns()
            report = watch.poll()
            looks.append(time.thread_time_ns() - begin)
            assert report is not None
            pages += sum(moved.succeeded for moved in report.by_reason.values())
        after = watch._sampler.program_runs()
        run = after[0] - before[0], after[1] - before[1]
    watch.close()
    show(
        "moves",
        way=way,
        pages=pages,
        runs=run[1],
        run_ns=round(run[0] / max(1, run[1])),
        look_us=round(statistics.median(looks) / 1e3),
    )


def resident() -> float:
    """Resident MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


def memory_of(kind: str, way: str) -> None:
    """In a fresh process: load the service's modules, then the source one way."""
    import tierd.config.whole
    import tierd.engine.build  # noqa: F401 - what a running service has in memory

    figures: dict[str, Any] = {"modules_mib": resident()}
    if kind == "inside":
        from tierd.sources.ebpf import files, helper

        headers = files.find_headers()
        size = 2 * host.possible_cpus() * 64
        helper.load_with_bcc(
            {
                "source": str(files.find_source("faults")),
                "functions": [["on_fault", "perf_event"]],
                "maps": {"sets": size},
                "defines": {"TIERD_SETS": size, "TIERD_CPUS": host.possible_cpus()},
                "environment": headers.environment if headers else {},
                "flags": list(headers.flags) if headers else [],
            }
        )
    elif kind == "helper":
        from tierd.sources.faults import FaultSource

        source = FaultSource(sampler=SamplerSettings(ways=(way,)))
        own = WatchedTarget(1, os.getpid(), (WatchedRange(0, 1 << 35),))
        source.watch([own])
        source.ready(wait=True)
        source.watch([own])
        for _ in range(100):
            source.poll()
        assert source._sampler is not None and source._sampler.loaded is not None
        figures["helper_peak_mib"] = source._sampler.loaded.peak_rss_kib >> 10
    figures["resident_mib"] = resident()
    show("memory", kind=kind, way=way, **figures)


def main() -> int:
    """Run everything, the memory figures in processes of their own."""
    parser = argparse.ArgumentParser(description="costs of the eBPF sources")
    parser.add_argument("touch")
    parser.add_argument("--way", default="prebuilt")
    parser.add_argument("--pages", type=int, default=50_000)
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory:
        memory_of(args.memory, args.way)
        return 0
    kernel(args.touch, args.way, args.pages)
    user(args.way)
    moves(args.way)
    for kind in ("none", "helper", "inside"):
        python = sys.executable
        command = [python, __file__, args.touch, "--way", args.way, "--memory", kind]
        result = subprocess.run(command, check=False)
        if result.returncode:
            show("memory", kind=kind, error=f"status {result.returncode}")
    return 0


if __name__ == "__main__":
    assert struct.calcsize("P") == 8
    sys.exit(main())
