# SPDX-License-Identifier: Apache-2.0
"""A bounded record of decisions about pages."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd.core.migration import Direction, Fate, MigrationResult
from tierd.core.pagekey import VPN_BITS, U64Array
from tierd.core.reasons import WORDS, Reason
from tierd.migration.fastpath_update import OUTCOME
from tierd.migration.results import write

ENTRY: Final = OUTCOME
"""A decision, as the promoter tells it: `heat` it was made on, `bar` that heat had to pass (NaN
where there was none), `node` the page was on afterwards."""


class DecisionLog:
    """The latest decisions about pages; older ones are overwritten and counted.

    They are kept as they come: thousands do in a pass, and nobody may ever ask.

    Args:
        space: the most decisions kept (40 bytes each).
    """

    def __init__(self, space: int = 1 << 17) -> None:
        self._rows: U64Array = np.zeros((space, ENTRY.itemsize // 8), np.uint64)
        self._entries: npt.NDArray[np.void] = self._rows.view(ENTRY)[:, 0]
        self._written = 0

    @property
    def overwritten(self) -> int:
        """Decisions that are not known any more."""
        return max(0, self._written - len(self._entries))

    def add(self, decisions: npt.NDArray[np.void]) -> None:
        """Add decisions, `ENTRY`[n], in order."""
        if not len(decisions):
            return
        rows = decisions.view(np.uint64).reshape(len(decisions), -1)[-len(self._rows) :]
        start, first = self._space(len(decisions))
        self._rows[start : start + first] = rows[:first]
        self._rows[: len(rows) - first] = rows[first:]

    def add_report(self, report: MigrationResult, time_ns: int) -> None:
        """Add what became of a plan."""
        n = len(report.plan)
        if n:
            start, first = self._space(n)
            rest = min(n, len(self._entries)) - first
            write(report, time_ns, (self._entries[start : start + first], self._entries[:rest]))

    def _space(self, n: int) -> tuple[int, int]:
        """Where the last of n more decisions go, and how many until they go on at the start."""
        kept = min(n, len(self._entries))
        start = (self._written + n - kept) % len(self._entries)
        self._written += n
        return start, min(kept, len(self._entries) - start)

    def of_page(self, key: int, most: int = 16) -> npt.NDArray[np.void]:
        """The latest decisions, `ENTRY`[≤ most], about a page or its 2 MiB folio, newest first."""
        ages = (self._written - 1 - np.arange(len(self._entries))) % len(self._entries)
        head = key & ~0x1FF
        known = self._entries["time_ns"] != 0
        index = np.flatnonzero(known & np.isin(self._entries["page"], (key, head)))
        found: npt.NDArray[np.void] = self._entries[index[np.argsort(ages[index])][:most]]
        return found

    def of_target(self, target: int) -> npt.NDArray[np.void]:
        """All decisions known, `ENTRY`[n], about a target's pages."""
        known = self._entries["time_ns"] != 0
        ours = self._entries["page"] >> np.uint64(VPN_BITS) == target
        found: npt.NDArray[np.void] = self._entries[known & ours]
        return found


def what(direction: int, fate: int, reason: int) -> str:
    """What was done, in a word or two."""
    way = "promot" if direction == Direction.PROMOTE else "demot"
    if fate == Fate.MOVED:
        return way + "ed"
    if fate == Fate.NOT_TRIED:
        return "held back" if reason > Reason.MAKES_ROOM else way + "ion not tried"
    return way + "ion failed"


def entry_of(entry: Any) -> dict[str, Any]:
    """One decision of the log for JSON."""
    bar = float(entry["bar"])
    return {
        "time_ns": int(entry["time_ns"]),
        "what": what(int(entry["direction"]), int(entry["fate"]), int(entry["reason"])),
        "why": WORDS[Reason(int(entry["reason"]))],
        "heat": round(float(entry["heat"]), 3),
        "bar": round(bar, 3) if np.isfinite(bar) else None,
        "fate": Fate(int(entry["fate"])).name.lower(),
        "node": int(entry["node"]) if entry["node"] >= 0 else None,
    }


def counts_of(entries: npt.NDArray[np.void]) -> dict[str, dict[str, int]]:
    """What was done → why → decisions."""
    told: dict[str, dict[str, int]] = {}
    code = (
        entries["direction"].astype(np.int64) << 16
        | entries["fate"].astype(np.int64) << 8
        | entries["reason"]
    )
    for value, count in zip(*np.unique(code, return_counts=True), strict=True):
        word = what(int(value) >> 16, int(value) >> 8 & 0xFF, int(value) & 0xFF)
        why = WORDS[Reason(int(value) & 0xFF)]
        kinds = told.setdefault(word, {})
        kinds[why] = kinds.get(why, 0) + int(count)
    return told
