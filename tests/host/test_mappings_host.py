# SPDX-License-Identifier: Apache-2.0
"""What may be moved of real processes on the running kernel. Needs root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tierd.core.errors import TargetGoneError
from tierd.workloads.maps import MapReader, movable_ranges
from tierd.workloads.procs import read_stat

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

CHILD = Path(__file__).with_name("targets_child.py")
WAIT = "import os, sys; b = bytearray(32 << 20); print('ready', flush=True); os.read(0, 1)"
Spawn = Callable[..., subprocess.Popen[bytes]]


def test_each_sort_of_mapping_of_a_real_process(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, str(CHILD), str(tmp_path), "lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        told = json.loads(child.stdout.readline())
        found = movable_ranges(child.pid)
        movable = {
            name
            for name, page in told["places"].items()
            if any(item.start <= page and page + 64 <= item.end for item in found.ranges)
        }
    finally:
        child.communicate(b"xx")
    wanted = {"plain", "local", "file_shared", "memfd", "anonymous_shared"}
    assert movable == wanted - set(told["refused"])
    reasons = {"prefer": "bound", "bind": "bound", "prefer_many": "bound", "locked": "locked",
               "interleave": "interleaved", "weighted": "interleaved"}  # fmt: skip
    for reason in set(reasons.values()):
        count = sum(kind == reason for name, kind in reasons.items() if name in told["places"])
        assert found.skipped.get(reason, 0) == 64 * count


def test_a_policy_of_the_whole_process_counts(spawn: Spawn) -> None:
    script = (
        "import ctypes, platform; number = {'x86_64': 238, 'aarch64': 237}[platform.machine()]\n"
        "mask = ctypes.c_ulong(1); libc = ctypes.CDLL(None)\n"
        "assert libc.syscall(number, 2, ctypes.byref(mask), ctypes.c_ulong(64)) == 0\n"
    )
    child = spawn(script + WAIT)
    found = movable_ranges(child.pid)
    assert found.ranges == ()
    assert found.skipped["bound"] >= (32 << 20) >> 12


def test_policies_are_not_read_again_while_nothing_changes(spawn: Spawn) -> None:
    child = spawn(WAIT)
    reader = MapReader()
    stat = read_stat(child.pid)
    first = reader.movable_ranges(stat, 0)
    for tick in range(50):
        assert reader.movable_ranges(stat, tick) is first
    assert reader.policy_reads == 1
    child.kill()
    child.wait()
    with pytest.raises(TargetGoneError):
        reader.movable_ranges(stat, 51)


def test_a_process_with_very_many_mappings_is_read(spawn: Spawn) -> None:
    """As many as the kernel lets a process have; their permissions keep them apart."""
    most = int(Path("/proc/sys/vm/max_map_count").read_text())
    count = min(most - 1000, 100_000) // 2 * 2
    script = (
        f"import ctypes, mmap, os; n = {count} // 2\n"
        "libc = ctypes.CDLL(None); size = 4096 * 2 * n; m = mmap.mmap(-1, size, flags=0x22)\n"
        "a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n"
        "for i in range(n): "
        "libc.mprotect(ctypes.c_void_p(a + 8192 * i), ctypes.c_size_t(4096), 0)\n"
        "print(flush=True); os.read(0, 1)"
    )
    child = spawn(script)
    assert len(Path(f"/proc/{child.pid}/maps").read_bytes().splitlines()) > count - 10
    found = movable_ranges(child.pid)
    assert found.skipped["inaccessible"] >= count // 2
    assert found.skipped["tiny"] >= count // 2 - 1


def test_mappings_that_change_under_us_are_no_error(spawn: Spawn) -> None:
    script = (
        "import mmap, random\nprint(flush=True)\nheld = []\n"
        "while True:\n"
        "    held.append(mmap.mmap(-1, 4096 * random.randrange(1, 400), flags=0x22))\n"
        "    if len(held) > 50: held.pop(random.randrange(50)).close()\n"
    )
    child = spawn(script)
    stat = read_stat(child.pid)
    reader = MapReader(policy_interval_ns=0)
    for tick in range(200):
        found = reader.movable_ranges(stat, tick * 10**9)
        assert all(a.end < b.start for a, b in zip(found.ranges, found.ranges[1:], strict=False))
    assert reader.policy_reads > 1
