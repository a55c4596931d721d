# SPDX-License-Identifier: Apache-2.0
"""The phase's age, bursts of misses and the loop's pace, in recordings and replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from types import SimpleNamespace
from typing import Any, Final

from tierd.engine.pacing import Findings, TickPacer
from tierd.engine.phase import MissBurstDetector, PhaseAge
from tierd.replay.component import Component, Method
from tierd.sources.neoprof import NeoProfSource


class _Asked:
    """Devices that remember what they answered."""

    def __init__(self, source: NeoProfSource) -> None:
        self._source = source
        self.epochs = source.epochs
        self.answer: int | None = None

    def requests(self) -> int:
        self.answer = self._source.requests()
        return self.answer


def _devices(
    _: MissBurstDetector, now_ns: int, refused: int, starts: Sequence[int], answer: int | None
) -> list[Any]:
    """Devices as they were; where they were not asked, a detector that asks now differs."""
    epochs = {number: SimpleNamespace(start_ns=start) for number, start in enumerate(starts)}
    return [SimpleNamespace(epochs=epochs, requests=lambda: answer or 0), refused, now_ns]


BURST: Final = Component(
    "burst",
    MissBurstDetector,
    {
        "update": Method(
            wrap=lambda _, source, refused, now_ns: (_Asked(source), refused, now_ns),
            given=lambda _, source, refused, now_ns: [
                now_ns,
                refused,
                [epoch.start_ns for epoch in source.epochs.values()],
            ],
            asked=lambda _, found, source, *more: [source.answer],
            arguments=_devices,
        ),
        "take": Method(decided=lambda _, signs: sorted(signs)),
        "pages": Method(
            given=lambda _, signs, refused, least_rate: [sorted(signs), refused, least_rate],
            arguments=lambda _, signs, refused, rate: (frozenset(signs), refused, rate),
        ),
    },
)


AGE: Final = Component(
    "age",
    PhaseAge,
    {
        "see": Method(
            given=lambda _, time_ns, batches, now_ns: [time_ns, bool(batches), now_ns],
            decided=lambda age, changed, *_: [changed, age.begun_ns, age.scan_changes],
            arguments=lambda _, time_ns, some, now_ns: (time_ns, [None] if some else [], now_ns),
        ),
        "restart": Method(decided=lambda *_: []),
        "seconds": Method(),
    },
)

PACER: Final = Component(
    "pace",
    TickPacer,
    {
        "next_pause": Method(
            given=lambda _, found: astuple(found),
            arguments=lambda _, *found: [Findings(*found)],
        ),
        "hurry": Method(decided=lambda *_: []),
    },
)
