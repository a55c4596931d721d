# SPDX-License-Identifier: Apache-2.0
"""The service's own pages stay in memory (in processes of their own: a lock lasts)."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tierd.service import resident

LOCKED = """
import resource
from tierd.service.resident import stay_resident

locked = stay_resident()
limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
with open("/proc/self/status") as status:
    kib = next(int(line.split()[1]) for line in status if line.startswith("VmLck"))
print(locked, limit == resource.RLIM_INFINITY, kib)
"""

LOADED = """
import sys
import numpy as np
from tierd.service.resident import load_all

load_all()
before = set(sys.modules)
np.unique(np.array([3, 1, 3]))
print(*sorted(set(sys.modules) - before))
"""


def test_a_pass_loads_nothing_that_numpy_puts_off() -> None:
    told = subprocess.run(
        [sys.executable, "-c", LOADED], check=True, capture_output=True, text=True
    )
    assert told.stdout.split() == []


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
