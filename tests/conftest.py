# SPDX-License-Identifier: Apache-2.0
"""How the tests share workers (pytest-xdist): two, one guest each at a time.

Guests that count instructions, and what shares a guest with them, are one group of vm/ and start
first: it takes longest. All of host/ is one group: those tests change this kernel's one DAMON and
count its events. Unit tests are grouped by file. The files of `LATE` boot guests of their own and
come last, the longest first, so that both workers end at about the same time.
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
FIRST = ("vm", "host", "unit")
LATE = tuple(
    f"vm/test_{name}.py" for name in ("kmod", "neoprof", "ebpf", "systemd", "lab", "topology")
)
ALONE = (*(f"tests/{path}" for path in LATE), "tests/vm/", "tests/host/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(HERE)
        if path.as_posix() in LATE:
            return len(FIRST) + 1 + LATE.index(path.as_posix())
        return FIRST.index(path.parts[0]) if path.parts[0] in FIRST else len(FIRST)

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByRoom(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path, _, _ = nodeid.partition("::")
            return next((room for room in ALONE if path.startswith(room)), path)

    return ByRoom(config, log)
