# SPDX-License-Identifier: Apache-2.0
"""How the tests share workers (pytest-xdist).

All of vm/ but test_kmod.py is one group and starts first: it takes longest, and tests share
guests. All of host/ is one group: those tests change this kernel's one DAMON and count its
events. Unit tests are grouped by file. The module's guests come last, so that there are two
guests at a time only when nothing else is left to do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FIRST = ("vm", "host", "unit")
LAST = "vm/test_kmod.py"
ALONE = (f"tests/{LAST}", "tests/vm/", "tests/host/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(HERE)
        if path.as_posix() == LAST:
            return len(FIRST) + 1
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
