# SPDX-License-Identifier: Apache-2.0
"""How the tests share workers (pytest-xdist): two, each of which mostly has one guest at a time.

A room is a part of the tests that one worker runs, because they share guests, packages that were
built, or this kernel, whose one DAMON the tests of host/ change. `SHARED` has the rooms of several
files, and each other file is a room of its own. A worker that is free takes the next room. Those
that take longest come first, and unit tests, which are small, last, so that both workers end at
about the same time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes says how busy the host is.
settings.register_profile("tierd", deadline=None)
settings.load_profile("tierd")

HERE = Path(__file__).parent
GUESTS = ("vm/test_loop.py", "vm/test_pod.py", "vm/test_topology.py", "vm/test_lab.py")
"""They ask for the same guests."""
PACKAGES = ("host/", "vm/test_systemd.py")
"""They build the same packages and base system, if it is not there."""
SHARED = (GUESTS, PACKAGES)
"""Rooms of several files."""
ORDER = (
    "vm/test_kmod.py",
    *GUESTS,
    "vm/test_hbm.py",
    *PACKAGES,
    *(f"vm/test_{name}.py" for name in ("neomem", "ebpf", "bench", "neoprof")),
    "vm/",
    "unit/policy/test_cost",
    "unit/",
)
"""Begins of paths, what takes longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(HERE).as_posix()
        found = (number for number, begin in enumerate(ORDER) if path.startswith(begin))
        return next(found, len(ORDER))

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByRoom(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            begins = next((r for r in SHARED if path.removeprefix("tests/").startswith(r)), None)
            return path if begins is None else " ".join(begins)

    return ByRoom(config, log)
