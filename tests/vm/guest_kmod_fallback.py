# SPDX-License-Identifier: Apache-2.0
"""The module goes and comes back under a running service, many times in one boot.

Each time: the scanner works, the module is asked to go and removed, the service goes on
with DAMON (or says that it has no source, where the kernel has no DAMON), the module is
loaded, the service returns to it. What does not come in time is a failure with the stacks
of those who may be stuck, on standard error.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
import guest_kmod_service as services
from guest_kmod import Result
from guest_kmod_service import Daemon

DAMON = Path("/sys/kernel/mm/damon/admin")
KDAMOND = DAMON / "kdamonds/0/state"
LIMIT_S = 480.0
"""For any one step: a starved guest is slow, and a step that never ends is what we look for."""


class StuckError(Exception):
    """A step did not end."""


def damon_runs() -> bool:
    """Whether the service has made DAMON's thread, and begun it.

    The kernel refuses to tell while somebody else writes DAMON's files (mm/damon/sysfs.c).
    """
    try:
        return KDAMOND.read_text().strip() == "on"
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise


def until(what: str, condition: Callable[[], bool], daemon: Daemon) -> float:
    """Wait for a condition; returns the seconds it took."""
    begin = time.monotonic()
    while not condition():
        if daemon.process.poll() is not None:
            raise StuckError(f"{what}: the service ended with {daemon.process.returncode}")
        if time.monotonic() - begin > LIMIT_S:
            tell_stacks(daemon)
            raise StuckError(f"{what}: not in {LIMIT_S:.0f} s")
        time.sleep(0.05)
    return time.monotonic() - begin


def tell_stacks(daemon: Daemon) -> None:
    """What each process waits for, and the service's Python stacks."""
    daemon.process.send_signal(signal.SIGUSR1)
    for thread in sorted(Path("/proc").glob("[0-9]*/task/[0-9]*")):
        with contextlib.suppress(OSError):
            stack = [line.split()[-1] for line in (thread / "stack").read_text().splitlines()]
            comm = (thread / "comm").read_text().strip()
            if not comm.startswith(("kworker", "ksoftirqd", "migration", "cpuhp", "idle_inject")):
                print(thread.name, comm, *stack, file=sys.stderr)
    Path("/proc/sysrq-trigger").write_text("w")
    log = subprocess.run(["dmesg"], capture_output=True, check=False, text=True).stdout
    sys.stderr.write(log[-8000:])
    time.sleep(2)


class Cycle:
    """The steps, and how long the slowest of each kind took."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.has_damon = DAMON.is_dir()
        self.slowest: dict[str, float] = {}

    def step(self, what: str, condition: Callable[[], bool]) -> None:
        took = until(what, condition, self.daemon)
        self.slowest[what] = round(max(self.slowest.get(what, 0), took), 2)

    def grows(self, what: str, count: Callable[[], int], by: int = 1) -> None:
        before = count()
        self.step(what, lambda: count() >= before + by)

    def scans(self) -> int:
        return self.daemon.selected.count("scan")

    def others(self) -> int:
        """How often the service went on without the module."""
        return self.daemon.selected.count("damon") if self.has_damon else self.daemon.no_source

    def works_with_module(self, scans: int) -> None:
        """The source is scan, the module scans, samples come in."""
        self.step("the service takes scan", lambda: self.scans() > scans)
        self.step("the module scans", rounds_ended)
        self.grows("samples from scan", lambda: self.daemon.samples)

    def works_without(self, others: int) -> None:
        """The source is the next one, or none, and the loop goes on."""
        self.step("the service goes on without scan", lambda: self.others() > others)
        if self.has_damon:
            self.step("DAMON runs", damon_runs)
        self.grows("ticks without scan", lambda: self.daemon.ticks, 3)


def rounds_ended() -> bool:
    """Whether the scanner has finished a few scans since the module was loaded."""
    with lab.connection() as control:
        return control.scan_get().stats["rounds"] >= 3


def fallback(cycles: int = 2) -> Result:
    """The cycle; every second time rmmod is tried without asking first, and is refused."""
    services.CGROUP.mkdir(exist_ok=True)
    removed_unasked = 0
    with (
        lab.module(),
        services.running(["scan", "damon"], retry_s=1) as daemon,
        lab.tlbtick(),
        lab.Hotset(size="96M") as work,
    ):
        (services.CGROUP / "cgroup.procs").write_text(str(work.pid))
        run = Cycle(daemon)
        for number in range(cycles):
            scans, others = run.scans() if number else 0, run.others()
            if number:
                lab.load()
            run.works_with_module(scans)
            if number % 2:
                removed_unasked += lab.try_unload()
            begin = time.monotonic()
            lab.ask_to_close()
            run.step("the module is removed", lab.try_unload)
            run.slowest["asked to removed"] = round(time.monotonic() - begin, 2)
            run.works_without(others)
        # Asked to let go, and then asked to stay.
        scans, others = run.scans(), run.others()
        lab.load()
        run.works_with_module(scans)
        lab.ask_to_close()
        run.works_without(others)
        scans = run.scans()
        lab.ask_to_close(False)
        run.works_with_module(scans)
        status = daemon.stop()
    return {
        "ok": status == 0 and removed_unasked == 0 and run.scans() == cycles + 2,
        "cycles": cycles,
        "damon": run.has_damon,
        "taken": {"scan": run.scans(), "others": run.others()},
        "slowest_s": run.slowest,
        "samples": daemon.samples,
    }


CHECKS = {"fallback": fallback, "fallback_often": functools.partial(fallback, 25)}

if __name__ == "__main__":
    sys.exit(lab.main(CHECKS))
