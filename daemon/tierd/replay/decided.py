# SPDX-License-Identifier: Apache-2.0
"""What components beside the policy are given and decide: recorded, and decided again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tierd.config.watching import ScanConfig
from tierd.core.access import AccessSource
from tierd.engine.loop import Service
from tierd.observe.recording.codec import plain
from tierd.observe.recording.recorder import Recorder
from tierd.observe.recording.records import DECIDED, Call, RecordedTick
from tierd.replay.component import DROPPED, MISSING, Journal, Part, Replayed, Surrounding
from tierd.replay.devices import THRESHOLDS, UPDATER
from tierd.replay.fast_path import FastReplay
from tierd.replay.scan import AGE, BURST, CONTROLLER, PACER, RecordedSamplingLimits, limits_again
from tierd.replay.world import World
from tierd.sources.neoprof import Keep, NeoProfSource
from tierd.sources.scan import ScanSource

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


def listen(service: Service, recorder: Recorder) -> None:
    """Record what the components of a service decide that has not begun yet."""
    journal, work, components = recorder.journal, service.work, service.components
    work.sampling_limits = RecordedSamplingLimits(
        journal, components.heat, components.tracking.resident_bytes
    )
    work.phase_age = AGE.recorded(journal)()
    service.pacer = PACER.recorded(journal)()
    fast_path = components.fast_path
    if fast_path is not None:
        fast_path.miss_burst = BURST.recorded(journal)()
        known = fast_path.thresholds_of
        fast_path.thresholds_of = THRESHOLDS.recorded(journal)(known.settings, known.interval_ns)
        fast_path.update_with(UPDATER.recorded(journal))
        recorder.fast_path = fast_path.tap()


def listen_to(sources: Sequence[AccessSource], journal: Journal) -> None:
    """Record what the scan controllers of sources decide that have not begun yet."""
    for source in sources:
        if isinstance(source, ScanSource):
            source.decide_with(CONTROLLER.recorded(journal, source.name))
        elif isinstance(source, NeoProfSource):
            _listen_beside(source, journal)


def _listen_beside(source: NeoProfSource, journal: Journal) -> None:
    make = source.make_scan

    def made(settings: ScanConfig, nodes: Sequence[int], keep: Keep | None) -> ScanSource:
        scan = make(settings, nodes, keep)
        scan.decide_with(CONTROLLER.recorded(journal, source.name))
        return scan

    source.make_scan = made
