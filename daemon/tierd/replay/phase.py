# SPDX-License-Identifier: Apache-2.0
"""The detectors of phase changes and the loop's pace in recordings, and the same again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from tierd.core.access import AccessBatch
from tierd.engine.miss_burst import MissBurstDetector
from tierd.engine.pacing import Findings, TickPacer
from tierd.engine.phase_age import PhaseAge
from tierd.engine.phase_detector import CoolingSettings, PhaseDetector
from tierd.hotness.table import HeatTable
from tierd.observe.recording.calls import MISSHAPEN, Journal, nonsense, number
from tierd.observe.recording.records import Call
from tierd.sources.neoprof import NeoProfSource

MOST: Final = float(1 << 62)
_FINDINGS: Final = {field.name: field.type for field in dataclasses.fields(Findings)}


class RecordedPhaseDetector(PhaseDetector):
    """The detector of a moved hot set, whose calls are told to a journal."""

    def __init__(self, journal: Journal, heat: HeatTable, settings: CoolingSettings) -> None:
        super().__init__(heat, settings)
        self._journal = journal
        journal("phase.new", list(dataclasses.astuple(settings)), [])

    def restart(self) -> None:
        """See `PhaseDetector`."""
        super().restart()
        self._journal("phase.restart", [], [])

    def judge(self, source: str, now_ns: int, *, own: bool, heard: bool, fresh: float) -> bool:
        """See `PhaseDetector`."""
        moved = super().judge(source, now_ns, own=own, heard=heard, fresh=fresh)
        self._journal("phase.judge", [source, now_ns, own, heard, fresh], _verdict(self, moved))
        return moved


def _verdict(changes: PhaseDetector, moved: bool) -> list[object]:
    return [moved, changes.probability, changes.run_length]


class RecordedMissBurst(MissBurstDetector):
    """The detector of bursts beside the cards' reports, whose calls are told to a journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal
        journal("phase.sudden", [], [])

    def update(self, source: NeoProfSource, refused: int, now_ns: int) -> bool:
        """See `MissBurstDetector`."""
        asked = _Asked(source)
        found = super().update(asked, refused, now_ns)  # type: ignore[arg-type]
        starts = [epoch.start_ns for epoch in source.epochs.values()]
        self._journal("phase.look", [now_ns, starts, refused, asked.answer], [found])
        return found

    def take(self) -> frozenset[str]:
        """See `MissBurstDetector`."""
        signs = super().take()
        self._journal("phase.take", [], sorted(signs))
        return signs

    def pages(self, signs: frozenset[str], refused: int, least_rate: float) -> int:
        """See `MissBurstDetector`."""
        found = super().pages(signs, refused, least_rate)
        self._journal("phase.pages", [sorted(signs), refused, least_rate], [found])
        return found


class _Asked:
    """Cards that remember what they answered."""

    def __init__(self, source: NeoProfSource) -> None:
        self._source = source
        self.epochs = source.epochs
        self.answer: int | None = None

    def requests(self) -> int:
        self.answer = self._source.requests()
        return self.answer


class RecordedPhaseAge(PhaseAge):
    """For how long the hot set has stood still, told to a journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal
        journal("phase.still", [], [])

    def see(self, phase_change_ns: int | None, batches: Sequence[AccessBatch], now_ns: int) -> None:
        """See `PhaseAge`."""
        super().see(phase_change_ns, batches, now_ns)
        told = [phase_change_ns, bool(batches), now_ns]
        self._journal("phase.see", told, [self.begun_ns, self.scan_changes])

    def seconds(self, changes: PhaseDetector | None, now_ns: int) -> float:
        """See `PhaseAge`."""
        found = super().seconds(changes, now_ns)
        told = [None if changes is None else changes.last_ns, now_ns]
        self._journal("phase.seconds", told, [found])
        return found


class RecordedPacer(TickPacer):
    """The loop's pace, told to a journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal
        journal("pace.new", [], [])

    def next_pause(self, found: Findings) -> int:
        """See `TickPacer`."""
        pause_ns = super().next_pause(found)
        self._journal("pace.pause", list(dataclasses.astuple(found)), [pause_ns])
        return pause_ns

    def hurry(self) -> None:
        """See `TickPacer`."""
        super().hurry()
        self._journal("pace.hurry", [], [])


