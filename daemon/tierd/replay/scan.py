# SPDX-License-Identifier: Apache-2.0
"""The scan controller, its limits, phases and the loop's pace, in recordings and replays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from types import SimpleNamespace
from typing import Any, Final

from tierd.core.access import AccessSource, AdaptiveSource, EventDrivenSource
from tierd.core.tiermap import NodeUsage, TierMap
from tierd.engine.groups import ResidentBytes
from tierd.engine.pacing import Findings, TickPacer
from tierd.engine.phase import MissBurstDetector, PhaseAge
from tierd.engine.sampling_limits import SamplingLimits, bounds_us, space_fraction
from tierd.hotness.table import HeatTable
from tierd.replay.component import Component, Journal, Method, Surrounding
from tierd.sources.neoprof import NeoProfSource
from tierd.sources.scan_controller import ScanController, Stats
from tierd.sources.scan_records import ScanSummary

STATS: Final = (
    *("rounds", "round_pages", "round_accessed", "period_ns", "sampling_interval_ns"),
    "round_ns",
)
"""What the controller takes from struct tierd_target_stats; the last is not in older recordings."""


def _state_of(scans: ScanController) -> list[object]:
    """All that a controller has chosen, and knows, now."""
    return [
        scans.period_us,
        scans.sampling_interval_us,
        scans.learning_ns,
        scans.rounds,
        int(scans.fresh),
        scans.seen.share,
        scans.seen.sampling_interval_s,
        scans.seen.period_s,
        scans.phase_detector.last_ns,
    ]


def _taken(scans: ScanController, stats: Stats, now_ns: int) -> list[Any]:
    """What was set before the call belongs to it."""
    rows = [[key, *(each.get(name, 0) for name in STATS)] for key, each in stats.items()]
    return [now_ns, scans.aim, scans.awake, rows]


def _taken_again(
    scans: ScanController, now_ns: int, aim: float | None, awake: bool, rows: Sequence[Any]
) -> Sequence[Any]:
    scans.aim, scans.awake = aim, awake
    return {key: dict(zip(STATS, row, strict=False)) for key, *row in rows}, now_ns


CONTROLLER: Final = Component(
    "scan",
    ScanController,
    {
        "start": Method(),
        "is_phase_change": Method(
            given=lambda _, summary: summary,
            arguments=lambda _, *summary: [ScanSummary(*summary)],
        ),
        "on_phase_change": Method(
            given=lambda _, summary, now_ns: [now_ns, *summary],
            arguments=lambda _, now_ns, *summary: (ScanSummary(*summary), now_ns),
        ),
        "pace": Method(),
        "take": Method(given=_taken, arguments=_taken_again),
        "rest": Method(given=lambda scans, lag_us: None if lag_us == scans.lag_us else [lag_us]),
        "bound": Method(),
    },
    given=lambda period_us, least_us, now_ns, alone=True: [period_us, least_us, now_ns, alone],
    remake=lambda period_us, least_us, now_ns, alone: ScanController(
        period_us, least_us, now_ns, alone=alone
    ),
    state=_state_of,
    many=True,
)


class RecordedSamplingLimits(SamplingLimits):
    """What the controller is told of fast memory, and how heat follows it, told to a journal."""

    def __init__(self, journal: Journal, heat: HeatTable, resident_bytes: ResidentBytes) -> None:
        super().__init__(heat, resident_bytes)
        self._journal = journal
        self._reported: list[object] = []

    def aim(
        self,
        source: AccessSource | None,
        tiers: TierMap,
        usage: Mapping[int, NodeUsage],
        kept: float,
    ) -> None:
        """See `SamplingLimits`."""
        super().aim(source, tiers, usage, kept)
        if usage and isinstance(source, AdaptiveSource):
            held = [[node, size] for node, size in self._residents.total().items()]
            rows = [
                [node, each.total_bytes, each.free_bytes, each.reserve_bytes]
                for node, each in usage.items()
            ]
            self._journal("scan.room", [held, rows, kept], [source.aim])

    def bound(
        self,
        source: AccessSource | None,
        tiers: TierMap,
        least_s: float,
        phase_age_s: float,
    ) -> None:
        """See `SamplingLimits`."""
        super().bound(source, tiers, least_s, phase_age_s)
        if isinstance(source, EventDrivenSource):
            decided = [source.longest_us, source.lag_us]
            self._journal("scan.longest", [least_s, phase_age_s], decided)

    def follow_unit(self, source: AccessSource | None) -> float | None:
        """See `SamplingLimits`."""
        faded = super().follow_unit(source)
        told: list[object] = [] if source is None else [source.name, source.dilution]
        if told != self._reported and told:
            self._reported = told
            self._journal("scan.unit", told, [faded])
        return faded


def limits_again() -> dict[str, Callable[..., Sequence[Any]]]:
    """What makes the choices of `RecordedSamplingLimits` again, by kind of call."""
    heat: Any = SimpleNamespace(fade=lambda half_lives: None)
    limits = SamplingLimits(heat, ResidentBytes())

    def space(around: Surrounding, held: Any, rows: Any, kept: float) -> list[float | None]:
        usage = {node: NodeUsage(*sizes) for node, *sizes in rows}
        resident: Any = SimpleNamespace(total=lambda: dict(held))
        return [space_fraction(resident, around.tiers, usage, kept)]

    def longest(around: Surrounding, least_s: float, age_s: float) -> Sequence[int | None]:
        return bounds_us(around.tiers, least_s, age_s)

    def unit(_: Surrounding, name: str, dilution: float) -> list[float | None]:
        source: Any = SimpleNamespace(name=name, dilution=dilution)
        return [limits.follow_unit(source)]

    return {"scan.room": space, "scan.longest": longest, "scan.unit": unit}


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
