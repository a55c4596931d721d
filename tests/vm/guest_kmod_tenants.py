# SPDX-License-Identifier: Apache-2.0
"""Runs in the guest: tenants whose memory can never move, beside others with hot pages far away.

A tenant of kind "shared" has a memfd that another process maps, too; "pinned" memory is registered
with io_uring; "bound" memory has a policy (mbind(2)) that allows the far node only. Each of these
has 192 MiB and uses all of it. The others are `hotset`, whose hot pages begin on the far node.
What is told is the guest's seconds until nine tenths of their hot pages are near, with those that
refuse watched and with the same processes unwatched.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import guest_kmod as lab
import guest_kmod_service as services
import numpy as np

from tierd._native import ffi, lib

NEAR, FAR = 0, 1
STUBBORN_MIB = 192
ALONE = ("--size", "48M", "--hot-share", "0.25", "--rate", "20000", "--interval", "0.25")
"""The other one beside one that refuses: 3072 hot pages."""
OF_SEVEN = ("--size", "24M", "--hot-share", "0.25", "--rate", "2000", "--interval", "1")
"""One of seven others, which share two emulated processors: 1536 hot pages."""
LONGEST_S = 240
SETTLED_S = 60
"""Before the others come: what refuses has been found out by then."""
TICKS = 3
"""After the others ended; then the time of their last moves has been told."""
LATER_S = 20
"""The mover's share of a processor is taken over so long, a minute after those that refuse came."""
TURNS = 2
"""Of both, one after the other: what else the host does falls on both."""
IO_URING_SETUP, IO_URING_REGISTER = 425, 427
MBIND, MPOL_BIND = 237, 2
PIECE_BYTES = 16 << 20


def stubborn(kind: str, mib: int) -> None:
    """Hold so much memory on the far node, use each page of it, and let none of it move."""
    before = ffi.new("struct tierd_mempolicy *")
    assert lib.tierd_mempolicy_prefer(FAR, before) == 0
    if kind == "shared":
        file = os.memfd_create("shared")
        os.ftruncate(file, mib << 20)
        held = mmap.mmap(file, mib << 20)
    else:
        held = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = np.frombuffer(held, np.uint8)[:: mmap.PAGESIZE]
    view[:] = 1
    assert lib.tierd_mempolicy_restore(before) == 0
    address = ctypes.addressof(ctypes.c_char.from_buffer(held))
    if kind == "shared" and os.fork() == 0:
        view.sum()  # maps each page here, too
        while os.getppid() != 1:
            time.sleep(1)
        os._exit(0)
    if kind == "pinned":
        pin(address, mib << 20)
    if kind == "bound":
        bind(address, mib << 20)
    print("ready", flush=True)
    while True:
        view += 1
        time.sleep(0.2)  # it leaves the processor to the others


def pin(address: int, size: int) -> None:
    """Register memory as buffers of an io_uring (io_uring_register(2)), which pins it."""
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(IO_URING_SETUP, 4, ctypes.create_string_buffer(120))
    pieces = [(at, PIECE_BYTES) for at in range(address, address + size, PIECE_BYTES)]
    given = np.array(pieces, np.uint64)
    result = libc.syscall(IO_URING_REGISTER, ring, 0, given.ctypes.data_as(ctypes.c_void_p),
                          len(pieces))  # fmt: skip
    assert result == 0, os.strerror(ctypes.get_errno())


def bind(address: int, size: int) -> None:
    """mbind(2) with MPOL_BIND."""
    libc = ctypes.CDLL(None, use_errno=True)
    nodes = (ctypes.c_ulong * 1)(1 << FAR)
    given = ctypes.c_void_p(address), ctypes.c_ulong(size)
    result = libc.syscall(MBIND, *given, MPOL_BIND, nodes, 64, 0)
    assert result == 0, os.strerror(ctypes.get_errno())


