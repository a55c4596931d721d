# SPDX-License-Identifier: Apache-2.0
"""Lets the native path decide again: the recorded records, orders and outcomes, the same C code.

A step is told what it was told: the clock, the records, what was free, what became of its moves.
What it chooses is compared: which pages, in which order, from where to where, with which heat and
bar, and which were held back for which reasons. From the first difference on the recorded outcomes
are of other moves, so nothing after it is compared.
"""

from __future__ import annotations

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
    """The card's ring with the records of one step."""

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
    """Makes the native path's choices again, tick by tick.

    Attributes:
        part: how many steps chose the same.
        moves: moves that were compared.
    """

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
        """The calls of a tick, again.

        Raises:
            RecordingError: they cannot be.
        """
        if self.part.ended:
            return
        kinds = log.columns["call"]["kind"].tolist()
        told = iter(log.given)
        if self._promoter is None:
            if not kinds or kinds[0] != TapKind.NEW:
                self.part.end(MISSING)
                return
            self._promoter = self._made(next(told))
        elif kinds and kinds[0] == TapKind.NEW:
            self._promoter.close()
            self._promoter = self._made(next(told))
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
                _tell(self._promoter, next(told))
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
        theirs, ours = _Steps(log), _Steps(made)
        for index in range(len(theirs)):
            if not (theirs.decides(index) or (index < len(ours) and ours.decides(index))):
                continue
            recorded = theirs.summary(index)
            replayed = ours.summary(index) if index < len(ours) else "no such call"
            if recorded == replayed and (moves := theirs.moves(index)) != ours.moves(index):
                recorded, replayed = _first_move(moves, ours.moves(index))
            self.moves += len(theirs.moves(index))
            if not self.part.count(number, f"call {index}", recorded, replayed):
                self.part.end(DIFFERED)
                return


def _tell(promoter: _Replayed, told: Any) -> None:
    if isinstance(told, Steered):
        promoter.readable = told.readable
        promoter.steer(told.orders)
    elif isinstance(told, Noted):
        promoter.note(told.report, told.time_ns)
    else:
        try:
            promoter.set(told, always=True)
        except ValueError as error:
            raise RecordingError(f"the fast path's settings: {error}") from None


class _Steps:
    """What each call of a log chose."""

    def __init__(self, log: FastPathLog) -> None:
        self._call, self._job = log.columns["call"], log.columns["job"]
        self._move = log.columns["move"]
        self._first_job = np.concatenate([[0], np.cumsum(self._call["jobs"], dtype=np.int64)])
        self._first_move = np.concatenate([[0], np.cumsum(self._job["moves"], dtype=np.int64)])

    def __len__(self) -> int:
        return len(self._call)

    def decides(self, index: int) -> bool:
        """Whether there is anything to compare of a call."""
        call = self._call[index]
        return bool(call["jobs"] or call["held"] or call["kind"] == TapKind.QUOTA)

    def summary(self, index: int) -> dict[str, Any]:
        """What it returned, how many moves of which direction, who was held back."""
        call = self._call[index]
        jobs = self._job[self._first_job[index] : self._first_job[index + 1]]
        return {
            "returned": int(call["value"]),
            "jobs": [[int(job["direction"]), int(job["moves"])] for job in jobs],
            "held": [int(call["held"]), f"{int(call['held_sum']):016x}"],
        }

    def moves(self, index: int) -> list[Any]:
        """Its moves, as chosen, with all bits of their heat and bar."""
        first, last = self._first_job[index], self._first_job[index + 1]
        moves = self._move[self._first_move[first] : self._first_move[last]]
        return [tuple(each) for each in _bits(moves[list(CHOSEN)]).tolist()]


def _bits(moves: Any) -> Any:
    """Floats as the numbers that their bits are: not a number is the same as itself."""
    kinds = [
        (name, "<u4" if moves.dtype[name].kind == "f" else moves.dtype[name]) for name in CHOSEN
    ]
    out = np.empty(len(moves), kinds)
    for name in CHOSEN:
        out[name] = np.ascontiguousarray(moves[name]).view(out.dtype[name])
    return out


def _first_move(recorded: list[Any], replayed: list[Any]) -> tuple[Any, Any]:
    for index, (one, other) in enumerate(zip(recorded, replayed, strict=True)):
        if one != other:
            return _words(index, one), _words(index, other)
    return None, None


def _words(index: int, move: Any) -> dict[str, Any]:
    named = dict(zip(CHOSEN, move, strict=True))
    for name in ("heat", "bar"):
        named[name] = float(np.array([named[name]], np.uint32).view(np.float32)[0])
    return {"move": index, **named}
