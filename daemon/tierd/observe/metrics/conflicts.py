# SPDX-License-Identifier: Apache-2.0
"""Who else moves pages here, asked again now and then.

The questions take milliseconds, and whoever scrapes or asks for the status waits for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from tierd.doctor import conflicting
from tierd.doctor.findings import Finding, Group, all_probes
from tierd.observe.metrics.families import CONFLICT
from tierd.observe.metrics.values import Labels

MAX_AGE_S: Final = 60.0
OWN: Final = "conflict.damon"
"""While DAMON is tierd's source, the kdamond that runs is its own."""


class Conflicts:
    """The latest answers."""

    def __init__(
        self,
        source: Callable[[], str],
        *,
        ask: Callable[[], list[Finding]] = conflicting,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._asked = -MAX_AGE_S
        self._found: list[Finding] = []

    def now(self) -> list[Finding]:
        """The conflicts there are; from any thread."""
        if self._clock() - self._asked >= MAX_AGE_S and self._lock.acquire(blocking=False):
            try:
                self._found = self._ask()
                self._asked = self._clock()
            finally:
                self._lock.release()
        own = self._source() == "damon"
        return [found for found in self._found if not (own and found.id == OWN)]

    def figures(self) -> Mapping[str, Mapping[Labels, float]]:
        """For the collector: 0 or 1 for each conflict that is looked for."""
        there = {found.id for found in self.now()}
        known = [one.id for one in all_probes() if one.group is Group.CONFLICTS]
        return {CONFLICT: {(_short(name),): float(name in there) for name in known}}

    def reported(self) -> list[dict[str, str]]:
        """For the status."""
        return [
            {"conflict": _short(one.id), "reason": one.reason, "hint": one.hint}
            for one in self.now()
        ]


def _short(name: str) -> str:
    return name.removeprefix("conflict.")
