# SPDX-License-Identifier: Apache-2.0
"""Which control groups have figures of their own, so that labels stay bounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OTHER: Final = "other"
"""The label value of everything that is folded."""
_LONGEST: Final = 256


def label(text: str) -> str:
    """`text` as a label value: valid UTF-8 without control characters, and not long."""
    shown = text.encode("utf-8", "backslashreplace").decode()
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown[:_LONGEST])
    return shown[:_LONGEST]


class Groups:
    """The control groups told apart: those with the most resident memory.

    A group keeps its place as long as it has processes, so that its counters go on.

    Args:
        limit: most of them.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: set[str] = set()
        self.folded = 0
        """Groups that were folded at the last `choose`."""

    def choose(self, resident: Mapping[str, float]) -> frozenset[str]:
        """Choose anew among the groups there are, with their resident memory; who lost a place."""
        gone = self._kept - resident.keys()
        self._kept -= gone
        waiting = sorted(resident.keys() - self._kept, key=lambda group: (-resident[group], group))
        space = max(0, self._limit - len(self._kept))
        self._kept.update(waiting[:space])
        self.folded = len(waiting[space:])
        return frozenset(gone)

    def name(self, group: str) -> str:
        """The group's label value: its own name, or "other"."""
        return group if group in self._kept else OTHER