class _Cards:
    """Cards as they were when they were asked."""

    def __init__(self, starts: Sequence[Any], answer: int | None) -> None:
        self.epochs = {number: _Epoch(_whole(start)) for number, start in enumerate(starts)}
        self._answer = answer

    def requests(self) -> int:
        # Not asked then: a detector that asks now decides by something else.
        return 0 if self._answer is None else _whole(self._answer)


class _Epoch:
    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns


class _Reported:
    """A detector that found a phase change then."""

    def __init__(self, time_ns: int) -> None:
        self.last_ns = time_ns


class PhaseReplay:
    """Makes the calls of the detectors and of the loop's pace again."""

    def __init__(self) -> None:
        self._changes = PhaseDetector(_NO_HEAT, CoolingSettings())
        self._miss_burst, self._still, self._pacer = MissBurstDetector(), PhaseAge(), TickPacer()

    def decide(self, call: Call) -> list[object]:
        """What this call decides now.

        Raises:
            RecordingError: it is no call that a recorder writes.
        """
        try:
            if call.kind.startswith("pace."):
                return self._pace(call.kind, call.given)
            if call.kind in ("phase.new", "phase.restart", "phase.judge"):
                return self._judge(call.kind, call.given)
            return self._decide(call.kind, call.given)
        except MISSHAPEN as error:
            raise nonsense(call, error) from None

    def _judge(self, kind: str, told: Sequence[Any]) -> list[object]:
        if kind == "phase.new":
            enabled, *numbers = told
            settings = CoolingSettings(bool(enabled), *(number(n, 0, 1e9) for n in numbers))
            self._changes = PhaseDetector(_NO_HEAT, settings)
            return []
        if kind == "phase.restart":
            self._changes.restart()
            return []
        source, now_ns, own, heard, fresh = told
        moved = self._changes.judge(
            str(source),
            _whole(now_ns),
            own=bool(own),
            heard=bool(heard),
            fresh=number(fresh, 0, 1e18),
        )
        return _verdict(self._changes, moved)

    def _decide(self, kind: str, told: Sequence[Any]) -> list[object]:
        match kind:
            case "phase.sudden":
                self._miss_burst = MissBurstDetector()
            case "phase.look":
                now_ns, starts, refused, answer = told
                cards: Any = _Cards(starts, answer)
                return [self._miss_burst.update(cards, _whole(refused), _whole(now_ns))]
            case "phase.take":
                return [*sorted(self._miss_burst.take())]
            case "phase.pages":
                signs, refused, rate = told
                known = frozenset(map(str, signs))
                return [self._miss_burst.pages(known, _whole(refused), number(rate, 0, 1e18))]
            case "phase.still":
                self._still = PhaseAge()
            case "phase.see":
                phase_change_ns, some, now_ns = told
                changed_ns = None if phase_change_ns is None else _whole(phase_change_ns)
                batches: Any = [None] if some else []
                self._still.see(changed_ns, batches, _whole(now_ns))
                return [self._still.begun_ns, self._still.scan_changes]
            case "phase.seconds":
                changes: Any = None if told[0] is None else _Reported(_whole(told[0]))
                return [self._still.seconds(changes, _whole(told[1]))]
            case _:
                raise KeyError(kind)
        return []

    def _pace(self, kind: str, told: Sequence[Any]) -> list[object]:
        match kind:
            case "pace.new":
                self._pacer = TickPacer()
            case "pace.hurry":
                self._pacer.hurry()
            case "pace.pause":
                named = dict(zip(_FINDINGS, told, strict=True))
                found: dict[str, Any] = {
                    name: bool(value) if _FINDINGS[name] == "bool" else _whole(value)
                    for name, value in named.items()
                }
                return [self._pacer.next_pause(Findings(**found))]
            case _:
                raise KeyError(kind)
        return []


_NO_HEAT: Final[Any] = None
"""`PhaseDetector.judge` asks no heat."""


def _whole(value: Any) -> int:
    return int(number(value, 0, MOST))
