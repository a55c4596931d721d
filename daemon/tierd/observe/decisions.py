# SPDX-License-Identifier: Apache-2.0
"""A bounded record of decisions about pages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tierd.core import bounds
from tierd.core.migration import WORDS, Direction, Fate, MigrationResult, Reason, U8Array
from tierd.core.pagekey import BoolArray, U64Array, target_of
from tierd.migration.fastpath_update import OUTCOME, OutcomeArray, join
from tierd.migration.results import outcomes_of

ENTRY: Final = OUTCOME
"""A decision, as the promoter tells it: `heat` it was made on, `bar` that heat had to pass (NaN
where there was none), `node` the page was on afterwards."""


class DecisionLog:
    """The latest decisions about pages; older ones are dropped and counted.

    Plans and outcomes are kept as they come, because thousands do in a tick and nobody may ever
    ask. They are searched when somebody does. `space` is how many are kept, at up to 48 bytes each.
    """

    def __init__(self, space: int = 1 << 17) -> None:
        self._space = space
        self._parts: deque[tuple[int, OutcomeArray | MigrationResult]] = deque()
        self._kept = self._dropped = 0

    @property
    def overwritten(self) -> int:
        """Decisions that are not known any more."""
        return self._dropped + max(0, self._kept - self._space)

    def add(self, outcomes: OutcomeArray) -> None:
        """Add decisions, `ENTRY`[n], in order; the log keeps the array."""
        self._add(0, outcomes, len(outcomes))

    def add_report(self, report: MigrationResult, time_ns: int) -> None:
        """Add what became of a plan."""
        self._add(time_ns, report, len(report.plan))

    def _add(self, time_ns: int, part: OutcomeArray | MigrationResult, n: int) -> None:
        if not n:
            return
        self._parts.append((time_ns, part))
        self._kept += n
        while len(self._parts) > bounds.LOGGED_PLANS or (
            self._kept - len(_pages(self._parts[0][1])) >= self._space
        ):
            dropped = len(_pages(self._parts.popleft()[1]))
            self._kept -= dropped
            self._dropped += dropped

    def _entries(self, chosen: Callable[[U64Array, U8Array], BoolArray]) -> OutcomeArray:
        """Decisions kept about folios that `chosen` says by page key and order, oldest first."""
        found, skipped = [], self._kept - self._space
        for time_ns, part in self._parts:
            pages = _pages(part)
            orders = part.plan.order if isinstance(part, MigrationResult) else part["order"]
            at = np.flatnonzero(chosen(pages, orders))
            if skipped > 0:
                at, skipped = at[at >= skipped], skipped - len(pages)
            found.append(
                outcomes_of(part, time_ns, at) if isinstance(part, MigrationResult) else part[at]
            )
        return join(found)

    def every(self) -> OutcomeArray:
        """All decisions kept, `ENTRY`[n], oldest first."""
        return self._entries(lambda pages, orders: np.ones(len(pages), np.bool_))

    def of_page(self, key: int, most: int = 16) -> OutcomeArray:
        """The latest decisions, `ENTRY`[≤ most], about a page or its 2 MiB folio, newest first."""
        own, head = np.uint64(key), np.uint64(key & ~0x1FF)
        return self._entries(lambda pages, orders: (pages == own) | (pages == head) & (orders > 0))[
            ::-1
        ][:most]

    def of_target(self, target: int) -> OutcomeArray:
        """All decisions known, `ENTRY`[n], about a target's pages."""
        return self._entries(lambda pages, orders: target_of(pages) == target)


def _pages(part: OutcomeArray | MigrationResult) -> U64Array:
    pages: U64Array = part.plan.page if isinstance(part, MigrationResult) else part["page"]
    return pages


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


def counts_of(entries: OutcomeArray) -> dict[str, dict[str, int]]:
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
