# SPDX-License-Identifier: Apache-2.0
"""Checks of the mover on a machine with two nodes; run as root inside a lab guest.

Prints one JSON line a check, {"check": name, "ok": bool, ...}, and exits with 0 only
if all are ok. Node numbers: the first two nodes that have memory, or --nodes A B.
Pass conditions are fates, nodes and contents of pages; times are printed only, but
for the byte rate, whose upper bound holds on any machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from guest_holder import Holder
from guest_mover_trouble import TroubleChecks
from moverkit import HUGE_PAGES, TARGET, Machine, Result, fates, keys, nodes_of, plan

from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.migration import Fate
from tierd.workloads.residency import ResidencyScanner


class PlainChecks(Machine):
    """One method a check; each returns its result with "ok"."""

    def small_both_ways(self) -> Result:
        """4 KiB pages go there and back, and hold what they held."""
        with Holder(8192, node=None) as holder:
            page = keys(holder.vpn, 8192)
            start = nodes_of(holder, page)
            mover = self.mover()
            out = mover.execute(plan(page, self.far), {TARGET: holder.pid})
            there = nodes_of(holder, page)
            again = mover.execute(plan(page, self.far), {TARGET: holder.pid})
            back = mover.execute(plan(page, self.near, source=1), {TARGET: holder.pid})
            home = nodes_of(holder, page)
            wrong = holder.ask("verify")["wrong"]
        return {
            "ok": fates(out) == {"MOVED": 8192}
            and there == {self.far: 8192}
            and fates(again) == {"ALREADY_THERE": 8192}
            and fates(back) == {"MOVED": 8192}
            and home == {self.near: 8192}
            and out.moved_bytes == back.moved_bytes == 8192 * 4096
            and again.moved_bytes == 0
            and wrong == 0,
            "start": start,
            "fates": [fates(out), fates(again), fates(back)],
            "wrong": wrong,
            "bytes_per_s": [each.moved_bytes * 10**9 // each.duration_ns for each in (out, back)],
        }

    def huge_both_ways(self) -> Result:
        """2 MiB folios are asked for once each, stay whole, and hold what they held."""
        with Holder(16 * HUGE_PAGES, "huge") as holder:
            ranges = (WatchedRange(holder.vpn, holder.vpn + holder.pages),)
            target = WatchedTarget(TARGET, holder.pid, ranges)
            scanner = ResidencyScanner()
            before = scanner.scan(target, 0, 10**6)
            huge = before.order == 9
            page = before.page[huge]
            mover = self.mover()
            out = mover.execute(plan(page, self.far, order=9), {TARGET: holder.pid})
            middle = scanner.scan(target, 0, 10**6)
            back = mover.execute(plan(page, self.near, order=9), {TARGET: holder.pid})
            after = scanner.scan(target, 0, 10**6)
            wrong = holder.ask("verify")["wrong"]
        n = int(np.count_nonzero(huge))
        return {
            "ok": n > 0
            and fates(out) == {"MOVED": n}
            and fates(back) == {"MOVED": n}
            and out.moved_bytes == n * (2 << 20)
            and int(np.count_nonzero(middle.node[np.isin(middle.page, page)] == self.far)) == n
            and int(np.count_nonzero(after.order == 9)) == n
            and wrong == 0,
            "huge_folios": n,
            "fates": [fates(out), fates(back)],
            "still_huge": [int(np.count_nonzero(each.order == 9)) for each in (middle, after)],
            "wrong": wrong,
        }

    def pages_of_a_split_folio(self) -> Result:
        """4 KiB requests for a folio that is mapped in pieces all get where they shall.

        The first request for a page of it moves the whole folio; later ones may find
        their page there already.
        """
        with Holder(4 * HUGE_PAGES, "huge") as holder:
            # Dropping one page takes the 2 MiB mapping apart; the folio stays large.
            for block in range(4):
                holder.ask("drop", block * HUGE_PAGES + 100, 1)
            page = keys(holder.vpn, holder.pages)
            report = self.mover().execute(plan(page, self.far), {TARGET: holder.pid})
            where = nodes_of(holder, page)
        found = fates(report)
        return {
            "ok": set(found) <= {"MOVED", "ALREADY_THERE", "GONE"}
            and found["GONE"] == 4
            and where.get(self.far, 0) == 4 * (HUGE_PAGES - 1),
            "fates": found,
            "nodes": where,
        }

    def busy(self) -> Result:
        """Pinned pages are BUSY, all others move; let go, the pinned ones move too."""
        with Holder(1024) as holder:
            pinned = holder.ask("pin", 100, 64)["pinned"]
            page = keys(holder.vpn, 1024)
            mover = self.mover(busy_retries=2)
            first = mover.execute(plan(page, self.far), {TARGET: holder.pid})
            busy = first.fate == Fate.BUSY
            holder.ask("release")
            second = mover.execute(plan(page[busy], self.far), {TARGET: holder.pid})
            wrong = holder.ask("verify")["wrong"]
        return {
            "ok": fates(first) == {"MOVED": 1024 - pinned, "BUSY": pinned}
            and bool(busy[100 : 100 + pinned].all())
            and bool((first.node[busy] == self.near).all())
            and first.errors == {16: pinned}
            and first.retries == 2 * pinned
            and fates(second) == {"MOVED": pinned}
            and wrong == 0,
            "pinned": pinned,
            "fates": [fates(first), fates(second)],
            "errors": first.errors,
            "retries": first.retries,
        }

    def shared(self) -> Result:
        """Pages that another process maps too are REFUSED and stay."""
        with Holder(256) as holder:
            holder.ask("share")
            page = keys(holder.vpn, 256)
            mover = self.mover()
            first = mover.execute(plan(page, self.far), {TARGET: holder.pid})
            where = nodes_of(holder, page)
            holder.ask("unshare")
            second = mover.execute(plan(page, self.far), {TARGET: holder.pid})
        return {
            "ok": fates(first) == {"REFUSED": 256}
            and first.errors == {13: 256}
            and where == {self.near: 256}
            and fates(second) == {"MOVED": 256},
            "fates": [fates(first), fates(second)],
            "errors": first.errors,
        }

    def gone(self) -> Result:
        """Pages that were never touched, given back or outside all mappings are GONE."""
        with Holder(1024) as holder:
            holder.ask("drop", 0, 100)
            page = np.concatenate([keys(holder.vpn, 1024), keys(16, 8)])
            report = self.mover().execute(plan(page, self.far), {TARGET: holder.pid})
        wanted = {"MOVED": 924, "GONE": 108}
        return {
            "ok": fates(report) == wanted and set(report.errors) <= {2, 14},
            "fates": fates(report),
            "errors": report.errors,
        }

    def no_such_node(self) -> Result:
        """A destination that has no memory is REFUSED; the plan's other moves are made."""
        with Holder(1024) as holder:
            page = keys(holder.vpn, 1024)
            dest = np.where(np.arange(1024) < 512, 63, self.far)
            report = self.mover().execute(plan(page, dest), {TARGET: holder.pid})
        return {
            "ok": fates(report) == {"REFUSED": 512, "MOVED": 512},
            "fates": fates(report),
            "errors": report.errors,
        }

    def mixed(self) -> Result:
        """Targets and destinations that alternate all arrive where they shall."""
        with Holder(1000) as one, Holder(1000) as two:
            mover = self.mover()
            mover.execute(plan(keys(two.vpn, 1000), self.far), {TARGET: two.pid})
            # `one` goes far, `two` comes near, page by page in turn for a part.
            page = np.empty(2000, np.uint64)
            page[0::2] = keys(one.vpn, 1000)
            page[1::2] = keys(two.vpn, 1000, target=TARGET + 1)
            dest = np.empty(2000, np.int16)
            dest[0::2], dest[1::2] = self.far, self.near
            both = {TARGET: one.pid, TARGET + 1: two.pid}
            report = mover.execute(plan(page, dest), both)
            alternating = np.where(np.arange(1000) % 3 == 0, self.near, self.far)
            second = mover.execute(plan(keys(one.vpn, 1000), alternating), both)
            where = nodes_of(one, keys(one.vpn, 1000))
            wrong = one.ask("verify")["wrong"] + two.ask("verify")["wrong"]
        return {
            "ok": fates(report) == {"MOVED": 2000}
            and fates(second) == {"MOVED": 334, "ALREADY_THERE": 666}
            and where == {self.near: 334, self.far: 666}
            and wrong == 0,
            "fates": [fates(report), fates(second)],
        }