@contextlib.contextmanager
def holding(kind: str) -> Iterator[int]:
    """The pid of a tenant that refuses."""
    command = [sys.executable, __file__, "--stubborn", kind, str(STUBBORN_MIB)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            process.kill()


class Tenant:
    """One of the others, at work."""

    def __init__(self, seed: int, options: Sequence[str]) -> None:
        command = [str(lab.WORKLOADS / "hotset"), "--scattered", *options]
        command += ["--seconds", "100000", "--fast-node", str(NEAR), "--slow-node", str(FAR)]
        self.process = subprocess.Popen(
            [*command, "--seed", str(seed)], stdout=subprocess.PIPE, text=True
        )
        self.report: dict[str, Any] = self.next()

    def next(self) -> dict[str, Any]:
        """Its next report."""
        assert self.process.stdout is not None
        self.report = json.loads(self.process.stdout.readline())
        return self.report

    def next_near(self) -> float:
        """`near` after its next report."""
        self.next()
        return self.near

    @property
    def near(self) -> float:
        """The part of its hot pages that was on the near node at its last report."""
        return float(self.report["hot_on_node"].get(str(NEAR), 0.0))

    def end(self) -> bool:
        """Whether its memory is as it wrote it."""
        self.process.terminate()
        while self.next()["event"] != "end":
            pass
        self.process.wait()
        return bool(self.report["checksum_ok"])


def measured(kinds: Sequence[str], others: int, watched: bool = True) -> dict[str, Any]:
    """How long it takes until all others have nine tenths of their hot pages near."""
    options = ALONE if others == 1 else OF_SEVEN
    with contextlib.ExitStack() as stack:
        pids = [stack.enter_context(holding(kind)) for kind in kinds]
        stack.enter_context(lab.module())
        daemon = stack.enter_context(services.running(["scan"]))
        tenants = [Tenant(seed, options) for seed in range(1, others + 1)]
        begun = {each.near for each in tenants}
        stack.enter_context(lab.tlbtick())
        services.CGROUP.mkdir(exist_ok=True)
        for pid in pids if watched else ():
            (services.CGROUP / "cgroup.procs").write_text(str(pid))
        watched_s = time.monotonic()
        time.sleep(SETTLED_S if pids and watched else 1)
        for each in tenants:
            (services.CGROUP / "cgroup.procs").write_text(str(each.process.pid))
        seconds = time.monotonic()
        while (least := min(each.next_near() for each in tenants)) < 0.9:
            if time.monotonic() > seconds + LONGEST_S:
                break
        seconds = time.monotonic() - seconds
        right = [each.end() for each in tenants]
        share = 0.0
        if pids and watched:
            ticks = daemon.ticks + TICKS
            while daemon.process.poll() is None and (
                daemon.ticks < ticks or time.monotonic() < watched_s + 60
            ):
                time.sleep(0.1)
            before = daemon.move_cpu_ns
            time.sleep(LATER_S)
            share = (daemon.move_cpu_ns - before) / 1e9 / LATER_S
        status = daemon.stop()
    return {
        "kinds": kinds,
        "watched": watched,
        "ok": begun == {0.0} and least >= 0.9 and all(right) and status == 0,
        "near": least,
        "seconds": round(seconds, 2),
        "status": status,
        "results": daemon.totals.get("migration_results"),
        "left_alone": daemon.totals.get("left_alone"),
        "mover_share_after_a_minute": round(share, 4),
    }


def beside(kinds: Sequence[str], others: int) -> lab.Result:
    """Some that refuse; their processes take processor time whether watched or not."""
    turns = [
        (measured(kinds, others, watched=False), measured(kinds, others)) for _ in range(TURNS)
    ]
    seconds = [[each["seconds"] for each in turn] for turn in turns]
    medians = np.median(seconds, axis=0)
    return {
        "ok": all(_judged(*turn) for turn in turns),
        "ratio": round(medians[1] / medians[0], 3),
        "seconds_without_and_with": seconds,
        "turns": turns,
    }


def _judged(before: dict[str, Any], both: dict[str, Any]) -> bool:
    tried = sum(both["results"].get(fate, 0) for fate in ("busy", "refused", "failed"))
    return bool(
        before["ok"]
        and both["ok"]
        # What a policy binds is not tried at all.
        and (sum(both["left_alone"]["pages"].values()) > 0) == (set(both["kinds"]) != {"bound"})
        and both["mover_share_after_a_minute"] <= 0.05
        # A part of it is tried, and now and then again.
        and tried <= len(both["kinds"]) * STUBBORN_MIB << 8
    )


KINDS = ("shared", "pinned", "bound")
CHECKS = {
    **{kind: functools.partial(beside, [kind], 1) for kind in KINDS},
    "ten": functools.partial(beside, KINDS, 7),
}

if __name__ == "__main__":
    if sys.argv[1] == "--stubborn":
        stubborn(sys.argv[2], int(sys.argv[3]))
    # The kernel's own balancing would bring the hot pages as well.
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    sys.exit(lab.main(CHECKS))
