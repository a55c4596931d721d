# SPDX-License-Identifier: Apache-2.0
"""Lets the fast path decide again: the recorded records, orders and outcomes, the same C code.

A step is given what it was given: the clock, the records, what was free, what became of its moves.
What it chooses is compared: which pages, in which order, from where to where, with which heat and
bar, and which were held back for which reasons. From the first difference on the recorded outcomes
are of other moves, so nothing after it is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, Final

import numpy as np

from tierd.migration import NativeMover
from tierd.migration.promoter import Promoter
from tierd.migration.tap import CHOSEN, FastPathLog, Noted, Steered, TapKind
from tierd.observe.recording import RecordingError
from tierd.observe.recording.fastpath import MAX_STEP_RECORDS
from tierd.replay.component import DROPPED, MISSING, Part
from tierd.sources.kmod import uapi

DIFFERED: Final = "a choice differs, and what became of the recorded one says nothing about it"


class _Ring:
    """The device's ring with the records of one step."""

    def __init__(self) -> None:
        size = uapi.RING_DATA + MAX_STEP_RECORDS * uapi.RECORD.itemsize
        self.memory: Any = np.zeros(size // 8 + 1, np.uint64).view(np.uint8)[:size]
        self._info: Any = self.memory[: uapi.INFO.itemsize].view(uapi.INFO)
        self._records: Any = self.memory[uapi.RING_DATA :].view(uapi.RECORD)
        self._info["record_size"] = uapi.RECORD.itemsize
        self._info["capacity"] = MAX_STEP_RECORDS

    def put(self, records: Any) -> None:
        """Records that come next."""
        tail = int(self._info["tail"][0])
        at = (tail + np.arange(len(records))) % MAX_STEP_RECORDS
        self._records[at] = records.view(uapi.RECORD)
        self._info["tail"] += np.uint64(len(records))


def make_mover() -> NativeMover:
    """What a promoter cannot be without; it is asked nothing."""
    return NativeMover(rate_bytes_per_s=1 << 30)


class _Replayed(Promoter):
    """A promoter that reads no node's meminfo: what was free comes from the recording."""

    readable: frozenset[int] = frozenset()

    def _descriptor(self, node: int) -> int:
        return node if node in self.readable else -1


class FastReplay:
    """Makes the fast path's choices again, tick by tick. `part`: how many steps chose the same."""

    def __init__(self) -> None:
        self.part = Part("fast path")
        self.moves = 0
        self._promoter: _Replayed | None = None
        self._ring = _Ring()
        self._mover = make_mover()

    def gap(self) -> None:
        """Ticks are missing."""
        if self._promoter is not None or self.part.ended:
            self.part.end(MISSING)

    def tick(self, number: int, log: FastPathLog) -> None:
        """The calls of a tick, again. Raises RecordingError: they cannot be."""
        if self.part.ended:
            return
        kinds = log.columns["call"]["kind"].tolist()
        given = iter(log.given)
        if self._promoter is None:
            if not kinds or kinds[0] != TapKind.NEW:
                self.part.end(MISSING)
                return
            self._promoter = self._made(next(given))
        elif kinds and kinds[0] == TapKind.NEW:
            self._promoter.close()
            self._promoter = self._made(next(given))
        self._promoter.replay(log)
        record, at = log.columns["record"], 0
        for index, kind in enumerate(kinds):
            if kind == TapKind.STEP:
                count = int(log.columns["call"]["records"][index])
                self._ring.put(record[at : at + count])
                at += count
                self._promoter.step()
            elif kind == TapKind.QUOTA:
                self._promoter.quota_left()
            elif kind != TapKind.NEW:
                _give(self._promoter, next(given))
            # Nobody else takes them, and there is room for so many.
            self._promoter.take()
        made = self._promoter.tapped()
        assert made is not None
        self._compare(number, log, made)
        if log.dropped:
            self.part.end(DROPPED)

    def _made(self, settings: Any) -> _Replayed:
        try:
            promoter = _Replayed(self._mover, settings)
        except ValueError as error:
            raise RecordingError(f"the fast path's settings: {error}") from None
        self._ring = _Ring()
        promoter.attach(self._ring.memory)
        return promoter

    def _compare(self, number: int, log: FastPathLog, made: FastPathLog) -> None:
        theirs, ours = _calls(log), _calls(made)
        for index, (recorded, replayed) in enumerate(zip_longest(theirs, ours)):
            if not (recorded and recorded.decides) and not (replayed and replayed.decides):
                continue
            self.moves += len(recorded.moves) if recorded else 0
            values = _differing(recorded, replayed)
            if not self.part.count(number, f"call {index}", *values):
                self.part.end(DIFFERED)
                return


def _give(promoter: _Replayed, given: Any) -> None:
    if isinstance(given, Steered):
        promoter.readable = given.readable
        promoter.steer(given.orders)
    elif isinstance(given, Noted):
        promoter.note(given.report, given.time_ns)
    else:
        try:
            promoter.set(given, always=True)
        except ValueError as error:
            raise RecordingError(f"the fast path's settings: {error}") from None


@dataclass(frozen=True, slots=True)
class _Call:
    """What a call of the promoter chose.

    Attributes:
        decides: there is something to compare.
        summary: what it returned, how many moves of which direction, what was held back.
        moves: as chosen, with their heat and bar.
    """

    decides: bool
    summary: dict[str, Any]
    moves: list[dict[str, Any]]


def _calls(log: FastPathLog) -> list[_Call]:
    """What each call of a log chose."""
    jobs = iter(log.columns["job"][["direction", "moves"]].tolist())
    moves = iter(log.columns["move"][list(CHOSEN)].tolist())
    found = []
    for call in log.columns["call"]:
        own = list(islice(jobs, int(call["jobs"])))
        chosen = islice(moves, sum(count for _, count in own))
        summary = {
            "returned": int(call["value"]),
            "jobs": own,
            "held": [int(call["held"]), f"{int(call['held_sum']):016x}"],
        }
        decides = bool(own or call["held"] or call["kind"] == TapKind.QUOTA)
        found.append(_Call(decides, summary, [dict(zip(CHOSEN, m, strict=True)) for m in chosen]))
    return found


def _differing(recorded: _Call | None, replayed: _Call | None) -> tuple[Any, Any]:
    """What differs of two calls: their summaries, or the first other move."""
    if recorded is None or replayed is None or recorded.summary != replayed.summary:
        absent = "no such call"
        return (
            absent if recorded is None else recorded.summary,
            absent if replayed is None else replayed.summary,
        )
    for index, pair in enumerate(zip(recorded.moves, replayed.moves, strict=True)):
        # As text: not a number is the same as itself.
        if repr(pair[0]) != repr(pair[1]):
            return {"move": index, **pair[0]}, {"move": index, **pair[1]}
    return recorded.summary, replayed.summary
