# SPDX-License-Identifier: Apache-2.0
"""Checks in a lab guest of processes whose memory a second MMU uses, as a virtual machine's.

A module for tests (kmod/test) gives a process the notifier that KVM would give it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import guest_kmod as lab
import guest_kmod_service as services
from guest_kmod import Result
from guest_kmod_resolve import Churner
from module_events import events, subscribe

from tierd.core.errors import SecondMmuError
from tierd.sources.kmod.netlink import Control
from tierd.sources.kmod.uapi import Event

NOTIFIER = Path("/sys/module/tierd_test_mmu/parameters/pid")
PAGES = 20_000
LIMIT_S = 240


@contextlib.contextmanager
def notifiers() -> Iterator[Callable[[int], None]]:
    """A function that gives a process a second MMU, and takes it from the one before; 0: nobody."""
    built = lab.ROOT / "build/kmod-test" / os.uname().release / "tierd_test_mmu.ko"
    subprocess.run(["insmod", str(built)], check=True)
    try:
        yield lambda pid: NOTIFIER.write_text(str(pid)) and None
    finally:
        subprocess.run(["rmmod", "tierd_test_mmu"], check=True)


def until(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
    """Whether it came to hold in time."""
    end = time.monotonic() + limit_s
    while not (held := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return held


def refused(control: Control, number: int, pid: int) -> tuple[str, str]:
    """The error's name and the module's reason, or two empty ones."""
    try:
        control.target_add(number, pid)
    except SecondMmuError as error:
        assert isinstance(error.__cause__, OSError)
        return errno.errorcode[error.__cause__.errno or 0], str(error)
    return "", ""


def never_scanned() -> Result:
    """A process that has a second MMU is refused; one that gets it is let go of, and told of."""
    with (
        lab.module(),
        notifiers() as notify,
        lab.connection() as control,
        lab.connection() as listener,
        Churner("hold", 3000) as early,
        Churner("hold", 3000) as late,
        Churner("hold", 3000) as other,
    ):
        subscribe(listener)
        control.scan_set(period_us=20_000, budget_ppm=400_000)
        notify(early.pid)
        before = refused(control, 1, early.pid)
        touched = control.scan_get().stats["pages"]
        control.target_add(2, late.pid)
        control.target_add(3, other.pid)
        scans = until(lambda: min(each.stats["rounds"] for each in control.targets()) >= 3)
        notify(late.pid)
        dropped = until(lambda: [each.target for each in control.targets()] == [3])
        told = events(listener)
        rounds = control.targets()[0].stats["rounds"]
        goes_on = until(lambda: control.targets()[0].stats["rounds"] > rounds + 3)
        # The kernel keeps the list of notifiers, empty or not, as long as the address space.
        notify(0)
        after = refused(control, 2, late.pid)
        stats = control.scan_get().stats
        alive = early.alive and late.alive and other.alive
    reason = "second MMU"
    name = errno.errorcode[errno.EOPNOTSUPP]
    return {
        "ok": before[0] == after[0] == name
        and reason in before[1]
        and reason in after[1]
        and touched == 0
        and scans
        and dropped
        and told == [(Event.SECOND_MMU, 2)]
        and goes_on
        and stats["targets_second_mmu"] == 3
        and stats["targets_gone"] == 0
        and alive,
        "before": before,
        "after": after,
        "touched": touched,
        "scans": scans,
        "dropped": dropped,
        "told": [(event.name, target) for event, target in told],
        "goes_on": goes_on,
        "stats": stats,
    }


def on_node(pid: int, node: int) -> int:
    """Pages that a process has on a node."""
    text = Path(f"/proc/{pid}/numa_maps").read_text()
    return sum(int(pages) for pages in re.findall(rf" N{node}=(\d+)", text))


def never_demoted() -> Result:
    """Two idle processes on a node that tierd shall empty: what looks cold leaves, but for the one
    whose accesses cannot be seen."""
    config = Path("/tmp/second-mmu.toml")
    text = services.DEMO_CONFIG.read_text()
    text = text.replace('low_watermark = "0.75%"', 'low_watermark = "75%"')
    config.write_text(text.replace('high_watermark = "1%"', 'high_watermark = "80%"'))
    services.CGROUP.mkdir(exist_ok=True)
    with (
        lab.module(),
        notifiers() as notify,
        Churner("hold", PAGES) as guest,
        Churner("hold", PAGES) as plain,
    ):
        notify(guest.pid)
        before = {"guest": on_node(guest.pid, 0), "plain": on_node(plain.pid, 0)}
        with services.running(["scan"], config=config) as daemon, lab.tlbtick():
            for each in (guest, plain):
                (services.CGROUP / "cgroup.procs").write_text(str(each.pid))
            left = until(lambda: on_node(plain.pid, 1) >= PAGES)
            ticks = daemon.ticks
            # Were it taken for cold, it would have left as well by then.
            more = until(lambda: daemon.ticks >= ticks + 10)
            after = {"guest": on_node(guest.pid, 0), "plain": on_node(plain.pid, 0)}
            status = daemon.stop()
    return {
        "ok": left
        and more
        and status == 0
        and before["guest"] >= PAGES
        and after["guest"] >= before["guest"]
        and after["plain"] < before["plain"],
        "before": before,
        "after": after,
        "left": left,
        "exit": status,
    }


if __name__ == "__main__":
    sys.exit(lab.main({"never_scanned": never_scanned, "never_demoted": never_demoted}))
