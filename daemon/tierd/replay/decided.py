# SPDX-License-Identifier: Apache-2.0
"""`Decided`: what components beside the policy decide again in a replay, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tierd.observe.recording.codec import plain
from tierd.observe.recording.records import DECIDED, Call, RecordedTick
from tierd.replay.component import DROPPED, MISSING, Part, Replayed, Surrounding
from tierd.replay.devices import THRESHOLDS, UPDATER
from tierd.replay.fast_path import FastReplay
from tierd.replay.phase import AGE, BURST, PACER
from tierd.replay.scan import CONTROLLER, limits_again
from tierd.replay.world import World

ELSEWHERE: Final = "plans differ, and victims are chosen of heat that follows from them"
PARTS: Final = {
    "scan controller": (CONTROLLER,),
    "phase changes and pace": (BURST, AGE, PACER),
    "cards' thresholds": (THRESHOLDS,),
    "fast path's orders": (UPDATER,),
}


class Decided:
    """The parts of one replay; each begins where it was recorded to begin."""

    def __init__(self) -> None:
        self.fast_path = FastReplay()
        self._parts = {name: Part(name) for name in PARTS}
        self._part_of = {
            component.name: self._parts[name]
            for name, every in PARTS.items()
            for component in every
        }
        components = [each for every in PARTS.values() for each in every]
        self._components = Replayed(components, limits_again())
        self._recorded = False

    @property
    def parts(self) -> list[Part]:
        """Those that decided something, or ended."""
        every = (*self._parts.values(), self.fast_path.part)
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
        for part in self._parts.values() if self._recorded else ():
            part.end(reason)

    def before(self, tick: RecordedTick) -> None:
        """All that was decided before a tick's plan, and the fast path's choices.

        Raises:
            RecordingError: the recording says what no recorder writes.
        """
        if tick.fast_path is not None:
            self._recorded = True
            self.fast_path.tick(tick.number, tick.fast_path)
        for call in _divided(tick)[0]:
            # (What heat was as the fast path began is not known.)
            if call.kind != "update.orders":
                self._make(call, tick, None)

    def after(self, tick: RecordedTick, world: World) -> None:
        """All that was decided after its plan was carried out.

        Raises:
            RecordingError: as of `before`.
        """
        if len(world.divergence):
            self._part_of[UPDATER.name].end(ELSEWHERE)
        for call in _divided(tick)[1]:
            self._make(call, tick, world)
        if tick.calls is not None and tick.calls.dropped:
            self._end(DROPPED)

    def _make(self, call: Call, tick: RecordedTick, world: World | None) -> None:
        self._recorded = True
        part = self._part_of.get(call.kind.partition(".")[0])
        if part is None or part.ended:
            return
        heat: Any = None if world is None else world.heat
        around = Surrounding(heat, tick.tiers, tick.usage, tick.groups)
        decided = self._components.decide(call, around)
        if call.decided or decided:
            what = f"{call.kind} given {call.given}"
            part.count(tick.number, what, call.decided, plain(decided))


def _divided(tick: RecordedTick) -> tuple[Sequence[Call], Sequence[Call]]:
    """The calls before a tick's decision, and after it."""
    calls = () if tick.calls is None else tick.calls.calls
    at = next((i for i, call in enumerate(calls) if call.kind == DECIDED), len(calls))
    return calls[:at], calls[at + 1 :]
