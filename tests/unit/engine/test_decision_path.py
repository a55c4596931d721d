# SPDX-License-Identifier: Apache-2.0
"""The modules between a page's access and its move are those of docs/develop/decision-path.md."""

from __future__ import annotations

import mmap
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import golden
import numpy as np

from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.migration import Direction, MigrationPlan
from tierd.core.pagekey import make_keys
from tierd.engine.tick import Tick
from tierd.engine.tracking import Tracking
from tierd.migration import NativeMover
from tierd.workloads.residency import ResidencyScanner

PAGE = Path(__file__).resolve().parents[3] / "docs/develop/decision-path.md"
LISTENS = ("tierd.observe.", "tierd.replay.", "tierd.core.quantiles")
"""They hear of a decision, or of how long something took, and take no part in it."""


class Called:
    """Notes the modules of tierd whose code runs while a function does."""

    def __init__(self) -> None:
        self.modules: set[str] = set()

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        del argument
        name = str(frame.f_globals.get("__name__", ""))
        if event == "call" and name.startswith("tierd.") and not name.startswith(LISTENS):
            self.modules.add(name)

    def by(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, noted."""

        def noted(*args: Any, **more: Any) -> Any:
            before = sys.getprofile()
            sys.setprofile(self._note)
            try:
                return function(*args, **more)
            finally:
                sys.setprofile(before)

        return noted


def tracking_of_this_process() -> Tracking:
    """The part of the service that knows where pages are, which the recorded loop has made up."""
    registry: Any = SimpleNamespace(targets={0: SimpleNamespace(pid=os.getpid())})
    reads: Any = SimpleNamespace(one=lambda pid, key, function: function())
    unused: Any = None
    return Tracking(registry, ResidencyScanner(), unused, unused, 1, reads=reads)


def where_pages_are_and_a_move(tracking: Tracking) -> None:
    """What the recorded loop is given made up: this process' pages, and a move of some."""
    data = mmap.mmap(-1, 1 << 20)
    data.madvise(mmap.MADV_NOHUGEPAGE)  # no page of a folio that ends elsewhere
    pages = np.frombuffer(data, np.uint8)
    pages[:] = 1
    first = pages.ctypes.data >> 12
    target = WatchedTarget(0, os.getpid(), (WatchedRange(first, first + 256),))
    assert len(ResidencyScanner().scan(target, 0, 256).page)
    n = 8
    own = make_keys(0, np.arange(first, first + n, dtype=np.uint64))
    assert (tracking.where(own)[0] >= 0).all()
    plan = MigrationPlan(
        page=make_keys(0, np.arange(first + 1, first + 1 + n, dtype=np.uint64)),
        order=np.zeros(n, np.uint8),
        source=np.zeros(n, np.int16),
        dest=np.zeros(n, np.int16),
        direction=np.full(n, Direction.PROMOTE, np.uint8),
        heat=np.ones(n, np.float32),
    )
    assert len(NativeMover(rate_bytes_per_s=1 << 30).execute(plan, {0: os.getpid()}).plan) == n


def test_the_page_lists_the_modules_that_a_pages_way_takes(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """A golden run of the loop with accessed bits, where pages are, and the mover."""
    called = Called()
    monkeypatch.setattr(Tick, "run", called.by(Tick.run))
    golden.record_scan(tmp_path / "scan.rec")
    called.by(where_pages_are_and_a_move)(tracking_of_this_process())
    listed = re.findall(r"^\| `(tierd\.[a-z_.]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert sorted(called.modules) == sorted(listed)


def test_the_page_counts_what_it_lists() -> None:
    text = PAGE.read_text()
    modules = re.findall(r"^\| `tierd\.", text, re.MULTILINE)
    gates = re.findall(r"^\| \d+ \|", text, re.MULTILINE)
    assert f"{len(modules)} modules" in text
    assert f"{len(gates)} gates" in text
