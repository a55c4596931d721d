# SPDX-License-Identifier: Apache-2.0
"""How the tests share workers (pytest-xdist).

All of vm/ is one group and starts first: it takes longest, two guests at a time starve each
other on a small host, and tests share them. All of host/ is one group: those tests change
this kernel's one DAMON and count its events. Unit tests are grouped by file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FIRST = ("vm", "host", "unit")
ALONE = ("tests/vm/", "tests/host/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        room = item.path.relative_to(HERE).parts[0]
        return FIRST.index(room) if room in FIRST else len(FIRST)

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByRoom(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path, _, _ = nodeid.partition("::")
            return next((room for room in ALONE if path.startswith(room)), path)

    return ByRoom(config, log)
