# SPDX-License-Identifier: Apache-2.0
"""From snapshots to prometheus-client's families."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tierd.observe.metrics.families import FAMILIES, Family, Type
from tierd.observe.metrics.values import BUCKETS, Extra, Labels, Snapshot


class TierdCollector(Collector):
    """Reads the latest snapshot at each scrape.

    Args:
        snapshot: the latest one.
        extras: counted outside of the loop.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], extras: Iterable[Extra] = ()) -> None:
        self._snapshot = snapshot
        self._extras = list(extras)

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are checked by tests, not at each start."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families with a value."""
        snapshot = self._snapshot()
        values = dict(snapshot.values)
        for extra in self._extras:
            values.update(extra())
        for family in FAMILIES.values():
            if family.type is Type.HISTOGRAM:
                yield _histogram(family, snapshot)
            else:
                yield _plain(family, values[family.name])


def _plain(family: Family, series: Mapping[Labels, float]) -> Metric:
    kind = CounterMetricFamily if family.type is Type.COUNTER else GaugeMetricFamily
    metric: CounterMetricFamily | GaugeMetricFamily = kind(
        family.name, family.help, labels=family.labels
    )
    for labels, value in sorted(series.items()):
        metric.add_metric(labels, value)
    return metric


def _histogram(family: Family, snapshot: Snapshot) -> Metric:
    count, buckets = 0, []
    for bound, more in zip((*BUCKETS, float("inf")), snapshot.buckets, strict=True):
        count += more
        buckets.append(("+Inf" if bound == float("inf") else str(bound), float(count)))
    metric = HistogramMetricFamily(family.name, family.help)
    metric.add_metric((), buckets, snapshot.seconds)
    return metric


def make_registry(
    snapshot: Callable[[], Snapshot], extras: Iterable[Extra] = ()
) -> CollectorRegistry:
    """A registry of tierd's own families and those of its process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(TierdCollector(snapshot, extras))
    ProcessCollector(registry=registry)
    return registry
