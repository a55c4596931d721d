# SPDX-License-Identifier: Apache-2.0
"""Peer-GPU harvesting on the simulated 4 x V100: the paper's cases, sweep and ablation.

    python tests/bench/gpu_huvm.py [--scale N] [--out FILE] [--only cases,ablation,sweep]
                                  [--bounded] [--launched] [--seed N]

All figures are simulated: virtual time on the stand-in driver (tests/fakegpu), with the
real client library and the real harvester core. Prints a table, and JSON with --out.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(TOP / part) for part in ("daemon", "tests/fakegpu", "tests/workloads/gpu", "tests/bench")
]

import gpu_cases  # noqa: E402
from simulate import HOST_ONLY, Job, Outcome, Simulation  # noqa: E402

from tierd_gpu.settings import HarvestSettings, Techniques  # noqa: E402

PAPER_BEST = 2.71
SYSTEMS: dict[str, Techniques | None] = {
    "driver": None,
    "host only": HOST_ONLY,
    "tierd, no peers": Techniques(peers=False),
    "tierd": Techniques(),
}
SWITCHES = ("peers", "prefetch", "pre_evict", "in_place", "reuse")


def run(
    jobs: list[Job],
    techniques: Techniques | None,
    scale: int,
    settings: HarvestSettings | None = None,
) -> Outcome:
    """One run."""
    base = settings or HarvestSettings()
    base = replace(
        base,
        floor_bytes=base.floor_bytes // scale,
        refill_bytes=base.refill_bytes // scale,
    )
    return Simulation(jobs, techniques, settings=base, gpu_bytes=gpu_cases.GPU_BYTES // scale).run()


def speedup(jobs: list[Job], slow: Outcome, fast: Outcome) -> float:
    """Geometric mean over borrowers of how much sooner they are done."""
    product, count = 1.0, 0
    for job in jobs:
        if job.chunks:
            product *= slow.time_ns[job.name] / fast.time_ns[job.name]
            count += 1
    return float(product ** (1 / count))


def lenders(jobs: list[Job], scale: int) -> dict[str, float]:
    """What a lender's lap takes alone, with a borrower's place in the run left empty."""
    from events import ACCESS, make

    alone = [job for job in jobs if not job.chunks]
    idle = make([(0, 1, ACCESS, 0, 10_000_000)] * 1000)
    return run([Job("none", 0, idle, 1), *alone], None, scale).time_ns


def cases(scale: int, report: dict[str, object], _: HarvestSettings) -> None:
    """The four cases under every system; tierd with `durable` and without ("bounded")."""
    rows: dict[str, object] = {}
    print("case  mode     vs driver  vs host only  vs no peers  slowest lender")
    for number in (1, 2, 3, 4):
        jobs = gpu_cases.case(number, scale)
        done = {name: run(jobs, techniques, scale) for name, techniques in SYSTEMS.items()}
        alone = lenders(jobs, scale)
        bounded = run(jobs, Techniques(), scale, HarvestSettings(durable=False))
        for mode, ours in (("durable", done["tierd"]), ("bounded", bounded)):
            rows[f"{number} {mode}"] = row = compare(jobs, done, ours, alone)
            row["seconds"] = {
                job.name: {n: round(o.time_ns[job.name] / 1e9, 4) for n, o in done.items()}
                | {mode: round(ours.time_ns[job.name] / 1e9, 4)}
                for job in jobs
                if job.chunks
            }
            ratio = row["speedup"]
            print(
                f"{number:4}  {mode:7}  {ratio['driver']:9.2f}  {ratio['host only']:12.2f}  "
                f"{ratio['tierd, no peers']:11.2f}  "
                f"{max(row['lender_slowdown'].values()) * 100:+.2f} % refused {ours.refused} "
                f"evicted of others {row['driver_evicted_of_others']} "
                f"revoke {row['worst_revoke_ms']:.1f} ms",
                flush=True,
            )
    print(f"the paper's best case: {PAPER_BEST}")
    report["cases"] = rows


def compare(
    jobs: list[Job], done: dict[str, Outcome], ours: Outcome, alone: dict[str, float]
) -> dict[str, Any]:
    """One run of tierd beside the other systems, and what it did to lenders."""
    slower = {
        job.name: ours.time_ns[job.name] / alone[job.name] - 1
        for job in jobs
        if not job.chunks and job.name in ours.time_ns
    }
    return {
        "speedup": {name: speedup(jobs, done[name], ours) for name in SYSTEMS if name != "tierd"},
        "lender_slowdown": slower,
        "refused": ours.refused,
        "errors": ours.errors,
        "worst_revoke_ms": max(ours.revoke_ns, default=0) / 1e6,
        "moved_chunks": ours.moved_chunks,
        "counts": ours.counts,
        "driver_evicted_of_others": sum(s["evicted_of_others"] for s in ours.stats.values()),
    }


def ablation(scale: int, report: dict[str, object], base: HarvestSettings) -> None:
    """Each technique switched off, one at a time: time relative to all on."""
    rows: dict[str, dict[str, float]] = {}
    for number in (1, 2, 3, 4):
        jobs = gpu_cases.case(number, scale)
        full = run(jobs, Techniques(), scale, base)
        for name in SWITCHES:
            off = run(jobs, replace(Techniques(), **{name: False}), scale, base)
            rows.setdefault(name, {})[str(number)] = speedup(jobs, off, full)
    for name, row in rows.items():
        print(f"without {name:11}", *(f"{row[str(n)]:6.2f}" for n in (1, 2, 3, 4)), flush=True)
    report["ablation"] = rows


def sweep(scale: int, report: dict[str, object], base: HarvestSettings) -> None:
    """Spare memory of neighbours from 5 to 60 %, prefetch from 2 to 32 MiB."""
    spare: dict[str, float] = {}
    jobs = gpu_cases.spare(0.5, scale)
    driver = run(jobs, None, scale)
    prior = run(jobs, HOST_ONLY, scale)
    for percent in (5, 10, 20, 30, 40, 50, 60):
        jobs = gpu_cases.spare(percent / 100, scale)
        ours = run(jobs, Techniques(), scale, base)
        spare[str(percent)] = speedup(jobs, driver, ours)
        print(f"spare {percent:2} %   vs driver {spare[str(percent)]:.2f}  "
              f"vs host only {speedup(jobs, prior, ours):.2f}", flush=True)  # fmt: skip
    ahead: dict[str, float] = {}
    for chunks in (1, 2, 4, 8, 16):
        ours = run(jobs, Techniques(), scale, replace(base, prefetch_chunks=chunks))
        ahead[str(2 * chunks)] = speedup(jobs, driver, ours)
        print(f"prefetch {2 * chunks:2} MiB  vs driver {ahead[str(2 * chunks)]:.2f}", flush=True)
    report["spare"], report["prefetch_mib"] = spare, ahead


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=int, default=1, help="divide every size by N")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--only", default="cases,ablation,sweep")
    parser.add_argument(
        "--bounded", action="store_true", help="ablation and sweep without `durable`"
    )
    parser.add_argument(
        "--launched", action="store_true",
        help="borrowers are unmodified programs: uses are what their launches tell",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=gpu_cases.SEED, help="of the graph")
    args = parser.parse_args()
    gpu_cases.LAUNCHED, gpu_cases.SEED = args.launched, args.seed
    base = HarvestSettings(durable=not args.bounded)
    report: dict[str, object] = {"simulated": True, "scale": args.scale, "paper_best": PAPER_BEST}
    report["durable"] = base.durable
    print(f"simulated 4 x V100 (stand-in driver, virtual time), sizes divided by {args.scale}")
    for part in (cases, ablation, sweep):
        if part.__name__ in args.only.split(","):
            part(args.scale, report, base)
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
