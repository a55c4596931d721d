# SPDX-License-Identifier: Apache-2.0
"""Which processes are read when: at a refresh, and in the seconds after they began.

A refresh reads all processes, those that events name, or those that are not at rest
(`Readings`). It comes every few seconds, and a program that has just begun has no memory yet:
without `NewProcesses`, which are looked at more often until they have grown to be targets, a
program would be found up to a whole interval after it has taken what it needs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from tierd.core import bounds
from tierd.core.errors import TargetGoneError
from tierd.workloads.events import ProcessEvents
from tierd.workloads.procs import Stat, list_pids, reported_stat, stat_text


@dataclass(slots=True)
class _Seen:
    """The last reading of a process, and how it is gone on with."""

    text: bytes
    stat: Stat
    readings: int = 0
    rest: int = 0


class Readings:
    """The last reading of every user process; `read` makes new ones.

    Attributes:
        full_polls: times all of /proc was read.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[int, _Seen] = {}
        self._last_full_ns = 0
        self.full_polls = 0

    def wake(self) -> None:
        """Have every process read at the next refresh."""
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
            watched: pids that rest only while they do nothing.
            large_bytes: others with so much resident memory never rest: they may be put into
                another control group, of which no event tells.
        """
        due = now_ns - self._last_full_ns >= bounds.FULL_POLL_NS
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
                seen = self._read_one(pid, seen, pid in watched, large_bytes)
            if seen is not None:
                stats[pid], all_seen[pid] = seen.stat, seen
        self._seen = all_seen
        return stats, rested

    def _read_one(
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
        before.rest = (
            bounds.REST_REFRESHES if idle and before.readings > bounds.REST_REFRESHES else 0
        )
        return before


class NewProcesses:
    """Who began a program lately.

    Attributes:
        dropped: newcomers that were not taken in, as there were LIMIT.
    """

    def __init__(self) -> None:
        self._begun: dict[int, tuple[int, int]] = {}
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._begun)

    def begin(self, pids: Iterable[int], now_ns: int) -> None:
        """Take in processes that executed a program or were forked since the last call."""
        for pid in pids:
            if pid in self._begun or len(self._begun) < bounds.NEW_PROCESSES:
                self._begun[pid] = (now_ns, 0)
            else:
                self.dropped += 1

    def end(self, pids: Iterable[int]) -> None:
        """Leave out processes that have ended or are watched."""
        for pid in pids:
            self._begun.pop(pid, None)

    def grown(self, now_ns: int, meant: Callable[[int], bool | None]) -> set[int]:
        """Take out, and return, the newcomers that are to be targets now.

        Args:
            meant: whether a process would be watched as it is now; None if it never will be.
        """
        found = set()
        for pid, (begun, looks) in list(self._begun.items()):
            age = now_ns - begun
            if age < bounds.NEW_PROCESS_AGES_NS[looks]:
                continue
            answer = meant(pid)
            done = bisect_right(bounds.NEW_PROCESS_AGES_NS, age)
            if answer:
                found.add(pid)
            if answer is False and done < len(bounds.NEW_PROCESS_AGES_NS):
                self._begun[pid] = (begun, done)
            else:
                del self._begun[pid]
        return found
