# SPDX-License-Identifier: Apache-2.0
"""How far a part of the service decides again as it did: `Part`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

MISSING: Final = "ticks are missing from here on"
DROPPED: Final = "the recorder had no room for some of what it was told"


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that is not the recorded one: the tick, what was decided, and both values."""

    tick: int
    what: str
    recorded: Any
    replayed: Any


@dataclass
class Part:
    """One part's replay.

    Attributes:
        name: of the part.
        decisions: that were made again.
        differing: of those, that are not the recorded ones.
        first: the first of them.
        ended: why decisions were not made again to the end, "" where they were.
    """

    name: str
    decisions: int = 0
    differing: int = 0
    first: Difference | None = None
    ended: str = ""

    def count(self, tick: int, what: str, recorded: Any, replayed: Any) -> bool:
        """One decision; true if it is the recorded one. Both values are plain."""
        self.decisions += 1
        # As text: not a number is the same as itself here, and 1 is not 1.0.
        if recorded is replayed or repr(recorded) == repr(replayed):
            return True
        self.differing += 1
        self.first = self.first or Difference(tick, what, recorded, replayed)
        return False

    def end(self, reason: str) -> None:
        """No more decisions can be made again."""
        self.ended = self.ended or reason
