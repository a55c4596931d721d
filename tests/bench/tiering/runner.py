# SPDX-License-Identifier: Apache-2.0
"""Runs cells: boots the machine, lets the guest run one, and reads what the plugin modelled.

Owns: the machine's life, and the host's part of a cell (guest/cell.py has the other).
Must not touch: which cells are run, and what becomes of the results.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from figures import FAST, seconds_to_95, shares
from results import Cell

from tierd.errors import TierdError
from tierd.lab import Guest, GuestProcess, Machine, Share
from tierd.lab.timemodel import Region
from workloads import Workload

ROOT = Path(__file__).resolve().parents[3]
GUEST_SHARED = "/run/bench"
SETTINGS = "\n".join(
    (
        "set -e",
        "echo 0 > /proc/sys/kernel/numa_balancing",
        # The oracle knows pages by their address, and runs shall repeat.
        "echo 0 > /proc/sys/kernel/randomize_va_space",
        "echo 0 > /sys/kernel/mm/numa/demotion_enabled",
        # Huge pages, which the workloads do not use, have these two raised for a machine of
        # this size so far that they would be the benchmark.
        "echo 0 > /proc/sys/vm/compaction_proactiveness",
        "echo 8192 > /proc/sys/vm/min_free_kbytes",
        # Free memory is in the node's lists, where it is counted, and not in the CPU's.
        "echo 1000000 > /proc/sys/vm/percpu_pagelist_high_fraction",
        # No page fault is left out because there are many.
        "echo 1000000000 > /proc/sys/kernel/perf_event_max_sample_rate",
        "echo 0 > /proc/sys/kernel/perf_cpu_time_max_percent",
        # What the boot left on the fast node is not there to be demoted by the first cell.
        "for each in /proc/[0-9]*; do migratepages ${each#/proc/} 0 1 2>/dev/null || true; done",
        "echo 3 > /proc/sys/vm/drop_caches",
        # What the kernel puts off after a boot is done in the first minute; idle, it costs nothing.
        "sleep 60",
    )
)
"""What a machine is set to before its first cell."""
LIMIT_S = 1800.0
"""Host seconds for a cell; the guest is given up then."""
ASK_S = 600.0
_GUEST_LIMIT_S = 10.0**6


class CellError(TierdError):
    """A cell did not run."""


class NotReadyError(CellError):
    """A cell was not begun: its machine could not be brought to where cells begin."""


class Runner:
    """Cells of one machine, one after another. Use as a context manager.

    A cell that fails takes its boot with it: the next one gets a fresh machine.
    """

    def __init__(self, machine: Machine, *, limit_s: float = LIMIT_S) -> None:
        self._machine = machine
        self._limit_s = limit_s
        self._guest: Guest | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="tierd-bench-")
        self.shared = Path(self._folder.name)
        self.boots = 0
        self._process: GuestProcess | None = None
        self._told: dict[str, dict[str, Any]] = {}
        self._changed = threading.Condition()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.reboot()
        self._folder.cleanup()

    def reboot(self) -> None:
        """End the machine; the next cell gets a fresh one."""
        if self._guest is not None:
            self._guest.close()
            self._guest = None

    def _booted(self) -> Guest:
        if self._guest is None:
            self._guest = Guest(
                self._machine,
                share=[Share(self.shared, Path(GUEST_SHARED))],
                cwd=ROOT,
                boot_timeout_s=900,
                life_s=24 * 3600,
            )
            self._guest.boot()
            self.boots += 1
            self._guest.run(SETTINGS, timeout=600).check()
            for name in ("go", "over", "request"):
                (self.shared / name).unlink(missing_ok=True)
            self._told.clear()
            # The benchmark's own memory, the files it reads included, is on the slow node.
            command = ["numactl", "--preferred=1", sys.executable]
            command += [str(ROOT / "tests/bench/tiering/guest/cell.py"), GUEST_SHARED]
            self._process = self._guest.start(command, timeout_s=_GUEST_LIMIT_S, on_line=self._take)
        return self._guest

    def run(self, workload: Workload, method: str, *, pages: bool = False) -> Cell:
        """Run a cell.

        Args:
            workload, method: which.
            pages: leave `counts.npz` with the requests of each virtual page for the oracle.

        What could not be begun is tried once more, on a fresh machine: nothing of it was seen.

        Returns:
            The cell, with `why` if it failed.
        """
        try:
            try:
                return self._run(workload, method, pages)
            except NotReadyError as error:
                print(f"{workload.name} / {method}: {error}: once more", file=sys.stderr)
                self.reboot()
                return self._run(workload, method, pages)
        except (TierdError, TimeoutError, OSError) as error:
            self.reboot()
            why = " ".join(str(error).split())[-600:]
            return Cell(workload.name, method, why=f"{type(error).__name__}: {why}")

    def _run(self, workload: Workload, method: str, pages: bool) -> Cell:
        guest = self._booted()
        assert guest.traffic is not None
        deadline = time.monotonic() + self._limit_s
        begin = time.monotonic()
        self._told.clear()
        guest.traffic.clear(ASK_S)  # of the processes of the cell before
        request = {
            "method": method,
            "fast": workload.fast,
            "pages": pages,
            "command": [str(ROOT / "build/workloads" / workload.name), *workload.arguments],
        }
        (self.shared / "new").write_text(json.dumps(request), encoding="utf-8")
        (self.shared / "new").rename(self.shared / "request")
        try:
            self._wait_for("ready", deadline)
        except CellError as error:
            raise NotReadyError(str(error)) from error
        guest.traffic.start(ASK_S)
        guest.traffic.clear(ASK_S)
        (self.shared / "go").touch()
        self._wait_for("end", deadline)
        counts = guest.traffic.counts(ASK_S)
        guest.traffic.stop(ASK_S)
        (self.shared / "over").touch()
        self._wait_for("done", deadline)
        if not self._told["end"]["ok"]:
            raise CellError("the workload's answer is wrong")
        if counts.region is None:
            raise CellError("the workload's marks were not seen")
        if pages:
            self._keep_counts(counts.requests)
        cell = _cell(workload, method, counts.region, self._told)
        cell.facts["host_s"] = {
            "boot": round(guest.boot_s, 1),
            **{name: round(event["at"] - begin, 1) for name, event in self._told.items()},
        }
        return cell

    def _take(self, line: str) -> None:
        """A line of the guest's."""
        with self._changed:
            if line.startswith("{"):
                event = json.loads(line)
                event["at"] = time.monotonic()
                self._told[event["event"]] = event
                self._changed.notify_all()

    def _wait_for(self, name: str, deadline: float) -> None:
        """Until the guest told of that event.

        Raises:
            CellError: it failed, ended, or the time is up.
        """
        assert self._process is not None
        with self._changed:
            while name not in self._told:
                if "failed" in self._told:
                    raise CellError(self._told["failed"]["why"])
                if time.monotonic() > deadline:
                    raise CellError(f"no {name!r} in {self._limit_s:.0f} s of the host's time")
                if not self._process.running:
                    raise CellError(f"ended before {name!r}: {self._process.stdout[-500:]}")
                self._changed.wait(1.0)

    def _keep_counts(self, requests: np.ndarray) -> None:
        with np.load(self.shared / "pages.npz") as file:
            vpn, pfn = file["vpn"], file["pfn"]
        order = np.argsort(vpn)
        np.savez(self.shared / "counts.npz", vpn=vpn[order], requests=requests[pfn[order]])


