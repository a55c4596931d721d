# SPDX-License-Identifier: Apache-2.0
"""`Decided`: what components beside the policy decide again in a replay, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tierd.observe.recording.calls import DECIDED, plain
from tierd.observe.recording.records import Call, HeatOp, RecordedTick
from tierd.observe.recording.world import World
from tierd.replay.fast_path import FastReplay
from tierd.replay.fast_path_update import Surrounding, UpdateReplay
from tierd.replay.newly_hot import Novel
from tierd.replay.part import DROPPED, MISSING, Part
from tierd.replay.phase import PhaseReplay
from tierd.replay.scan import ScanReplay
from tierd.replay.threshold import ThresholdReplay

ELSEWHERE: Final = "plans differ, and victims are chosen of heat that follows from them"


class Decided:
    """The parts of one replay; each begins where it was recorded to begin."""

    def __init__(self) -> None:
        self.scan, self.phase = Part("scan controller"), Part("phase changes and pace")
        self.brief, self.fast_path = Part("fast path's orders"), FastReplay()
        self.thresholds, self._thresholds = Part("cards' thresholds"), ThresholdReplay()
        self._scan, self._phase, self._brief = ScanReplay(), PhaseReplay(), UpdateReplay()
        self._novel = Novel()
        self._recorded = False

    @property
    def parts(self) -> list[Part]:
        """Those of which there is something to tell."""
        every = (self.scan, self.phase, self.thresholds, self.brief, self.fast_path.part)
        return [part for part in every if part.decisions or (part.ended and self._recorded)]

    @property
    def differing(self) -> int:
        """Decisions of all parts that are not the recorded ones."""
        return sum(part.differing for part in self.parts)

    def gap(self) -> None:
        """Ticks are missing: what the parts knew by then is not known."""
        self._end(MISSING)
        self.fast_path.gap()

    def _end(self, reason: str) -> None:
        for part in (self.scan, self.phase, self.thresholds, self.brief) if self._recorded else ():
            part.end(reason)

    def before(self, tick: RecordedTick) -> None:
        """All that was decided before a tick's plan, and the native path's choices.

        Raises:
            RecordingError: the recording says what no recorder writes.
        """
        if tick.fast_path is not None:
            self._recorded = True
            self.fast_path.tick(tick.number, tick.fast_path)
        calls, _ = _divided(tick)
        for call in calls:
            # (What heat was as the native path began is not known.)
            if call.kind != "brief.orders":
                self._make(call, tick, None)

    def feed(
        self, tick: RecordedTick, ops: Sequence[HeatOp], world: World, *, decided: bool
    ) -> None:
        """Tell heat what it was told before a tick's decision, or after it.

        Raises:
            RecordingError: as of `before`.
        """
        calls = _divided(tick)[decided]
        for call, fresh in self._novel.feed(ops, calls, world):
            if not self.phase.ended:
                self.phase.count(tick.number, "accesses to pages not hot", call.given[4], fresh)

    def after(self, tick: RecordedTick, world: World) -> None:
        """All that was decided after its plan was carried out.

        Raises:
            RecordingError: as of `before`.
        """
        if len(world.divergence):
            self.brief.end(ELSEWHERE)
        for call in _divided(tick)[1]:
            self._make(call, tick, world)
        if tick.calls is not None and tick.calls.dropped:
            self._end(DROPPED)

    def _make(self, call: Call, tick: RecordedTick, world: World | None) -> None:
        self._recorded = True
        decide: Any
        if call.kind.startswith("scan."):
            part, decide = self.scan, lambda: self._scan.decide(call, tick.tiers)
        elif call.kind.startswith("brief."):
            heat: Any = None if world is None else world.heat
            around = Surrounding(heat, tick.tiers, tick.usage, tick.groups)
            part, decide = self.brief, lambda: self._brief.decide(call, around)
        elif call.kind.startswith("threshold."):
            part, decide = self.thresholds, lambda: self._thresholds.decide(call)
        else:
            part, decide = self.phase, lambda: self._phase.decide(call)
        if part.ended:
            return
        decided = decide()
        if call.decided or decided:
            what = f"{call.kind} told {call.given}"
            part.count(tick.number, what, call.decided, plain(decided))


def _divided(tick: RecordedTick) -> tuple[Sequence[Call], Sequence[Call]]:
    """The calls before a tick's decision, and after it."""
    calls = () if tick.calls is None else tick.calls.calls
    at = next((i for i, call in enumerate(calls) if call.kind == DECIDED), len(calls))
    return calls[:at], calls[at + 1 :]
