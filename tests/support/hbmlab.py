# SPDX-License-Identifier: Apache-2.0
"""The host's side of programs on DRAM, HBM and CXL in modelled time (tests/vm/guest_hbm.py)."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tierd_lab import Guest, GuestError, GuestProcess, Machine, Share
from tierd_lab.traffic import TrafficError

ROOT = Path(__file__).resolve().parents[2]
SHARED = "/run/hbm"
DRAM, HBM, CXL = 0, 1, 2
ASK_S = 300.0
RUNS = 2
"""Of a request whose guest is lost: QEMU's emulation now and then loses a processor's timer."""
SIGN_OF_LIFE_S = 60.0
PERIOD = 1999
SETTINGS = "\n".join(
    (
        "set -e",
        "echo 0 > /proc/sys/kernel/numa_balancing",
        "echo 0 > /sys/kernel/mm/numa/demotion_enabled",
        "echo 0 > /proc/sys/vm/compaction_proactiveness",
        "echo 8192 > /proc/sys/vm/min_free_kbytes",
        "echo 1000000 > /proc/sys/vm/percpu_pagelist_high_fraction",
        # One run's watermark boost would be the next one's: 2 MiB of HBM that nobody may take.
        "echo 0 > /proc/sys/vm/watermark_boost_factor",
        # Else khugepaged joins what tierd has split, 16 MiB in ten seconds (docs/concepts/hbm.md).
        "echo 4000000000 > /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs",
        "echo 3 > /proc/sys/vm/drop_caches",
    )
)
CONFIG = """
[targets]
match = {{ cgroup = "/tiered" }}
refresh_interval = "250ms"
[residency]
interval = "30s"
[loop]
interval = "50ms"
cpu_limit = "25%"
[heat]
half_life = "250ms"
[policy]
name = "cost"
migration_cooldown = "1s"
low_watermark = "0.5%"
high_watermark = "1%"
[policy.cost]
feedback_interval = "150ms"
latency_model = "{latency_model}"
weighted_interleave = true
# The daemon starts before time is modelled: it would measure the emulator.
measure_tiers = false
[migration]
rate_limit = "400MB/s"
cpu_limit = "50%"
[control]
enabled = false
[metrics]
enabled = false
"""
"""Ten times as fast as the defaults: a guest's second takes many of the host's."""
RESTLESS = """
[targets]
match = {{ cgroup = "/tiered" }}
min_rss = "1MiB"
refresh_interval = "2s"
[residency]
interval = "10s"
[loop]
interval = "{tick_s}s"
cpu_limit = "25%"
[heat]
half_life = "4s"
[policy]
name = "cost"
migration_cooldown = "10s"
low_watermark = "0.5%"
high_watermark = "1%"
[policy.cost]
feedback_interval = "4s"
measure_tiers = false
[migration]
rate_limit = "100MB/s"
cpu_limit = "50%"
[control]
enabled = false
[metrics]
enabled = false
"""
"""For load that goes on for minutes: near the defaults, with less to do for each second."""


MINUTE_S = 60.0


def worst_minute_s(epochs: np.ndarray, begin_s: float, end_s: float) -> float:
    """The least sum of gains over a minute, seconds; of all of it where it was shorter.

    Args:
        epochs: of a run, as of `HbmLab.epochs`.
        begin_s, end_s: of the run, by the same clock.
    """
    end, gain = epochs[:, 0], epochs[:, 3]
    last = max(begin_s, end_s - MINUTE_S)
    # A minute's sum changes only where an epoch's end comes in or goes out.
    begin = np.clip(np.concatenate([[begin_s], end, end - MINUTE_S]), begin_s, last)[:, None]
    after = (end > begin) & (end <= begin + MINUTE_S)
    up_to = (end >= begin) & (end < begin + MINUTE_S)
    return float(min((after @ gain).min(), (up_to @ gain).min()))


class HbmLab:
    """Runs one request after another, in one boot as long as none fails. Use as a context manager.

    Attributes:
        boots: guests started so far.
        epochs: of each run with tierd by the rule, float64[n, 4]: end in s of the guest's
            monotonic clock, predicted and observed seconds saved a second, seconds gained over
            the horizon.
        worst_s: of each, what `worst_minute_s` says.
    """

    def __init__(self, machine: str = "hbm-bench", guest: Callable[..., Guest] = Guest) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tierd-hbm-")
        self.shared = Path(self._folder.name)
        self.boots = 0
        self.epochs: list[np.ndarray] = []
        self.worst_s: list[float] = []
        self._machine = Machine.load(machine)
        self._new_guest = guest
        self._reported: set[str] = set()
        self._why = ""
        self._changed = threading.Condition()
        self._booted = False
        self._process: GuestProcess | None = None

    def __enter__(self) -> HbmLab:
        try:
            self._boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._folder.cleanup()

    def _boot(self) -> None:
        self.guest = self._new_guest(
            self._machine,
            share=[Share(self.shared, Path(SHARED))],
            cwd=ROOT,
            life_s=24 * 3600,
        )
        self.boots += 1
        self._booted, self._process = True, None
        for left in self.shared.iterdir():
            left.unlink()
        self.guest.boot()
        self.guest.run(SETTINGS, timeout=600).check()
        script = str(ROOT / "tests/vm/guest_hbm.py")
        command = ["numactl", f"--preferred={CXL}", sys.executable, script, SHARED]
        self._process = self.guest.start(command, timeout_s=10.0**6, on_line=self._take)

    def _end(self) -> None:
        if self._booted:
            self._booted = False
            self.guest.close()

    def run(
        self,
        command: Sequence[str],
        *,
        free: Mapping[int, int],
        place: Mapping[str, Any] | None = None,
        weights: Sequence[int] | None = None,
        config: str | None = None,
        period: int = PERIOD,
        poll_s: float = 0.05,
        enough_s: float | None = None,
        limit_s: float = 900.0,
    ) -> dict[str, Any]:
        """Run a program; its figures, with the modelled `region` beside them.

        What failed has a guest of unknown state: the next request gets a new one. If the guest
        itself is lost, and answers nothing any more, or the ballast took what its kernel needed,
        the same request does, once.

        Args:
            command: of the program.
            free: node → bytes that ballast leaves.
            place: as of guest_hbm.py, None for where first touch puts arrays.
            weights: of interleaving by node, None for the kernel's own.
            config: of tierd, None to go without.
            period: one miss in so many is sampled, of each node.
            poll_s: guest seconds between two looks whether the program waits.
            enough_s: seconds of the host after which the daemon, and a program that takes a line
                for its end, are ended; None for never.
            limit_s: ... after which it is an error.

        Raises:
            AssertionError: the program or guest_hbm.py failed, or nothing came in time.
            GuestError, TrafficError: the guest died, or was lost twice.
        """
        request: dict[str, Any]
        request = {"command": list(command), "free": free, "place": place, "config": config}
        request |= {"period": period, "poll_s": poll_s, "weights": weights}
        for runs_left in range(RUNS - 1, -1, -1):
            try:
                if not self._booted:
                    self._boot()
                figures = self._run(request, enough_s, limit_s)
                break
            except (AssertionError, GuestError, TrafficError) as error:
                lost, seen = self._look()
                # Little is left free; the ballast, bound to a node, may take too much of it.
                lost |= "constraint=CONSTRAINT_MEMORY_POLICY" in seen
                self._end()
                print(f"{type(error).__name__}: {error}\n{seen}", file=sys.stderr)
                if not (lost and runs_left):
                    raise
        assert figures["end"]["ok"], "the program's answer is wrong"
        return figures

    def _look(self) -> tuple[bool, str]:
        """Whether a guest in which something failed is lost for no fault of its own; what it says.

        Lost: it answers nothing, and its kernel has not said why.
        """
        script = "not begun" if self._process is None else self._process.stderr[-2000:]
        told = f"its script: {script}\nconsole: {self.guest.console[-2000:]}"
        try:
            look = "ps -eo pid,stat,wchan:24,time,args | grep -v ' \\['; dmesg | tail -n 20"
            return False, f"the guest lives: {self._ask(look)}\n{told}"
        except (GuestError, TimeoutError) as error:
            died = any(word in self.guest.console for word in ("panic", "Oops", "BUG: "))
            return not died, f"the guest does not answer: {error}\n{told}"

    def _ask(self, command: str) -> str:
        return self.guest.start(command, timeout_s=SIGN_OF_LIFE_S).wait(SIGN_OF_LIFE_S).stdout

    def _run(
        self, request: Mapping[str, Any], enough_s: float | None, limit_s: float
    ) -> dict[str, Any]:
        assert self.guest.traffic is not None
        deadline = time.monotonic() + limit_s
        with self._changed:
            self._reported.clear()
        self.guest.traffic.clear(ASK_S)
        (self.shared / "new").write_text(json.dumps(request))
        (self.shared / "new").rename(self.shared / "request")
        self._wait("ready", deadline)
        self.guest.traffic.start(ASK_S)
        self.guest.traffic.clear(ASK_S)
        (self.shared / "go").touch()
        if enough_s is not None and not self._wait("end", time.monotonic() + enough_s, must=False):
            (self.shared / "enough").touch()
        self._wait("end", deadline)
        (self.shared / "enough").unlink(missing_ok=True)
        region = self.guest.traffic.counts(ASK_S).region
        self.guest.traffic.stop(ASK_S)
        self._wait("done", deadline)
        figures: dict[str, Any] = json.loads((self.shared / "figures").read_text())
        assert region is not None
        blind = 'latency_model = "idle"' in (request["config"] or "")
        if (daemon := figures.get("daemon")) and not blind:
            self.epochs.append(np.array(daemon["epochs"]).reshape(-1, 4))
            seconds = [tick["s"] for tick in daemon["ticks"]]
            self.worst_s.append(worst_minute_s(self.epochs[-1], seconds[0], seconds[-1]))
        return figures | {"region": region}

    def _take(self, line: str) -> None:
        with self._changed:
            if line.startswith("{"):
                event = json.loads(line)
                self._reported.add(event["event"])
                self._why = event.get("why", self._why)
            self._changed.notify_all()

    def _wait(self, name: str, deadline: float, *, must: bool = True) -> bool:
        with self._changed:
            while name not in self._reported:
                if "failed" in self._reported:
                    raise AssertionError(f"the guest failed: {self._why}")
                if not must and time.monotonic() > deadline:
                    return False
                assert self._process is not None
                if time.monotonic() > deadline or not self._process.running:
                    raise AssertionError(f"no {name!r}: {self._process.stdout[-2000:]}")
                self._changed.wait(1.0)
            return True