def _cell(workload: Workload, method: str, region: Region, told: dict[str, dict[str, Any]]) -> Cell:
    figures, ready = told["done"]["method"], told["ready"]
    curve = shares(region.curve, region.interval_ns)
    return Cell(
        workload.name,
        method,
        seconds=region.ns / 1e9,
        fast_share=region.share(FAST),
        seconds_to_95=seconds_to_95(curve),
        promoted=figures.pop("promoted", 0),
        demoted=figures.pop("demoted", 0),
        bounced=figures.pop("bounced", None),
        instructions=region.instructions,
        curve=curve,
        facts={
            "size": workload.size,
            "work": workload.work,
            "fast": workload.fast,
            "free": ready["free"],
            "fast_at_start": round(ready["fast_at_start"], 6),
            "arranged": ready["arranged"],
            "max_rss": told["end"]["max_rss"],
            "guest_s": round(region.guest_ns / 1e9, 3),
            "spent_s": {owner: round(ns / 1e9, 6) for owner, ns in region.spent_ns.items()},
            "lines": {owner: list(counts) for owner, counts in region.lines.items()},
            "waited_s": {str(n): round(ns / 1e9, 6) for n, ns in region.waited_ns.items()},
            "requests": {str(n): list(counts) for n, counts in region.node_requests.items()},
            "moves": told["done"]["moves"],
            "method": figures,
            "spaces_dropped": region.spaces_dropped,
        },
    )
