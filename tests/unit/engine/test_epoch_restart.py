# SPDX-License-Identifier: Apache-2.0
"""Bursts of refused promotions, and the early end of cards' epochs."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fastpath_bench import Bench, S

from tierd.core.migration import Reason
from tierd.core.tuning import PHASE
from tierd.engine.fastpath.runner import FastPathRunner
from tierd.engine.fastpath.update import FastPathUpdater
from tierd.migration.fastpath_update import Orders, PromoterStats
from tierd.observe.totals import Totals


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
        assert not bench.fast_path.restart_epoch(now)
    refused += 10 * PHASE.burst_refused_pages
    assert bench.fast_path.miss_burst_seen(now + S // 4)
    assert bench.fast_path.miss_burst_seen(now + S // 4), "until a pass has seen to it"
    before = next(iter(bench.source.epochs.values())).start_ns
    assert bench.fast_path.restart_epoch(now + S // 2)
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
    assert totals.tell_native()["epoch_restarts"] == 1
