# SPDX-License-Identifier: Apache-2.0
"""The service's own pages stay in memory (in processes of their own: a lock lasts)."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tierd.engine import process as resident

LOCKED = """
import resource
from tierd.engine.process import stay_resident

locked = stay_resident()
limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
with open("/proc/self/status") as status:
    kib = next(int(line.split()[1]) for line in status if line.startswith("VmLck"))
print(locked, limit == resource.RLIM_INFINITY, kib)
"""

LOADED = """
import sys
from pathlib import Path
import numpy as np
from tierd.engine.process import load_all

load_all(Path(sys.argv[1]))
if "pyroute2.netlink" not in sys.modules:
    sys.exit("no pyroute2")
before = set(sys.modules)
np.unique(np.array([3, 1, 3]))
import tierd.sources.kmod.genl as genl
genl._message_class()
from pyroute2.netlink import ctrlmsg
before |= {name for name in sys.modules if name.startswith("tierd")}
print(*sorted(set(sys.modules) - before))
"""

CYCLES = """
import gc, weakref
from tierd.engine.process import rest_collector

rest_collector()
looks = gc.get_stats()[0]["collections"]
kept = [[] for _ in range(5000)]
print(gc.get_freeze_count() > 1000, gc.get_stats()[0]["collections"] - looks)
class Ring: pass
ring = Ring()
ring.ring = ring
gone = weakref.ref(ring)
del ring
kept += [[] for _ in range(50_000)]
print(gone() is None)
"""


PIECES = """
import resource, sys
import numpy as np
from tierd.engine.process import keep_heap

kept = sys.argv[1] == "kept" and keep_heap()
faults = []
for _ in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    pieces = [np.ones(size << 20, np.uint8) for size in (1, 2, 3)]
    del pieces
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(kept, sum(faults))
"""


@pytest.mark.parametrize("how", ["kept", "as it is"])
def test_what_a_pass_gives_back_is_used_again(how: str) -> None:
    command = [sys.executable, "-c", PIECES, how]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert told[0] == str(how == "kept")
    # With large pages a piece is a few faults, without 256 a MiB.
    assert (int(told[1]) < 18) == (how == "kept")


HUGE = """
import mmap
import re
from tierd.engine.process import keep_heap

kept = keep_heap()
piece = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
piece.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, len(piece), 2 << 20):
    piece[at] = 1
with open("/proc/self/smaps_rollup") as file:
    told = re.search(r"AnonHugePages: *([0-9]+) kB", file.read())
print(kept, int(told[1]))
"""


def test_none_of_its_memory_comes_as_2_mib_pages() -> None:
    told = subprocess.run([sys.executable, "-c", HUGE], check=True, capture_output=True, text=True)
    kept, huge_kib = told.stdout.split()
    assert kept == "True"
    assert int(huge_kib) == 0


def test_a_pass_loads_nothing_that_numpy_puts_off(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOADED, str(tmp_path)]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    assert told.stdout.split() == []


def test_without_the_kernel_module_nothing_is_loaded_that_speaks_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOADED, str(tmp_path / "none")]
    told = subprocess.run(command, check=False, capture_output=True, text=True)
    assert told.stderr.strip() == "no pyroute2"


def test_what_is_mapped_is_locked_without_a_limit_or_not_at_all() -> None:
    told = subprocess.run(
        [sys.executable, "-c", LOCKED], check=True, capture_output=True, text=True
    )
    locked, unlimited, kib = told.stdout.split()
    assert (locked == "True") == (int(kib) > 0)
    assert locked == "False" or unlimited == "True"


def test_with_a_limit_nothing_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(which: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (65536, 65536))
    monkeypatch.setattr(resource, "setrlimit", refused)
    monkeypatch.setattr(resident.ctypes, "CDLL", None)
    assert resident.stay_resident() is False


def test_python_looks_for_cycles_rarely_and_finds_them() -> None:
    told = subprocess.run(
        [sys.executable, "-c", CYCLES], check=True, capture_output=True, text=True
    )
    assert told.stdout.split() == ["True", "0", "True"]
