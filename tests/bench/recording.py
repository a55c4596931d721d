# SPDX-License-Identifier: Apache-2.0
"""What recording costs: bytes a sample, CPU a tick, and how fast replays and reports are.

A made-up stream on this host: two processes of which a thirtieth is hot, `--samples`
records a tick each, a walk over 32,768 pages a tick, half a second between ticks (in
made-up time). Prints for three rates: bytes a tick and a sample, CPU of the loop's thread
and of the writer's a tick, ticks a second of replay and report.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from madeup_host import two_tiers

from tierd.config.whole import loads
from tierd.core.access import AccessBatch
from tierd.core.migration import MigrationResult
from tierd.core.pagekey import make_keys
from tierd.core.tiermap import NodeUsage
from tierd.engine.build import make_policy
from tierd.observe.recording.reader import Recording
from tierd.observe.recording.recorder import Recorder
from tierd.observe.recording.records import RecordingHeat
from tierd.observe.tick_record import TickRecord
from tierd.policy.inputs import Inputs
from tierd.policy.limits import Budget
from tierd.replay.policy import Replay
from tierd.report import page
from tierd.report.analysis import analyse

PAGES = 400_000
WALK = 32_768


def made_up_recording(path: Path, samples: int, ticks: int) -> dict[str, Any]:
    """Record; CPU seconds of the loop's thread spent on recording and of the writer."""
    random, config = np.random.default_rng(1), loads("")
    recorder = Recorder(path, 1 << 34)
    spent = 0.0

    def tap(op: Any) -> None:
        nonlocal spent
        begun = time.thread_time()
        recorder.take(op)
        spent += time.thread_time() - begun

    heat = RecordingHeat(tap, capacity_pages=2_000_000, half_life_s=5.0)
    tiers, policy = two_tiers((PAGES // 2, PAGES * 2)), make_policy(config)
    usage = {n: NodeUsage(s, s // 20, 1 << 20) for n, s in ((0, PAGES * 2048), (1, PAGES * 8192))}
    last: MigrationResult | None = None
    loop_cpu = time.thread_time()
    whole_cpu = time.process_time()
    for number in range(1, ticks + 1):
        now = number * 500_000_000
        heat.advance(now)
        batches = []
        for target in (0, 1):
            hot = random.integers(0, PAGES // 30, samples // 2)
            cold = random.integers(0, PAGES, samples - len(hot))
            vpn = np.concatenate([hot, cold]).astype(np.uint64)
            count = np.ones(samples, np.float32)
            batch = AccessBatch(make_keys(target, vpn), count, now, "made-up")
            heat.ingest(batch)
            batches.append(batch)
        vpn = (np.arange(WALK, dtype=np.uint64) + np.uint64(number * WALK)) % np.uint64(PAGES)
        keys = make_keys(number % 2, vpn)
        node = (random.random(WALK) < 0.7).astype(np.int16)
        heat.place(keys, node, np.zeros(WALK, np.uint8), insert_on=(0,))
        budget = Budget(100_000_000)
        plan = policy.decide(Inputs(heat, tiers, usage, budget, last))
        last = MigrationResult.not_tried(plan) if len(plan) else None
        if last is not None:
            heat.moved(last)
        record = TickRecord(number, now, now + 10**7, "made-up", tuple(batches), 0, WALK, 2,
                            tiers, usage, budget, plan, last, {"ingest": 1}, config)  # fmt: skip
        begun = time.thread_time()
        recorder.on_tick(record)
        spent += time.thread_time() - begun
        while recorder.stats().ticks < number - 50:
            time.sleep(0.001)
    loop_cpu = time.thread_time() - loop_cpu
    stats = recorder.close()
    whole_cpu = time.process_time() - whole_cpu
    assert stats.dropped_ticks == 0, stats
    return {
        "bytes_a_tick": round(stats.bytes / ticks),
        "bytes_a_sample": round(stats.bytes / max(1, 2 * samples * ticks), 2),
        "loop_thread_us_a_tick": round(spent / ticks * 1e6, 1),
        "writer_ms_a_tick": round((whole_cpu - loop_cpu) / ticks * 1e3, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, default=120)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for samples in (0, 1000, 25_000):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bench.rec"
            figures = {"bench": "recording", "samples_a_tick": 2 * samples}
            figures |= made_up_recording(path, samples, args.ticks)
            begun = time.process_time()
            replay = Replay(Recording(path), make_policy)
            for compared in replay:
                assert not compared.difference, compared.difference
            figures["replay_ticks_per_cpu_s"] = round(args.ticks / (time.process_time() - begun))
            begun = time.process_time()
            page.render(analyse(Recording(path), columns=page.COLUMNS, rows=page.ROWS))
            figures["report_ticks_per_cpu_s"] = round(args.ticks / (time.process_time() - begun))
            figures["max_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(json.dumps(figures) if args.json else figures, flush=True)


if __name__ == "__main__":
    main()
