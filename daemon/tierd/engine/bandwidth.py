# SPDX-License-Identifier: Apache-2.0
"""`BandwidthMonitor`: the bandwidth that each node serves now, as the cost policy's `Traffic`.

Each node's value comes from the best counter that it has:

- the state monitor of a NeoProf card in front of the node, which counts lines;
- the memory controllers of its socket (uncore PMUs, read through perf);
- sampled accesses. Each stands for a period of events, and its page says on which node. Where
  resctrl (MBM) measures the host's total, the nodes without a counter divide that total in the
  ratio of their samples; elsewhere the sampling period gives the value.

Sources that do not sample by count (accessed bits, DAMON) give no bandwidth. The policy then uses
the heat of pages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tierd.core import bounds
from tierd.core.access import LINE_BYTES, AccessBatch, AccessSource
from tierd.core.tiermap import Measured
from tierd.core.tuning import BANDWIDTH
from tierd.hotness.pattern import PatternTracker
from tierd.hotness.table import HeatTable
from tierd.policy.inputs import LoadSource, Traffic
from tierd.sources.neoprof import NeoProfSource

RESCTRL: Final = "sys/fs/resctrl/mon_data"


class BandwidthMonitor:
    """Measures the bandwidth of nodes; for the loop's thread only.

    Args:
        half_life_s: of heat, and of patterns.
        counted: bytes a second by node over the given seconds since the last call, where
            memory controllers count.
    """

    def __init__(
        self,
        heat: HeatTable,
        half_life_s: float,
        *,
        measured: Callable[[], Mapping[int, Measured]] = dict,
        counted: Callable[[float], Mapping[int, float]] = lambda elapsed_s: {},
        root: Path = Path("/"),
    ) -> None:
        self._heat = heat
        self._half_life_s = half_life_s
        self._measure = measured
        self._counted = counted
        self._measured: dict[int, Measured] = {}
        self._probe_ns = 0
        self._root = root
        self.patterns = PatternTracker(half_life_s)
        self._lines: dict[int, float] = {}
        self._loads: dict[int, float] = {}
        self._sources: dict[int, LoadSource] = {}
        self._period = 1.0
        self._first_ns = self._last_ns = 0
        self._cards: dict[int, tuple[int, int]] = {}
        self._total: int | None = None

    def set_half_life(self, half_life_s: float) -> None:
        """Let evidence decay in another time."""
        if half_life_s != self._half_life_s:
            self._half_life_s, self.patterns = half_life_s, PatternTracker(half_life_s)

    def see(self, batches: Sequence[AccessBatch], source: AccessSource | None) -> None:
        """Take in what a source saw."""
        period = 0.0 if source is None else source.lines_per_count
        self._period = period or 1.0
        for batch in batches:
            self._first_ns = self._first_ns or batch.time_ns
            self.patterns.add(batch)
            if not period or not len(batch):
                continue
            node = self._heat.where(batch.page)
            weight = batch.count.astype(np.float64)
            if batch.is_write is not None:
                weight = weight * (1 + batch.is_write)
            known = node >= 0
            for number, lines in enumerate(np.bincount(node[known], weight[known])):
                if lines:
                    self._lines[number] = self._lines.get(number, 0.0) + float(lines) * period

    def forget(self) -> None:
        """Drop what is known, because the hot set has changed."""
        self.patterns.forget()

    def read(self, now_ns: int, nodes: Sequence[int], source: AccessSource | None) -> Traffic:
        """The traffic of the last interval."""
        if now_ns >= self._probe_ns:
            self._probe_ns = now_ns + bounds.PROBE_INTERVAL_NS
            for node, found in self._measure().items():
                self._measured[node] = found.beside(self._measured.get(node, found))
        elapsed_s = (now_ns - self._last_ns) / 1e9 if self._last_ns else 0.0
        if elapsed_s > 0:
            self._account(elapsed_s, nodes, source)
        self._last_ns = now_ns
        self.patterns.advance(now_ns)
        seen_s = (now_ns - self._first_ns) / 1e9 if self._first_ns else 0.0
        return Traffic(
            now_ns,
            self._half_life_s,
            seen_s=max(seen_s, 0.0),
            load=dict(self._loads),
            source=dict(self._sources),
            lines_per_count=self._period,
            patterns=self.patterns.snapshot(),
            measured=dict(self._measured),
        )

    def _account(self, elapsed_s: float, nodes: Sequence[int], source: AccessSource | None) -> None:
        lines, self._lines = self._lines, {}
        found: dict[int, tuple[float, LoadSource]] = {}
        if source is not None and source.lines_per_count:
            sampled = {node: lines.get(node, 0.0) * LINE_BYTES / elapsed_s for node in nodes}
            found = {node: (load, LoadSource.SAMPLES) for node, load in sampled.items()}
            total = self._resctrl(elapsed_s)
            if total is not None and (every := sum(sampled.values())) > 0:
                found = {
                    node: (total * load / every, LoadSource.RESCTRL)
                    for node, load in sampled.items()
                }
        found.update(
            (node, (load, LoadSource.UNCORE))
            for node, load in self._counted(elapsed_s).items()
            if node in nodes
        )
        if isinstance(source, NeoProfSource):
            found.update(self._card_loads(source, elapsed_s))
        weight = min(1.0, elapsed_s / (BANDWIDTH.mean_half_lives * self._half_life_s))
        self._sources = {node: told for node, (_, told) in found.items()}
        self._loads = {
            node: load + (1 - weight) * (self._loads.get(node, load) - load)
            for node, (load, _) in found.items()
        }

    def _card_loads(
        self, source: NeoProfSource, elapsed_s: float
    ) -> dict[int, tuple[float, LoadSource]]:
        """Bytes a second of the nodes in front of which there is a single card."""
        found: dict[int, tuple[float, LoadSource]] = {}
        before, self._cards = self._cards, {}
        for number, profile in source.profiles().items():
            counted = profile.counters
            beats = counted.get("read_beats", 0) + counted.get("write_beats", 0)
            self._cards[number] = (beats, 0)
            nodes = source.cards[number].nodes
            if number in before and len(nodes) == 1:
                grown = max(0, beats - before[number][0])
                found[next(iter(nodes))] = (grown * LINE_BYTES / elapsed_s, LoadSource.CARD)
        return found

    def _resctrl(self, elapsed_s: float) -> float | None:
        """Bytes a second of all sockets' caches to memory; None where nothing counts them."""
        files = (self._root / RESCTRL).glob("mon_L3_*/mbm_total_bytes")
        try:
            counts = [int(file.read_text()) for file in files]
        except (OSError, ValueError):  # "Unavailable" until a counter has run once
            return None
        if not counts:
            return None
        before, self._total = self._total, sum(counts)
        if before is None or self._total < before:
            return None
        return (self._total - before) / elapsed_s
