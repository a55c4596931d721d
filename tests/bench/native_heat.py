# SPDX-License-Identifier: Apache-2.0
"""Heat: samples counted a second on one core, bytes a tracked page, cost of questions.

The stream is Zipf (exponent 0.99) over the tracked pages, whose hot ones lie
scattered; batches are of the size that a busy source delivers.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from tierd.core.access import AccessBatch
from tierd.hotness.table import HeatTable

TARGET_KEY = np.uint64(5 << 48)


def zipf_pages(pages: int, samples: int, exponent: float, seed: int) -> np.ndarray:
    """Page keys, uint64[samples], each page drawn in proportion to rank^-exponent."""
    random = np.random.default_rng(seed)
    weight = np.arange(1, pages + 1, dtype=np.float64) ** -exponent
    cumulative = np.cumsum(weight)
    rank = np.searchsorted(cumulative, random.random(samples) * cumulative[-1])
    page: np.ndarray = random.permutation(pages).astype(np.uint64)[rank]
    return page + np.uint64(0x7F0000000) | TARGET_KEY


def measure(pages: int, samples: int, batch: int, huge_share: float) -> dict[str, float]:
    """Figures for one table size."""
    table = HeatTable(capacity_pages=pages, half_life_s=10.0)
    every = (np.arange(pages, dtype=np.uint64) + np.uint64(0x7F0000000)) | TARGET_KEY
    now = 10**9
    node = np.zeros(pages, np.int16)
    node[pages // 4 :] = 1
    start = time.perf_counter()
    table.ingest(AccessBatch(every, np.ones(pages, np.float32), now, "bench"))
    insert_s = time.perf_counter() - start
    start = time.perf_counter()
    table.place(every, node, np.zeros(pages, np.uint8), insert_on=[0])
    place_s = time.perf_counter() - start
    if huge_share > 0:
        heads = every[: int(pages * huge_share)][::512]
        table.place(
            heads, np.zeros(len(heads), np.int16), np.full(len(heads), 9, np.uint8), insert_on=[0]
        )
    bytes_a_page = table.stats().memory_bytes / pages
    stream = zipf_pages(pages, samples, 0.99, 1)
    count = np.ones(batch, np.float32)
    spent_wall = spent_cpu = 0.0
    for at in range(0, samples - batch + 1, batch):
        now += 10**8
        part = AccessBatch(stream[at : at + batch], count, now, "bench")
        wall, cpu = time.perf_counter(), time.thread_time()
        table.ingest(part)
        spent_wall += time.perf_counter() - wall
        spent_cpu += time.thread_time() - cpu
    done = samples // batch * batch
    questions: dict[str, float] = {}
    for name, ask in (
        ("hottest_10k_ms", lambda: table.hottest(1, 10_000)),
        ("coldest_10k_ms", lambda: table.coldest(0, 10_000)),
        ("unplaced_10k_ms", lambda: table.unplaced(10_000)),
    ):
        start = time.perf_counter()
        ask()
        questions[name] = (time.perf_counter() - start) * 1e3
    return {
        "pages": pages,
        "batch": batch,
        "huge_share": huge_share,
        "samples": done,
        "samples_per_s": done / spent_cpu,
        "samples_per_s_wall": done / spent_wall,
        "first_insert_per_s": pages / insert_s,
        "place_per_s": pages / place_s,
        "bytes_per_tracked_page": bytes_a_page,
        **questions,
    }


def main() -> None:
    """Print a table, or one JSON object with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--samples", type=int, default=20_000_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--pages", type=int, nargs="*", default=[1 << 20, 1 << 22])
    args = parser.parse_args()
    results = [
        measure(pages, args.samples, args.batch, share)
        for pages in args.pages
        for share in (0.0, 0.5)
    ]
    if args.json:
        print(json.dumps({"bench": "native_heat", "results": results}))
        return
    for result in results:
        print("  ".join(f"{name}={value:,.6g}" for name, value in result.items()))


if __name__ == "__main__":
    main()
