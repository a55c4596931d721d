# SPDX-License-Identifier: Apache-2.0
"""Which processes are read at a refresh: all, those that events name, or those not at rest."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd.core.errors import TargetGoneError
from tierd.workloads.events import ProcessEvents
from tierd.workloads.procs import Stat, list_pids, reported_stat, stat_text

FULL_POLL_NS: Final = 60 * 10**9
"""With process events, all of /proc is still read once in this time, as a safety net."""
REST: Final = 2
"""With process events, a small process, or a target that did nothing, is passed over in so many
refreshes after one in which it was read."""
_YOUNG: Final = 3
"""Readings of a new process before that: it may be growing."""


@dataclass(slots=True)
class _Seen:
    """The last reading of a process, and how it is gone on with."""

    text: bytes
    stat: Stat
    readings: int = 0
    rest: int = 0


class Readings:
    """The last reading of every user process; `read` makes new ones.

    Args:
        root: /proc, or a tree like it.

    Attributes:
        full_polls: times all of /proc was read.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[int, _Seen] = {}
        self._last_full_ns = 0
        self.full_polls = 0

    def wake(self) -> None:
        """Nobody rests at the next refresh."""
        for seen in self._seen.values():
            seen.rest = 0

    def read(
        self,
        events: ProcessEvents | None,
        now_ns: int,
        watched: Container[int],
        large_bytes: int,
    ) -> tuple[dict[int, Stat], set[int]]:
        """Stat of every user process, by pid, and those that were passed over.

        Args:
            events: since the last call; None where there are none to be had.
            now_ns: CLOCK_MONOTONIC.
            watched: pids that rest only while they do nothing.
            large_bytes: others with so much resident memory never rest: they may be put into
                another control group, of which no event tells.
        """
        due = now_ns - self._last_full_ns >= FULL_POLL_NS
        if events is None or events.lost or due:
            self.full_polls += 1
            self._last_full_ns = now_ns
            pids: set[int] = set(list_pids(self._root))
            anew = pids
        else:
            pids = (self._seen.keys() - events.ended) | events.started | events.executed
            anew = events.started | events.executed | events.changed
        stats, rested, all_seen = {}, set(), {}
        for pid in pids:
            seen = self._seen.get(pid)
            if seen is not None and seen.rest and pid not in anew:
                seen.rest -= 1
                rested.add(pid)
            else:
                seen = self._look(pid, seen, pid in watched, large_bytes)
            if seen is not None:
                stats[pid], all_seen[pid] = seen.stat, seen
        self._seen = all_seen
        return stats, rested

    def _look(
        self, pid: int, before: _Seen | None, watched: bool, large_bytes: int
    ) -> _Seen | None:
        """Read a process; None if there is none, or none of a user's."""
        try:
            text = stat_text(pid, self._root)
            same = before is not None and before.text == text
            stat = before.stat if before is not None and same else reported_stat(text, pid)
        except TargetGoneError:
            return None
        if stat.kernel_thread or stat.ended:
            return None
        if before is None or before.stat.start_time != stat.start_time:
            return _Seen(text, stat)
        quiet, small = before.stat.activity == stat.activity, stat.rss_bytes < large_bytes
        idle = quiet if watched else small
        before.text, before.stat = text, stat
        before.readings += 1
        before.rest = REST if idle and before.readings >= _YOUNG else 0
        return before
