# SPDX-License-Identifier: Apache-2.0
"""How the tests share workers (pytest-xdist).

Tests of one file run in one worker, in order, since they share guests and built things.
All of host/ is one group: those tests change this kernel's one DAMON and count its events.
The guests of vm/ take longest and start first; unit tests fill the gaps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FIRST = ("vm", "host", "unit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        room = item.path.relative_to(HERE).parts[0]
        return FIRST.index(room) if room in FIRST else len(FIRST)

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return (
                "tests/host"
                if nodeid.startswith("tests/host/")
                else nodeid.split("::", maxsplit=1)[0]
            )

    return ByFile(config, log)
