# SPDX-License-Identifier: Apache-2.0
"""The scan controller in recordings: what it is told and chooses, and the same again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from tierd.core.access import AccessSource, AdaptiveSource, EventDrivenSource
from tierd.core.nodes import NodeUsage
from tierd.core.tiermap import TierMap
from tierd.engine.groups import ResidentBytes
from tierd.engine.sampling_limits import Fading, SamplingLimits, bounds_us, space_fraction
from tierd.observe.recording.calls import MISSHAPEN, Journal, nonsense, number
from tierd.observe.recording.records import Call
from tierd.sources.scan_controller import ScanController, Stats
from tierd.sources.scan_records import ScanSummary

T = TypeVar("T")

STATS: Final = ("rounds", "round_pages", "round_accessed", "period_ns", "exposure_ns")
"""What the controller takes from struct tierd_target_stats."""
MOST: Final = float(1 << 60)
MAX_NODES: Final = 1024


def state_of(looks: ScanController) -> list[object]:
    """All that a controller has chosen, and knows, now."""
    seen = looks.seen
    chosen = [looks.period_us, looks.exposure_us, looks.learning_ns, looks.rounds, int(looks.fresh)]
    return [
        *chosen,
        seen.share,
        seen.sampling_interval_s,
        seen.period_s,
        looks.phase_detector.last_ns,
    ]


class RecordedScanController(ScanController):
    """A controller whose calls are told to a journal.

    Args:
        journal: told of each call.
        name: the source whose controller it is.
    """

    def __init__(
        self,
        journal: Journal,
        name: str,
        period_us: int,
        min_sampling_interval_us: int,
        now_ns: int,
        *,
        alone: bool = True,
    ) -> None:
        self._journal, self._name = journal, name
        told = [period_us, min_sampling_interval_us, now_ns, alone]
        self._inside = True
        super().__init__(period_us, min_sampling_interval_us, now_ns, alone=alone)
        self._inside = False
        journal("scan.new", [name, *told], state_of(self))

    def _call(self, kind: str, told: list[object], what: Callable[[], T]) -> T:
        """Make a call; those that it makes itself are part of it."""
        outer, self._inside = self._inside, True
        try:
            result = what()
        finally:
            self._inside = outer
        if not outer:
            self._journal(f"scan.{kind}", [self._name, *told], [result, *state_of(self)])
        return result

    def start(self, now_ns: int) -> None:
        """See `ScanController`."""
        self._call("start", [now_ns], lambda: super(RecordedScanController, self).start(now_ns))

    def is_phase_change(self, turnover: ScanSummary) -> bool:
        """See `ScanController`."""
        return self._call(
            "news",
            [*turnover],
            lambda: super(RecordedScanController, self).is_phase_change(turnover),
        )

    def on_phase_change(self, turnover: ScanSummary, now_ns: int) -> bool:
        """See `ScanController`."""
        return self._call(
            "startle",
            [now_ns, *turnover],
            lambda: super(RecordedScanController, self).on_phase_change(turnover, now_ns),
        )

    def pace(self, period_us: int) -> None:
        """See `ScanController`."""
        self._call("pace", [period_us], lambda: super(RecordedScanController, self).pace(period_us))

    def take(self, stats: Stats, now_ns: int) -> bool:
        """See `ScanController`; with what was set before it: `aim` and `awake`."""
        rows = [[key, *(each.get(name, 0) for name in STATS)] for key, each in stats.items()]
        return self._call(
            "take",
            [now_ns, self.aim, self.awake, rows],
            lambda: super(RecordedScanController, self).take(stats, now_ns),
        )

    def rest(self, lag_us: int) -> bool:
        """See `ScanController`."""
        if lag_us == self.lag_us:
            return False
        return self._call(
            "rest", [lag_us], lambda: super(RecordedScanController, self).rest(lag_us)
        )

    def bound(self, longest_us: int | None) -> bool:
        """See `ScanController`."""
        return self._call(
            "bound", [longest_us], lambda: super(RecordedScanController, self).bound(longest_us)
        )


class RecordedSamplingLimits(SamplingLimits):
    """What the controller is told of fast memory, and how heat follows it, told to a journal."""

    def __init__(self, journal: Journal, heat: Fading, resident_bytes: ResidentBytes) -> None:
        self._faded = _Faded(heat)
        super().__init__(self._faded, resident_bytes)
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
        stood_still_s: float,
    ) -> None:
        """See `SamplingLimits`."""
        super().bound(source, tiers, least_s, stood_still_s)
        if isinstance(source, EventDrivenSource):
            decided = [source.longest_us, source.lag_us]
            self._journal("scan.longest", [least_s, stood_still_s], decided)

    def changed(self, source: AccessSource | None) -> bool:
        """See `SamplingLimits`."""
        changed = super().changed(source)
        told: list[object] = [] if source is None else [source.name, source.dilution]
        if told != self._reported and told:
            self._reported = told
            self._journal("scan.unit", told, [self._faded.half_lives if changed else None])
        return changed


class _Faded:
    """Heat that says by how much it has faded last."""

    def __init__(self, heat: Fading | None = None) -> None:
        self._heat = heat
        self.half_lives = 0.0

    def fade(self, half_lives: float) -> None:
        self.half_lives = half_lives
        if self._heat is not None:
            self._heat.fade(half_lives)


class _Unit:
    """A source that counts in a unit."""

    def __init__(self, name: str, dilution: float) -> None:
        self.name, self.dilution = name, dilution


class ScanReplay:
    """Makes the calls of the scan controller again."""

    def __init__(self) -> None:
        self._scan_controller: dict[str, ScanController] = {}
        self._faded = _Faded()
        self._sampling_limits = SamplingLimits(self._faded, ResidentBytes())

    def decide(self, call: Call, tiers: TierMap) -> list[object]:
        """What this call decides now.

        Raises:
            RecordingError: it is no call that a recorder writes.
        """
        try:
            return self._decide(call, tiers)
        except MISSHAPEN as error:
            raise nonsense(call, error) from None

    def _decide(self, call: Call, tiers: TierMap) -> list[object]:
        told = call.given
        match call.kind:
            case "scan.new":
                name, period_us, least_us, now_ns, alone = told
                least_us, now_ns = _whole(least_us), _whole(now_ns)
                looks = ScanController(
                    int(number(period_us, 1, MOST)), least_us, now_ns, alone=bool(alone)
                )
                self._scan_controller[str(name)] = looks
                return state_of(looks)
            case "scan.room":
                return [_space(told, tiers)]
            case "scan.longest":
                least_s, stood_still_s = number(told[0], 1e-6, 1e9), number(told[1], -1e9, 1e12)
                return [*bounds_us(tiers, least_s, stood_still_s)]
            case "scan.unit":
                unit = _Unit(str(told[0]), number(told[1], 1e-9, 1))
                changed = self._sampling_limits.changed(unit)  # type: ignore[arg-type]
                return [self._faded.half_lives if changed else None]
        looks = self._scan_controller[told[0]]
        result = _again(looks, call.kind, told[1:])
        return [result, *state_of(looks)]


def _whole(value: Any) -> int:
    return int(number(value, 0, MOST))


def _space(told: Any, tiers: TierMap) -> float | None:
    held, rows, kept = told
    usage = {
        int(number(node, 0, MAX_NODES)): NodeUsage(*(_whole(each) for each in figures))
        for node, *figures in rows
    }
    resident_bytes = _Held({int(node): int(number(size, 0, MOST)) for node, size in held})
    return space_fraction(resident_bytes, tiers, usage, number(kept, 0, 1))  # type: ignore[arg-type]


class _Held:
    """What targets have where, as it was."""

    def __init__(self, total: Mapping[int, int]) -> None:
        self._total = total

    def total(self) -> Mapping[int, int]:
        return self._total


def _again(looks: ScanController, kind: str, told: Any) -> object:
    match kind:
        case "scan.start":
            looks.start(_whole(told[0]))
            return None
        case "scan.news":
            return looks.is_phase_change(_turnover(told))
        case "scan.startle":
            return looks.on_phase_change(_turnover(told[1:]), _whole(told[0]))
        case "scan.pace":
            looks.pace(int(number(told[0], 1, MOST)))
            return None
        case "scan.take":
            now_ns, aim, awake, rows = told
            looks.aim = None if aim is None else number(aim, 0, 1)
            looks.awake = bool(awake)
            stats = {
                _whole(key): dict(zip(STATS, map(_whole, row), strict=True)) for key, *row in rows
            }
            return looks.take(stats, _whole(now_ns))
        case "scan.rest":
            return looks.rest(_whole(told[0]))
        case "scan.bound":
            return looks.bound(None if told[0] is None else _whole(told[0]))
    raise KeyError(kind)


def _turnover(told: Any) -> ScanSummary:
    accessed, newly_hot, newly_hot_fraction, silent, newly_idle_fraction = told
    return ScanSummary(
        _whole(accessed),
        _whole(newly_hot),
        number(newly_hot_fraction, 0, 1),
        _whole(silent),
        number(newly_idle_fraction, 0, 1),
    )
