# SPDX-License-Identifier: Apache-2.0
"""The values of all families, the snapshot of them that a scrape reads, and bounded labels."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tierd.core.logfmt import printable
from tierd.core.quantiles import Quantiles
from tierd.observe.metrics.families import FAMILIES, FOLDED, Type

Labels = tuple[str, ...]
Extra = Callable[[], Mapping[str, Mapping[Labels, float]]]
"""Values that others count: family → label values → value; called in a scrape's thread."""
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the tick duration's buckets, in seconds."""
SUMMARY: Final = (0.5, 0.99, 1.0)
"""The quantiles that a summary has; 1 is the largest value since the start."""
SUM: Final = "sum"
COUNT: Final = "count"
MOST_SERIES: Final = 128
"""Series of one family; further label values are counted under "other"."""
OTHER: Final = "other"
"""The label value of everything that is folded."""
_LONGEST: Final = 256


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All values at one moment; nobody changes it.

    Attributes:
        values: family → label values → value; a summary's have one label more (`summary_of`).
        buckets: observations per bucket of the tick duration, the last beyond all bounds.
    """

    values: Mapping[str, Mapping[Labels, float]] = field(default_factory=dict)
    buckets: tuple[int, ...] = (0,) * (len(BUCKETS) + 1)
    seconds: float = 0.0


class Values:
    """Values under one writer; `publish` makes them visible to other threads."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Labels, float]] = {
            name: {} if family.labels or family.type is Type.SUMMARY else {(): 0.0}
            for name, family in FAMILIES.items()
            if family.type is not Type.HISTOGRAM
        }
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0
        self._folded: dict[str, set[str]] = {}
        self.snapshot = Snapshot()
        """The latest published; replaced whole, so it may be read from any thread."""

    def add(self, name: str, amount: float, *labels: str) -> None:
        """Count `amount` more. Raises KeyError: there is no such family."""
        series = self._values[name]
        if labels not in series and len(series) >= MOST_SERIES:
            labels = self._fold(name, labels)
        series[labels] = series.get(labels, 0.0) + amount

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set one value; as `add` where there are too many series."""
        series = self._values[name]
        if labels not in series and len(series) >= MOST_SERIES:
            labels = self._fold(name, labels)
        series[labels] = value

    def replace(self, name: str, values: Mapping[Labels, float]) -> None:
        """Set a whole gauge family; the caller bounds it."""
        self._values[name] = dict(values)

    def forget(self, name: str, label: str) -> None:
        """Drop the series whose first label is `label`."""
        series = self._values[name]
        for labels in [labels for labels in series if labels[0] == label]:
            del series[labels]

    def _fold(self, name: str, labels: Labels) -> Labels:
        """Label values that stand for those there is no room for."""
        seen = self._folded.setdefault(name, set())
        if len(seen) < MOST_SERIES:
            seen.add("\0".join(labels))
        self._values[FOLDED][(FAMILIES[name].labels[0],)] = float(len(seen))
        return (OTHER,) * len(labels)

    def observe_tick(self, seconds: float) -> None:
        """Take in how long a tick took."""
        self._buckets[bisect.bisect_left(BUCKETS, seconds)] += 1
        self._seconds += seconds

    def publish(self) -> None:
        """Make everything up to now visible to `snapshot`."""
        self.snapshot = Snapshot(
            {name: dict(series) for name, series in self._values.items()},
            tuple(self._buckets),
            self._seconds,
        )


def summary_of(times: Quantiles, *labels: str) -> dict[Labels, float]:
    """Times in ns as a summary's values in seconds.

    The last label is `SUM`, `COUNT` or a quantile; quantiles are left out as long as nothing was
    counted.
    """
    count = times.count
    found = {f"{q:g}": times.quantile(q) / 1e9 for q in SUMMARY if count}
    found |= {SUM: times.sum / 1e9, COUNT: float(count)}
    return {(*labels, part): value for part, value in found.items()}


def label(text: str) -> str:
    """`text` as a label value: printable, and not long."""
    return printable(text[:_LONGEST])[:_LONGEST]


class Groups:
    """The control groups that have series of their own: those with the most resident memory.

    A group keeps its place as long as it has processes, so that its counters go on.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: set[str] = set()
        self.folded = 0
        """Groups that were folded at the last `choose`."""

    def choose(self, resident: Mapping[str, float]) -> frozenset[str]:
        """Choose anew among the groups there are, with their resident memory; who lost a place."""
        gone = self._kept - resident.keys()
        self._kept -= gone
        waiting = sorted(resident.keys() - self._kept, key=lambda group: (-resident[group], group))
        space = max(0, self._limit - len(self._kept))
        self._kept.update(waiting[:space])
        self.folded = len(waiting[space:])
        return frozenset(gone)

    def name(self, group: str) -> str:
        """The group's label value: its own name, or "other"."""
        return group if group in self._kept else OTHER
