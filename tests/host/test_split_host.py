# SPDX-License-Identifier: Apache-2.0
"""2 MiB folios of another process, split from outside by the native mover on this kernel."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from tierd.core.migration import Direction, Fate, MigrationPlan, SplitFate
from tierd.core.pagekey import make_keys
from tierd.migration import NativeMover

pytestmark = pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(),
    reason="this kernel was built without transparent huge pages",
)
NODES = Path("/sys/devices/system/node")
HUGE = 512
FOLIOS = 3
TARGET = 7
CHILD = f"""
import ctypes, hashlib, mmap, sys
size = {HUGE} * 4096
memory = mmap.mmap(-1, {FOLIOS + 1} * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
start = -(-base // size) * size
ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t({FOLIOS} * size), 14)
at = start - base
for page in range({FOLIOS} * {HUGE}):
    memory[at + page * 4096 : at + (page + 1) * 4096] = hashlib.sha256(b"%d" % page).digest() * 128
# Now, whatever khugepaged and the kernel's settings would do (MADV_COLLAPSE, Linux 6.1).
ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t({FOLIOS} * size), 25)
print(start // 4096, flush=True)
for line in sys.stdin:
    wrong = sum(
        memory[at + page * 4096 : at + (page + 1) * 4096]
        != hashlib.sha256(b"%d" % page).digest() * 128
        for page in range({FOLIOS} * {HUGE})
    )
    print(wrong, flush=True)
"""


@dataclass
class Child:
    """A process with `FOLIOS` 2 MiB folios, whose every page has content of its own."""

    process: subprocess.Popen[str]
    vpn: int

    @property
    def huge_kib(self) -> int:
        """AnonHugePages of the mapping, KiB."""
        text = Path(f"/proc/{self.process.pid}/smaps").read_text()
        for part in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", text):
            low, high = (int(bound, 16) for bound in part.split()[0].split("-"))
            if low <= self.vpn * 4096 < high:
                found = re.search(r"AnonHugePages: +(\d+) kB", part)
                return int(found[1]) if found else 0
        return 0

    def wrong_pages(self) -> int:
        """Pages whose content is not what the process wrote."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        stdin.write("look\n")
        stdin.flush()
        return int(stdout.readline())

    def key(self, *folios: int) -> np.ndarray:
        vpn = np.array([self.vpn + HUGE * each for each in folios], np.uint64)
        return make_keys(TARGET, vpn)


@pytest.fixture
def child() -> Iterator[Child]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    made = Child(process, int(process.stdout.readline()))
    try:
        yield made
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def huge(child: Child) -> Child:
    assert child.huge_kib == FOLIOS * 2048
    return child


@pytest.fixture
def mover() -> Iterator[NativeMover]:
    made = NativeMover(rate_bytes_per_s=1 << 30)
    yield made
    made.close()


def plan(split: np.ndarray) -> MigrationPlan:
    return replace(MigrationPlan.empty(), split=split)


def test_a_folio_is_split_and_keeps_its_content(huge: Child, mover: NativeMover) -> None:
    report = mover.execute(plan(huge.key(1)), {TARGET: huge.process.pid})
    assert report.split_fate.tolist() == [SplitFate.DONE]
    assert (len(report.fate), report.moved_bytes) == (0, 0)
    assert huge.huge_kib == (FOLIOS - 1) * 2048
    assert huge.wrong_pages() == 0


def test_all_folios_of_a_plan_are_split(huge: Child, mover: NativeMover) -> None:
    split = huge.key(*range(FOLIOS))
    report = mover.execute(plan(split), {TARGET: huge.process.pid})
    assert report.split_fate.tolist() == [SplitFate.DONE] * FOLIOS
    assert huge.huge_kib == 0
    assert huge.wrong_pages() == 0
    again = mover.execute(plan(split), {TARGET: huge.process.pid})
    assert again.split_fate.tolist() == [SplitFate.ALREADY] * FOLIOS


def test_memory_that_is_not_there_is_gone(child: Child, mover: NativeMover) -> None:
    child.vpn = HUGE  # the lowest 4 MiB hold nobody's memory
    report = mover.execute(plan(child.key(0)), {TARGET: child.process.pid})
    assert report.split_fate.tolist() == [SplitFate.GONE]


def test_a_process_that_ended_is_gone(child: Child, mover: NativeMover) -> None:
    pids = {TARGET: child.process.pid}
    mover.execute(plan(child.key()), pids)  # it is held from now on
    child.process.kill()
    child.process.wait()
    assert mover.execute(plan(child.key(0, 1)), pids).split_fate.tolist() == [SplitFate.GONE] * 2


def test_a_target_that_nobody_knows_is_gone(child: Child, mover: NativeMover) -> None:
    assert mover.execute(plan(child.key(0)), {}).split_fate.tolist() == [SplitFate.GONE]


def test_a_stopped_mover_splits_nothing(huge: Child, mover: NativeMover) -> None:
    mover.stop()
    report = mover.execute(plan(huge.key(0)), {TARGET: huge.process.pid})
    assert report.split_fate.tolist() == [SplitFate.NOT_TRIED]
    assert huge.huge_kib == FOLIOS * 2048


def test_pages_of_a_whole_folio_are_not_moved_as_single_pages(
    huge: Child, mover: NativeMover
) -> None:
    """Pages of the split one are tried, and refused: no host needs to have a second node."""
    pids = {TARGET: huge.process.pid}
    mover.execute(plan(huge.key(0)), pids)
    pages = np.concatenate([huge.key(folio) + np.uint64(at) for folio in (0, 1) for at in (5, 400)])
    none_there = max(int(each.name[4:]) for each in NODES.glob("node[0-9]*")) + 1
    moves = replace(
        MigrationPlan.empty(),
        page=pages,
        order=np.zeros(4, np.uint8),
        source=np.zeros(4, np.int16),
        dest=np.full(4, none_there, np.int16),
        direction=np.full(4, Direction.PROMOTE, np.uint8),
        heat=np.ones(4, np.float32),
    )
    report = mover.execute(moves, pids)
    assert report.fate.tolist() == [Fate.REFUSED] * 2 + [Fate.JOINED] * 2
    assert report.moved_bytes == 0
    assert (report.node[2:] >= 0).all()
    assert huge.huge_kib == (FOLIOS - 1) * 2048
    assert huge.wrong_pages() == 0


def test_folios_that_several_processes_map_are_left_whole(mover: NativeMover) -> None:
    forks = CHILD.replace(
        "print(start", "import os\nif os.fork() == 0: sys.exit(sys.stdin.read())\nprint(start"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", forks], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        made = Child(process, int(process.stdout.readline()))
        assert made.huge_kib == FOLIOS * 2048
        report = mover.execute(plan(made.key(0)), {TARGET: process.pid})
        assert report.split_fate.tolist() == [SplitFate.REFUSED]
        assert made.huge_kib == FOLIOS * 2048
    finally:
        process.communicate()  # both read the end of their input
