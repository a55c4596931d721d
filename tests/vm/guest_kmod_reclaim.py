# SPDX-License-Identifier: Apache-2.0
"""A check in a lab guest of what reclaim takes while the scanner is at work: refaults."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
from guest_kmod import Result
from guest_kmod_young import option

CGROUPS = Path("/sys/fs/cgroup")
MIB = 1 << 20
PAGE = 4096
USED_MIB, UNUSED_MIB, LIMIT_MIB = 48, 48, 100
GROWTH_MIB = 32
"""Memory that another process of the group comes to use: most of what is never used has to leave
for it."""
TOUCH_S = 10
TOUCHES_BEFORE = 2
"""While there is room for all."""
GROWTH_S, AFTER_S = 50, 2 * TOUCH_S
"""For how long the other process grows, and then uses what it has."""
GROUPS = 3
"""Of each kind, side by side, each with a limit and processes of its own."""
ALLOWED = 1.05
SAMPLING_INTERVAL_US = 8000
COUNTS = ("pgmajfault", "workingset_refault_anon", "pgsteal")
LRU_GEN = Path("/sys/kernel/mm/lru_gen/enabled")
WORK = f"""
import mmap, os, sys, time
import numpy as np
memory = mmap.mmap(-1, {USED_MIB + UNUSED_MIB} << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
each = np.frombuffer(memory, np.uint8)[::{PAGE}]
used = np.random.default_rng(int(sys.argv[2])).permutation(len(each))[: {USED_MIB * MIB // PAGE}]
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
each[:] = 1
while True:
    print("touched", flush=True)
    time.sleep({TOUCH_S})
    each[used] += 1
"""
"""Has memory of which it uses a half, page by page at random, every ten seconds, and the other
half never again."""
OTHER = f"""
import mmap, os, sys, time
import numpy as np
memory = mmap.mmap(-1, {GROWTH_MIB} << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
grown = np.frombuffer(memory, np.uint8)[::{PAGE}]
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
for second in range(1, {GROWTH_S + AFTER_S} + 1):
    grown[: min(second, {GROWTH_S}) * len(grown) // {GROWTH_S}] += 1
    time.sleep(1)
print("done", flush=True)
time.sleep(1000)
"""
"""Comes to use more and more, all of it each second."""


class Group:
    """A control group with a limit, and the process in it that uses a half of its memory."""

    def __init__(self, name: str, number: int) -> None:
        self.folder = CGROUPS / name
        self.folder.mkdir()
        (self.folder / "memory.max").write_text(str(LIMIT_MIB * MIB))
        command = [sys.executable, "-c", WORK, str(self.folder), str(number)]
        self.processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True)]

    def press(self) -> None:
        """Start the process that grows."""
        command = [sys.executable, "-c", OTHER, str(self.folder)]
        self.processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))

    def await_line(self, count: int = 1) -> None:
        """Wait until the process that was started last has told something so many times."""
        stream = self.processes[-1].stdout
        assert stream is not None
        for _ in range(count):
            assert stream.readline() in ("touched\n", "done\n")

    def counts(self) -> dict[str, int]:
        """Pages that came back from swap, by the faults for them and by the kernel's refaults, and
        those that were reclaimed."""
        lines = (self.folder / "memory.stat").read_text().splitlines()
        stat = {name: int(count) for name, count in map(str.split, lines)}
        return {name: stat[name] for name in COUNTS}

    def end(self) -> int:
        """End its processes, and remove it; how often its pages were used since the other grew."""
        for process in reversed(self.processes):
            process.kill()
            told, _ = process.communicate()
        self.folder.rmdir()
        return told.count("touched")


@contextlib.contextmanager
def swap() -> Iterator[None]:
    """Compressed memory as swap, for the length of a block."""
    subprocess.run(["modprobe", "zram"], check=True)
    if Path("/sys/block/zram0/disksize").read_text() == "0\n":
        Path("/sys/block/zram0/disksize").write_text("1G")
        subprocess.run(["mkswap", "/dev/zram0"], check=True, capture_output=True)
    subprocess.run(["swapon", "/dev/zram0"], check=True)
    try:
        yield
    finally:
        subprocess.run(["swapoff", "/dev/zram0"], check=True)


@contextlib.contextmanager
def lists(which: str) -> Iterator[None]:
    """Reclaim with the multi-generational lists ("generations"), or with two ("active")."""
    if not LRU_GEN.exists():
        yield
        return
    before = LRU_GEN.read_text()
    LRU_GEN.write_text("y" if which == "generations" else "n")
    try:
        yield
    finally:
        LRU_GEN.write_text(before)


def under_pressure() -> dict[str, dict[str, int]]:
    """What came back from swap in groups that are scanned and in others, and was reclaimed."""
    names = [f"{kind}-{number}" for number in range(GROUPS) for kind in ("without", "with")]
    groups = {name: Group(name, number) for number, name in enumerate(names)}
    scanned = [name for name in names if name.startswith("with-")]
    try:
        for group in groups.values():
            group.await_line()
        with lab.connection() as control:
            for number, name in enumerate(scanned):
                control.target_add(number + 1, groups[name].processes[0].pid)
            for group in groups.values():
                group.await_line(TOUCHES_BEFORE)
            for group in groups.values():
                group.press()
            for group in groups.values():
                group.await_line()
            told = {name: group.counts() for name, group in groups.items()}
            stats = control.scan_get().stats
            told["scanner"] = {name: stats[name] for name in ("rounds", "marked")}
    finally:
        touches = {name: group.end() for name, group in groups.items()}
    for name, count in touches.items():
        told[name]["touches"] = count
    return told


def refaults(
    which: str = "generations", sampling_interval_us: int = 0, **parameters: object
) -> Result:
    """Pages used every ten seconds leave no sooner with the scanner than without it."""
    can = option("PAGE_IDLE_FLAG")
    (CGROUPS / "cgroup.subtree_control").write_text("+memory")
    with lab.module(**parameters), swap(), lists(which):
        with lab.connection() as control:
            control.scan_set(sampling_interval_us=sampling_interval_us)
        told = under_pressure()
    sums = {
        kind: {
            count: sum(told[f"{kind}-{number}"][count] for number in range(GROUPS))
            for count in COUNTS
        }
        for kind in ("without", "with")
    }
    bounds = [
        sums["with"][count] <= ALLOWED * sums["without"][count]
        for count in ("pgmajfault", "workingset_refault_anon")
    ]
    return {
        "ok": (all(bounds) or not can or bool(parameters))
        and sums["without"]["pgsteal"] > GROUPS * UNUSED_MIB * MIB // PAGE // 2
        and all(told[name]["touches"] >= GROWTH_S // TOUCH_S for name in told if name != "scanner")
        and told["scanner"]["rounds"] > GROUPS * GROWTH_S // TOUCH_S,
        "can": can,
        **sums,
        "each": told,
    }


CHECKS = {
    "refaults": refaults,
    "refaults_active": functools.partial(refaults, "active"),
    "refaults_sampled": functools.partial(refaults, sampling_interval_us=SAMPLING_INTERVAL_US),
    "refaults_unmarked": functools.partial(refaults, mark_young=0),
}
"""The last one for comparison: what it would be without telling the kernel what was accessed."""

if __name__ == "__main__":
    sys.exit(lab.main(CHECKS))
