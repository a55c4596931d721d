# SPDX-License-Identifier: Apache-2.0
"""Processes that mean harm, followed by the loop's own rooms on this kernel. Needs root.

Whatever they do, following goes on, an honest neighbour is seen whole, and nothing is
left behind. Bounds are of CPU time, not of the clock, so that a busy machine passes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from heat_words import check

from tierd.config.whole import loads
from tierd.core.pagekey import make_keys
from tierd.engine.tracking import Tracking
from tierd.hotness.table import HeatTable
from tierd.workloads.maps import MapReader
from tierd.workloads.registry import TargetRegistry
from tierd.workloads.residency import ResidencyScanner

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

NOT_OURS = 1 << 22
"""A process id that no process has: the tests watch their own children."""
PREAMBLE = """
import ctypes, mmap, os, random, sys
libc = ctypes.CDLL(None)
def call(name): libc.prctl(15, ctypes.create_string_buffer(name), 0, 0, 0)
def touch(size):
    held = mmap.mmap(-1, size, flags=0x22)
    for at in range(0, size, 4096): held[at] = 1
    return held
"""
HONEST = "held = touch(24 << 20); a = ctypes.addressof(ctypes.c_char.from_buffer(held))\n"
HONEST += "print(a >> 12, flush=True); os.read(0, 1)"
READY = "print(0, flush=True)\n"
HOSTILE = {
    "a name of other lines": "call(b'x\\n9) S 1 1 1\\n'); held = touch(20 << 20)\n"
    + READY
    + "os.read(0, 1)",
    "as many mappings as there may be": (
        "most = int(open('/proc/sys/vm/max_map_count').read())\n"
        "n = min(most - 1000, 100_000) // 2; size = 8192 * n\n"
        "held = mmap.mmap(-1, size, flags=0x22); keep = touch(20 << 20)\n"
        "a = ctypes.addressof(ctypes.c_char.from_buffer(held))\n"
        "for i in range(n):\n"
        "    libc.mprotect(ctypes.c_void_p(a + 8192 * i), ctypes.c_size_t(4096), 0)\n"
        + READY
        + "os.read(0, 1)"
    ),
    "mappings that come and go": (
        "keep = touch(20 << 20); held = []\n" + READY + "while True:\n"
        "    held.append(touch(4096 * random.randrange(1, 600)))\n"
        "    if len(held) > 20: held.pop(random.randrange(20)).close()\n"
    ),
    "one program after the other": (
        "keep = touch(20 << 20)\n"
        "if len(sys.argv) < 3: print(0, flush=True)\n"
        "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1], sys.argv[1], 'again'])"
    ),
    "children that end at once": (
        "keep = touch(20 << 20)\n" + READY + "while True:\n"
        "    pid = os.fork()\n"
        "    if pid == 0: os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
    ),
}


@pytest.fixture
def children() -> Iterator[dict[str, tuple[subprocess.Popen[bytes], int]]]:
    """The honest one and the others, ready; and what each said first."""
    made: dict[str, tuple[subprocess.Popen[bytes], int]] = {}
    try:
        for name, script in {"honest": HONEST, **HOSTILE}.items():
            whole = PREAMBLE + script
            child = subprocess.Popen(
                [sys.executable, "-c", whole, whole], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            made[name] = (child, 0)
            assert child.stdout is not None
            made[name] = (child, int(child.stdout.readline()))
        yield made
    finally:
        for child, _ in made.values():
            child.kill()
            child.communicate()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_hostile_processes_neither_stop_nor_mislead_the_loops_rooms(
    children: dict[str, tuple[subprocess.Popen[bytes], int]],
) -> None:
    before = descriptors()
    pids = {name: child.pid for name, (child, _) in children.items()}
    matches = ", ".join(f"{{ pid = {pid} }}" for pid in pids.values())
    settings = loads(f'[targets]\nmatch = {{ any = [{matches}] }}\nmin_rss = "1MiB"\n')
    heat = HeatTable(capacity_pages=200_000, half_life_s=5.0)
    registry = TargetRegistry(settings.targets, own_pid=NOT_OURS)
    tracking = Tracking(registry, ResidencyScanner(), heat, MapReader(), 0)
    spent, rounds, seen = 0.0, 0, set()
    try:
        begun = time.monotonic()
        # Until everything was walked a few times, however busy the machine is.
        while rounds < 40 or time.monotonic() - begun < 3:
            now = time.monotonic_ns()
            used = time.process_time()
            registry.collect()
            tracking.refresh(now)
            heat.advance(now)
            tracking.locate(1000)
            tracking.walk(now, 20_000, insert_on=range(8))
            spent += time.process_time() - used
            rounds += 1
            seen |= set(tracking.pids.values())
            for target in registry.targets.values():
                assert os.fstat(target.pidfd)
        check(heat)
        assert set(pids.values()) <= seen
        assert all(child.poll() is None for child, _ in children.values())
        number = next(n for n, pid in tracking.pids.items() if pid == pids["honest"])
        first = children["honest"][1]
        # A folio of 2 MiB at the edge may begin before the mapping: all else is known.
        page = make_keys(number, np.arange(first, first + 6144, dtype=np.uint64))
        assert np.count_nonzero(heat.where(page) >= 0) == 6144
        # 64 thousand mappings are read now and then; following must stay affordable.
        assert spent / rounds < 2.0
        name = next(
            t.comm for t in registry.targets.values() if t.pid == pids["a name of other lines"]
        )
        assert name.startswith("x")
    finally:
        tracking.close()
    assert descriptors() <= before


def test_targets_that_end_all_at_once_are_let_go(
    children: dict[str, tuple[subprocess.Popen[bytes], int]],
) -> None:
    before = descriptors()
    pids = [child.pid for child, _ in children.values()]
    matches = ", ".join(f"{{ pid = {pid} }}" for pid in pids)
    settings = loads(f'[targets]\nmatch = {{ any = [{matches}] }}\nmin_rss = "1MiB"\n')
    heat = HeatTable(capacity_pages=200_000, half_life_s=5.0)
    registry = TargetRegistry(settings.targets, own_pid=NOT_OURS)
    tracking = Tracking(registry, ResidencyScanner(), heat, MapReader(), 0)
    try:
        for end in (False, True):
            if end:
                for child, _ in children.values():
                    child.kill()
                # Not waited for yet: zombies in the midst of a walk.
                tracking.walk(time.monotonic_ns(), 50_000, insert_on=range(8))
                for child, _ in children.values():
                    child.wait()
            for _ in range(5):
                now = time.monotonic_ns()
                registry.collect()
                tracking.refresh(now)
                heat.advance(now)
                tracking.locate(1000)
                tracking.walk(now, 20_000, insert_on=range(8))
        assert tracking.pids == {}
        assert heat.stats().tracked == 0
    finally:
        tracking.close()
    assert descriptors() <= before
