# SPDX-License-Identifier: Apache-2.0
"""`Decided`: what components beside the policy decide again in a replay, part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tierd.core.access import AccessBatch
from tierd.observe.recording import RecordingError
from tierd.observe.recording.codec import MISSHAPEN, plain
from tierd.observe.recording.records import DECIDED, Call, HeatOp, RecordedTick
from tierd.replay.component import DROPPED, MISSING, Part, Replayed, Surrounding
from tierd.replay.devices import THRESHOLDS, UPDATER
from tierd.replay.fast_path import FastReplay
from tierd.replay.phase import AGE, BURST, DETECTOR, PACER
from tierd.replay.scan import CONTROLLER, limits_again
from tierd.replay.world import World

ELSEWHERE: Final = "plans differ, and victims are chosen of heat that follows from them"
PARTS: Final = {
    "scan controller": (CONTROLLER,),
    "phase changes and pace": (DETECTOR, BURST, AGE, PACER),
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
        self._judged = _Judged()
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

    def feed(
        self, tick: RecordedTick, ops: Sequence[HeatOp], world: World, *, decided: bool
    ) -> None:
        """Change heat as it changed before a tick's decision, or after it.

        Raises:
            RecordingError: as of `before`.
        """
        phase = self._part_of[DETECTOR.name]
        for call, fresh in self._judged.feed(ops, _divided(tick)[decided], world):
            if not phase.ended:
                phase.count(tick.number, "accesses to pages not hot", call.given[4], fresh)

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


class _Judged:
    """Feeds heat, and counts on the way how many accesses go to pages that are not hot.

    The loop advances heat, asks sources, has the detector judge what they reported, and ingests it
    then: so a judgement is of the batches between one advance and the next.
    """

    def __init__(self) -> None:
        self._enabled, self._least = False, 0.0
        self._source = ""

    def feed(
        self, ops: Sequence[HeatOp], calls: Sequence[Call], world: World
    ) -> Iterator[tuple[Call, float]]:
        """Apply all of `ops` to heat; judgements among `calls`, and what is counted for them now.

        Raises:
            RecordingError: a call says what no recorder writes, or an operation cannot be.
        """
        try:
            judged = iter(self._judgements(calls))
        except MISSHAPEN as error:
            raise RecordingError(f"no detector was given this: {type(error).__name__}") from None
        call: Call | None = None
        for index, op in enumerate(ops):
            if op.method == "advance":
                call = next(judged, None)
            elif op.method == "ingest" and call is not None:
                name, batches = call.given[0], _round(ops[index:])
                own = [batch for batch in batches if batch.source == name and len(batch)]
                yield call, float(sum(world.heat.novel(batch, self._least) for batch in own))
                call = None
            world.apply(op)

    def _judgements(self, calls: Sequence[Call]) -> list[Call | None]:
        """One for each round over the sources; None where nothing can be said of it."""
        found: list[Call | None] = []
        for index, call in enumerate(calls):
            if call.kind == "phase.new":
                self._enabled, self._least = call.given[0], float(call.given[3])
            if call.kind != "phase.judge":
                continue
            known, self._source = self._source == call.given[0], call.given[0]
            # After a phase change heat is cooled before the batches.
            counts = known and self._enabled and not _cleared(calls[index:])
            found.append(call if counts and len(call.given) == 5 else None)
        return found


def _round(ops: Sequence[HeatOp]) -> list[AccessBatch]:
    """The batches until the next round."""
    end = next((i for i, op in enumerate(ops) if op.method == "advance"), len(ops))
    return [op.arguments[0] for op in ops[:end] if op.method == "ingest"]


def _cleared(calls: Sequence[Call]) -> bool:
    """Whether the judgement that comes first, or signs beside it, ended the devices' epochs."""
    after = next((i for i, call in enumerate(calls[1:], 1) if call.kind == "phase.judge"), None)
    return calls[0].decided[:1] == [True] or any(
        call.kind == "burst.take" for call in calls[1:after]
    )
