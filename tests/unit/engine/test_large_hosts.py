# SPDX-License-Identifier: Apache-2.0
"""What a tick does, and what tables take, does not grow with the host: by counts, not by time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from large_host import FIRST_PID, LargeHost
from large_host_meter import forget_peak, rss_bytes
from large_host_service import in_place, make_service

from tierd.core import bounds
from tierd.core.access import AccessBatch, WatchedRange
from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.hotness.table import HeatTable
from tierd.migration import origins as origins_module
from tierd.migration.origins import ROW, Origins
from tierd.observe.tick_record import TickRecord
from tierd.policy.candidates import DecisionHeat
from tierd.workloads.extents import Extents

CAPACITY = 400_000


def full_table() -> HeatTable:
    """Pages of target 0, each as hot as any other."""
    table = HeatTable(capacity_pages=CAPACITY, half_life_s=5.0)
    ingest(table, np.arange(CAPACITY))
    return table


def ingest(table: HeatTable, page: Any, count: float = 1.0) -> None:
    page = np.asarray(page, np.uint64)
    table.ingest(AccessBatch(page, np.full(len(page), count, np.float32), 10**9, "test"))


def test_a_page_that_comes_to_a_full_table_has_few_leave_and_all_of_them_cold() -> None:
    table = full_table()
    ingest(table, np.arange(0, CAPACITY, 2), 100.0)
    before = table.stats()
    ingest(table, [CAPACITY + 1])
    after = table.stats()
    assert 0 < after.evicted - before.evicted <= 4096
    assert after.compared - before.compared < CAPACITY / 4
    assert after.passed == before.passed
    ingest(table, np.arange(CAPACITY + 1, CAPACITY + 1 + CAPACITY // 4), 50.0)
    assert table.stats().tracked <= CAPACITY
    assert table.stats().passed == before.passed
    assert all(len(table.lookup(key)) for key in range(0, CAPACITY, 1000))


def test_a_process_that_ends_is_forgotten_without_a_pass_over_the_table() -> None:
    table = full_table()
    before = table.stats().passed
    table.forget_target(7)
    assert table.stats().passed == before
    spans = np.array([[100, 200], [1000, 1001]], np.uint64)
    table.hold(spans, True)
    assert table.stats().passed == before


def test_a_table_that_grows_takes_hardly_more_than_the_larger_one() -> None:
    capacity = 3 << 20
    table = HeatTable(capacity_pages=capacity, half_life_s=5.0)
    ingest(table, np.arange(capacity // 2))
    pages = np.arange(capacity // 2, capacity, dtype=np.uint64)
    batches = [pages[at : at + 65536] for at in range(0, len(pages), 65536)]
    ingest(table, batches[0])
    begun, size = rss_bytes()[0], table.stats().memory_bytes
    forget_peak()
    for each in batches:
        ingest(table, each)
    grown = table.stats().memory_bytes - size
    assert grown > 16 << 20
    # Two tables at a time would take as much as the smaller one more.
    assert rss_bytes()[1] - begun < grown + size // 2


def test_a_decision_that_asks_for_a_little_more_of_the_same_asks_heat_twice() -> None:
    table = HeatTable(capacity_pages=CAPACITY, half_life_s=5.0)
    for heat in range(1, 9):
        page = np.arange(heat * 1000, heat * 1000 + 1000, dtype=np.uint64)
        ingest(table, page, heat)
        table.place(page, np.zeros(1000, np.int16), np.zeros(1000, np.uint8), insert_on=())
    view = DecisionHeat(table)
    before = table.stats().compared
    hottest = [view.hottest(0, n, 2.0) for n in (10, 20, 40, 80)]
    coldest = [view.coldest(0, n) for n in (10, 20, 40, 80)]
    four = table.stats().compared - before
    for n, hot, cold in zip((10, 20, 40, 80), hottest, coldest, strict=True):
        assert np.array_equal(hot.page, table.hottest(0, n, 2.0).page)
        assert np.array_equal(cold.page, table.coldest(0, n).page)
    eight = table.stats().compared - before - four
    assert four <= 0.6 * eight


def test_a_decision_asks_heat_for_no_more_than_a_bound_beyond_what_it_wants() -> None:
    table, asked = HeatTable(capacity_pages=CAPACITY, half_life_s=5.0), []
    page = np.arange(1, 200_001, dtype=np.uint64)
    ingest(table, page, 4)
    table.place(page, np.zeros(len(page), np.int16), np.zeros(len(page), np.uint8), insert_on=())

    class Asked:
        def __getattr__(self, name: str) -> Any:
            return getattr(table, name)

        def coldest(self, node: int, n: int) -> Any:
            asked.append(n)
            return table.coldest(node, n)

    view = DecisionHeat(Asked())  # type: ignore[arg-type]
    for n in (2000, 2001, 16_001, 70_000):
        assert len(view.coldest(0, n)) == n
    assert asked == [2000, 2000 * bounds.ASKED_AGAIN, bounds.ASKED_AT_ONCE, 70_000]


def report(page: Any) -> MigrationResult:
    n = len(page)
    plan = MigrationPlan(
        page=np.asarray(page, np.uint64),
        order=np.zeros(n, np.uint8),
        source=np.ones(n, np.int16),
        dest=np.zeros(n, np.int16),
        direction=np.ones(n, np.uint8),
        heat=np.zeros(n, np.float32),
    )
    return MigrationResult(plan, np.full(n, Fate.MOVED, np.uint8), plan.dest, {}, 0, 0, 0, 0)


def test_moves_put_a_bounded_number_of_folios_into_order_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined = 0
    join = origins_module._Part.join

    def counted(part: Any) -> None:
        nonlocal joined
        joined += len(part.rows) + part.new_rows
        join(part)

    monkeypatch.setattr(origins_module._Part, "join", counted)
    space, most = 16 * bounds.ORIGIN_PART, 0
    made = Origins(space)
    for first in range(0, space, 32768):
        before = joined
        made.moved(report(np.arange(first, first + 32768) * 4096))
        most = max(most, joined - before)
    assert most <= bounds.ORIGIN_STEP + 2 * bounds.ORIGIN_PART
    assert made.memory_bytes <= 1.5 * ROW.itemsize * space
    assert len(made.folios()) + made.dropped == space
    assert made.dropped < space / 50


def test_extents_of_memory_whose_nodes_alternate_are_bounded() -> None:
    extents = Extents()
    for first in range(0, 32 * 65536, 65536):
        vpn = np.arange(first, first + 65536, dtype=np.uint64)
        extents.add(vpn, (vpn % 2).astype(np.int16), np.zeros(65536, np.uint8))
    assert sum(map(len, extents._starts)) <= 64
    assert extents.finish() == (WatchedRange(0, 32 * 65536),)
    for first in range(0, 6000 * 4096, 4096):
        vpn = np.arange(first, first + 2048, dtype=np.uint64)
        extents.add(vpn, np.zeros(2048, np.int16), np.zeros(2048, np.uint8))
    found = extents.finish()
    assert len(found) == bounds.WATCHED_RANGES
    assert (found[0].start, found[-1].end) == (0, 6000 * 4096 - 2048)


class Ticks:
    """Counts what each tick did, and ends the run after so many seconds of the host's time."""

    def __init__(self, host: LargeHost, seconds: float) -> None:
        self.service = make_service(host)
        self.service.observe(self)
        self._host, self._end_ns = host, host.now + int(seconds * 1e9)
        self.ticks: list[tuple[int, ...]] = []

    def on_tick(self, tick: TickRecord) -> None:
        stats = self.service.components.heat.stats()
        asked = tick.walked + tick.located
        self.ticks.append((asked, stats.passed, stats.compared, stats.memory_bytes))
        if self._host.now >= self._end_ns:
            self.service.work.stopping = True


