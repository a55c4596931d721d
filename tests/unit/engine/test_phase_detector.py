# SPDX-License-Identifier: Apache-2.0
"""A hot set that moves: how it is noticed, and what follows."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from fastpath_bench import Bench, S

from tierd.core.access import AccessBatch
from tierd.core.reasons import Reason
from tierd.core.tuning import PHASE
from tierd.engine.fastpath.runner import FastPathRunner
from tierd.engine.fastpath.update import FastPathUpdater
from tierd.engine.phase import CoolingSettings, PhaseDetector
from tierd.hotness.table import HeatTable
from tierd.migration.fastpath_update import Orders, PromoterStats
from tierd.observe.totals import Totals


def test_a_moved_hot_set_fades_heat_and_begins_a_new_epoch(bench: Bench) -> None:
    bench.watch()
    now = time.monotonic_ns()

    def seen(pages: range, count: float) -> list[AccessBatch]:
        page = np.array(pages, np.uint64)
        counts = np.full(len(page), count, np.float32)
        return [AccessBatch(page, counts, now, "neoprof")]

    found = []
    for tick in range(30):
        now += S // 2
        hot = range(1000, 2000) if tick < 20 else range(5000, 6000)
        batches = seen(hot, 5.0) + seen(range(10_000 + 20 * tick, 10_020 + 20 * tick), 1.0)
        if bench.fast_path.see(batches, now):
            found.append(tick)
        for batch in batches:
            bench.heat.ingest(batch)
    # The new set is new for two ticks: then it is known as hot.
    assert found == [21]
    assert any("do" in asked for _, asked in bench.cards.asked[1:])


def test_many_refused_at_once_begin_a_new_epoch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.watch()
    bench.tick()
    refused = 0
    held = [0] * len(Reason)

    def stats(native: FastPathRunner) -> PromoterStats:
        held[Reason.NOT_HOTTER] = refused
        return PromoterStats({}, tuple(held))

    monkeypatch.setattr(FastPathRunner, "stats", stats)
    now = time.monotonic_ns()
    assert not bench.fast_path.miss_burst_seen(now)
    asked = len(bench.cards.asked)
    for _ in range(8):
        now += S // 2
        assert not bench.fast_path.miss_burst_seen(now)
        assert not bench.fast_path.see([], now)
    refused += 10 * PHASE.burst_refused_pages
    assert bench.fast_path.miss_burst_seen(now + S // 4)
    assert bench.fast_path.miss_burst_seen(now + S // 4), "until a pass has seen to it"
    before = next(iter(bench.source.epochs.values())).start_ns
    assert not bench.fast_path.see([], now + S // 2), "no hot set has moved, as far as is known"
    assert "do" in bench.cards.asked[asked][1]
    assert next(iter(bench.source.epochs.values())).start_ns > before
    assert not bench.fast_path.miss_burst_seen(now + S)
    monkeypatch.undo()
    came: list[int] = []
    orders = FastPathUpdater.orders

    def told(
        updater: FastPathUpdater, source: Any, around: Any, came_in: int, groups: Any
    ) -> Orders:
        came.append(came_in)
        return orders(updater, source, around, came_in, groups)

    monkeypatch.setattr(FastPathUpdater, "orders", told)
    bench.tick()
    bench.tick()
    # As many as were refused may come in now, once.
    assert came == [10 * PHASE.burst_refused_pages, 0]
    totals = Totals()
    bench.fast_path.tell(totals)
    assert totals.native["epoch_restarts"] == 1


def test_another_source_starts_another_watch() -> None:
    heat = HeatTable(capacity_pages=1000, half_life_s=5.0)
    changes = PhaseDetector(heat, CoolingSettings())
    page, now = np.arange(100, dtype=np.uint64), S
    few = AccessBatch(page[:1], np.ones(1, np.float32), S, "a")
    many = AccessBatch(page, np.full(100, 50, np.float32), S, "b")
    told = []
    for tick in range(20):
        now += S // 2
        told.append(changes.watch([few] if tick < 15 else [many], "a" if tick < 15 else "b", now))
    assert not any(told)


@pytest.mark.parametrize("beside", [True, False])
def test_a_cards_silence_is_a_level_to_rise_from_while_others_see_accesses(beside: bool) -> None:
    """All that is hot lies in fast memory, until the hot set moves."""
    heat = HeatTable(capacity_pages=1000, half_life_s=5.0)
    changes = PhaseDetector(heat, CoolingSettings())
    page, now = np.arange(300, dtype=np.uint64), S
    told = []
    for tick in range(30):
        now += S // 2
        batches = []
        if tick == 1:
            batches.append(AccessBatch(page[:9], page[:9] + 1.0, now, "a"))
        if tick >= 20:
            hot = page[(tick - 20) * 60 : (tick - 19) * 60]
            batches.append(AccessBatch(hot, np.full(len(hot), 50.0), now, "a"))
        if beside:
            batches.append(AccessBatch(page[:5], page[:5] + 1.0, now, "b"))
        if changes.watch(batches, "a", now):
            told.append(tick)
        for batch in batches:
            heat.ingest(batch)
    assert told == ([21] if beside else [])


def test_the_first_accesses_after_silence_are_no_change() -> None:
    heat = HeatTable(capacity_pages=1000, half_life_s=5.0)
    changes = PhaseDetector(heat, CoolingSettings())
    page, now = np.arange(100, dtype=np.uint64), S
    told = []
    for tick in range(40):
        now += S // 2
        batch = AccessBatch(page, np.full(100, 50, np.float32), now, "a")
        told.append(changes.watch([batch] if tick >= 20 else [], "a", now))
        if tick >= 20:
            heat.ingest(batch)
    assert not any(told)
