# SPDX-License-Identifier: Apache-2.0
"""The mover against a bare loop of move_pages(2) with the same batches.

Needs two nodes: run it inside a lab guest, as root. Pages of another process go to
and fro; rounds of the two loops alternate, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "vm"))

from guest_holder import Holder
from moverkit import keys, plan

from tierd.core.migration import Fate
from tierd.core.pagekey import VPN_BITS
from tierd.migration import NativeMover

MOVE_PAGES, MOVE = 279, 2
"""asm/unistd_64.h; MPOL_MF_MOVE of linux/mempolicy.h."""


def bare(pid: int, page: np.ndarray, dest: int, batch: int) -> tuple[int, float]:
    """Bytes moved by the bare loop, and its seconds."""
    libc, moved = ctypes.CDLL(None), 0
    start = time.perf_counter()
    for first in range(0, len(page), batch):
        address = (page[first : first + batch] & np.uint64((1 << VPN_BITS) - 1)) << np.uint64(12)
        node = np.full(len(address), dest, np.int32)
        status = np.full(len(address), -errno.EBUSY, np.int32)
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (address, node, status)]
        count = ctypes.c_ulong(len(address))
        if libc.syscall(MOVE_PAGES, pid, count, *pointers, MOVE) < 0:
            raise OSError("move_pages failed")
        moved += int(np.count_nonzero(status == dest))
    return moved * 4096, time.perf_counter() - start


def main() -> None:
    """Print raw rounds and the median of each round's ratio, or one JSON object with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, nargs=2, default=[0, 1])
    parser.add_argument("--pages", type=int, default=32768)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    near, far = args.nodes
    bare_rates: list[float] = []
    mover_rates: list[float] = []
    with Holder(args.pages) as holder:
        page = keys(holder.vpn, args.pages)
        mover = NativeMover(rate_bytes_per_s=10**12)
        for dest in (far, near):
            mover.execute(plan(page, dest), {7: holder.pid})
        calls = 0
        for _ in range(args.rounds):
            for dest in (far, near):
                start = time.perf_counter()
                report = mover.execute(plan(page, dest), {7: holder.pid})
                mover_rates.append(report.moved_bytes / (time.perf_counter() - start))
                assert report.count(Fate.MOVED) == args.pages, report.errors
                calls += mover.calls
                batch = max(1, min(4096, args.pages // max(1, mover.calls)))
                moved, seconds = bare(holder.pid, page, near if dest == far else far, batch)
                bare_rates.append(moved / seconds)
                # Bring the pages to where the mover's next round expects them.
                bare(holder.pid, page, dest, batch)
    result = {
        "bench": "native_mover",
        "pages": args.pages,
        "batch_pages": batch,
        "mover_bytes_per_s": [round(each) for each in mover_rates],
        "bare_bytes_per_s": [round(each) for each in bare_rates],
        "mover_median": float(np.median(mover_rates)),
        "bare_median": float(np.median(bare_rates)),
        "ratio": float(np.median(np.divide(mover_rates, bare_rates))),
        "longest_call_ms": mover.longest_call_ns / 1e6,
    }
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