def run(folder: Path, pages: int, **given: Any) -> tuple[LargeHost, Ticks]:
    folder.mkdir()
    # What is counted must not depend on how fast this CPU is.
    host = LargeHost(folder, pages, settings='[loop]\ncpu_limit = "100%"', **given)
    with in_place(host):
        ticks = Ticks(host, 20)
        ticks.service.run()
    return host, ticks


def passes_without_growth(found: Ticks) -> int:
    """Ticks that read the whole table though it did not grow; it is maintained each two minutes."""
    counts = np.diff(np.array(found.ticks), axis=0)
    return int(np.count_nonzero((counts[:, 1] > 0) & (counts[:, 3] == 0)))


def test_a_tick_of_a_larger_host_does_no_more(tmp_path: Path) -> None:
    for size in (1 << 17, 1 << 19):
        host, found = run(tmp_path / str(size), size)
        service, counts = found.service, np.diff(np.array(found.ticks), axis=0)
        assert max(each[0] for each in found.ticks) <= host.config.residency.pages_per_tick
        assert passes_without_growth(found) == 0
        slots = service.components.heat.stats().memory_bytes / 18
        assert counts[:, 2].mean() < 16 * slots
        assert service.totals.lost_samples == 0


def test_programs_that_map_and_unmap_memory_cost_no_pass(tmp_path: Path) -> None:
    host, found = run(tmp_path / "host", 1 << 17, targets=8, churn=4)
    assert len(host.pids) == 8 and host.pids[0] == FIRST_PID
    pages = found.service.components.tracking._pages.values()
    assert any(each.activity[:1] > (b"2",) for each in pages), "mappings were not read again"
    assert passes_without_growth(found) == 0