class Checks(PlainChecks, TroubleChecks):
    """All of them."""


def main() -> int:
    """Run the checks; 0 if all are ok."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs=2, help="a node with CPUs and another one")
    parser.add_argument("--pages", type=int, default=100_000, help="moves while writing")
    parser.add_argument("checks", nargs="*", help="names of checks; all if none")
    args = parser.parse_args()
    root = Path("/sys/devices/system/node")
    found = sorted(int(each.name[4:]) for each in root.glob("node[0-9]*"))
    near, far = args.nodes or [*found, -1, -1][:2]
    if far < 0:
        print(json.dumps({"check": "nodes", "ok": False, "found": found}))
        return 1
    # Else the kernel moves pages as well, towards the CPU that asks where they are.
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    checks = Checks(near, far, args.pages)
    names = args.checks or [
        name
        for part in (PlainChecks, TroubleChecks)
        for name in vars(part)
        if not name.startswith("_")
    ]
    failed = 0
    for name in names:
        check: Callable[[], Result] = getattr(checks, name)
        start = time.monotonic()
        try:
            result = check()
        except Exception:  # a check that breaks is a failed check, and the rest still runs
            result = {"ok": False, "error": traceback.format_exc()}
        failed += not result["ok"]
        seconds = round(time.monotonic() - start, 2)
        print(json.dumps({"check": name, **result, "check_s": seconds}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
