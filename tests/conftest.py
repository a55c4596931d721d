# SPDX-License-Identifier: Apache-2.0
"""How the tests share two workers (pytest-xdist, `--dist loadgroup`).

Tests of one file run in one worker, in order, since they share guests and built things.
All of host/ is one group: those tests change this kernel's one DAMON and count its events.
The guests of vm/ take longest and start first; unit tests fill the gaps.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
FIRST = ("vm", "host", "unit")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def room(item: pytest.Item) -> str:
        return item.path.relative_to(HERE).parts[0]

    items.sort(key=lambda item: FIRST.index(room(item)) if room(item) in FIRST else len(FIRST))
    for item in items:
        where = "host" if room(item) == "host" else item.path.relative_to(HERE).with_suffix("")
        item.add_marker(pytest.mark.xdist_group(str(where)))
