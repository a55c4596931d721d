# SPDX-License-Identifier: Apache-2.0
"""What sources are told of fast memory, and heat's change of unit."""

from __future__ import annotations

import numpy as np
import pytest
from loopbench import ScanningSource, Source

from tierd.core.access import AccessBatch, Seen
from tierd.core.tiermap import (
    MemoryKind,
    MemoryNode,
    NodeUsage,
    Provenance,
    Quantity,
    Tier,
    TierMap,
)
from tierd.engine.groups import ResidentBytes
from tierd.engine.sampling_limits import SamplingLimits, max_sampling_interval_us, space_fraction
from tierd.hotness.table import HeatTable

MIB = 1 << 20
PAGES = MIB // 4096


def two_tiers() -> TierMap:
    """Node 0 the fast one, node 1 the slow one."""
    tiers, nodes = [], {}
    kinds = ((MemoryKind.DRAM, 118.0), (MemoryKind.CXL, 430.0))
    for number, (kind, latency) in enumerate(kinds):
        figures = (Quantity(latency, Provenance.DEFAULT), Quantity(1e11, Provenance.DEFAULT))
        nodes[number] = MemoryNode(number, 1 << 34, frozenset(), kind, *figures)
        tiers.append(Tier(number, kind.value, kind, (number,), 1 << 34, *figures))
    return TierMap(tuple(tiers), nodes)


TIERS = two_tiers()


def resident_bytes(fast_mib: int, slow_mib: int) -> ResidentBytes:
    found = ResidentBytes()
    found.begin(1)
    node = np.repeat(np.array([0, 1], np.int16), [fast_mib * PAGES, slow_mib * PAGES])
    found.count(1, node, np.zeros(len(node), np.uint8))
    found.finish(1)
    return found


def usage(total_mib: int, free_mib: int, reserve_mib: int = 0) -> dict[int, NodeUsage]:
    return {0: NodeUsage(total_mib * MIB, free_mib * MIB, reserve_mib * MIB)}


def test_room_is_what_targets_have_and_what_is_free_beyond_what_is_kept() -> None:
    share = space_fraction(resident_bytes(30, 70), TIERS, usage(1000, 60), 0.04)
    assert share == pytest.approx(0.5)  # 30 + 60 - 40 of 100
    kept = space_fraction(resident_bytes(30, 70), TIERS, usage(1000, 60, reserve_mib=55), 0.04)
    assert kept == pytest.approx(0.35)
    assert space_fraction(resident_bytes(30, 70), TIERS, usage(1000, 900), 0.04) == 1.0
    assert space_fraction(ResidentBytes(), TIERS, usage(1000, 900), 0.04) is None


def test_heat_fades_and_grows_with_the_unit() -> None:
    heat = HeatTable(capacity_pages=1000, half_life_s=5.0)
    page = np.array([7 | 1 << 48], np.uint64)
    heat.ingest(AccessBatch(page, np.array([64.0], np.float32), 10**9, "scan"))
    limits, source = SamplingLimits(heat, resident_bytes(1, 1)), ScanningSource("scan")
    limits.aim(source, TIERS, usage(100, 50), 0.04)
    assert source.aim == 1.0
    assert not limits.follow_unit(source)
    for dilution, expected in ((1 / 16, 4.0), (0.9 / 16, 4.0), (0.25, 16.0), (1.0, 64.0)):
        source.dilution = dilution
        limits.follow_unit(source)
        assert heat.lookup(int(page[0])).heat[0] == pytest.approx(expected, rel=1e-3)
    other = ScanningSource("neoprof")
    other.dilution = 0.01
    assert not limits.follow_unit(other)  # another source begins in its own
    assert heat.lookup(int(page[0])).heat[0] == pytest.approx(64.0, rel=1e-3)
    assert not limits.follow_unit(None)


SCAN_S, TICK_S = 20, 0.5
HOT, WATCHED = 2000, 20_000


def hot_found(*, follows: bool) -> float:
    """Of the pages that heat has for the hottest, the part that is.

    A large host: a scan goes through all pages in `SCAN_S`, some in each tick. A tenth is found
    in use by each scan, and of the others each seventh, never the same ones.
    """
    heat, source = HeatTable(capacity_pages=WATCHED, half_life_s=5.0), ScanningSource("scan")
    source.seen = Seen(0.24, SCAN_S, SCAN_S)
    limits, draw = SamplingLimits(heat, resident_bytes(1, 1)), np.random.default_rng(1)
    rank = draw.permutation(WATCHED)
    steps = int(SCAN_S / TICK_S)
    for tick in range(6 * steps):
        if follows:
            limits.follow_period(source, 5.0)
        scanned = np.arange(tick % steps, WATCHED, steps)
        used = scanned[(rank[scanned] < HOT) | (draw.random(len(scanned)) < 1 / 7)]
        page, count = used.astype(np.uint64), np.ones(len(used), np.float32)
        node = np.zeros(len(used), np.int16)
        when = int(tick * TICK_S * 1e9) + 10**12
        heat.ingest(AccessBatch(page, count, when, "scan", node=node))
    hottest = heat.hottest(0, HOT).page.astype(np.int64)
    assert len(hottest) == HOT
    return float((rank[hottest] < HOT).mean())


def test_where_scans_take_long_heat_tells_how_often_pages_are_used() -> None:
    assert hot_found(follows=True) > 0.95
    assert hot_found(follows=False) < 0.7  # it tells when they were scanned


def test_heat_lasts_for_some_scans_and_no_shorter_than_configured() -> None:
    heat, source = HeatTable(capacity_pages=10, half_life_s=5.0), ScanningSource("scan")
    limits = SamplingLimits(heat, resident_bytes(1, 1))

    def after(seen: Seen | None, configured_s: float = 5.0, *, follows: bool = True) -> float:
        source.seen = seen
        limits.follow_period(source, configured_s, follows=follows)
        return heat.half_life_s

    periods = (0.8, 1.6, 10.0, 11.0, 30.0)
    # A period that is hardly another one changes nothing.
    assert [after(Seen(0.1, 0.02, each)) for each in periods] == [5.0, 5.0, 30.0, 30.0, 90.0]
    # Scans that begin anew tell nothing of their period yet.
    assert after(Seen(0.0, 0.02, 0.8)) == 90.0
    assert after(Seen(0.1, 0.02, 1.6)) == 5.0
    assert after(Seen(0.1, 0.02, 1.0), 2.0) == 3.0
    assert after(None, 2.0) == 2.0
    assert after(Seen(0.1, 0.02, 10.0), follows=False) == 5.0
    limits.follow_period(None, 2.0)
    assert heat.half_life_s == 2.0


def test_the_interval_is_the_time_between_two_uses_of_a_page_that_is_just_worth_its_moves() -> None:
    """Two moves of 10 us, of which a use wins back 312 ns: 128 uses a second pay in half one."""
    assert max_sampling_interval_us(TIERS, 0.5, 0.0) == pytest.approx(7800, abs=1)
    # It doubles with an eighth of the age of the phase.
    times = [max_sampling_interval_us(TIERS, 0.5, still) for still in (3.9, 7.9, 8.0, 16.0, 64.0)]
    assert times == [7800, 7800, 15_600, 31_200, 124_800]
    assert max_sampling_interval_us(TIERS, 60.0, 0.0) == pytest.approx(936_000, abs=200)


def test_it_is_not_bounded_where_nobody_knows_what_a_use_saves() -> None:
    one = TierMap(TIERS.tiers[:1], {0: TIERS.nodes[0]})
    assert max_sampling_interval_us(one, 0.5, 0.0) is None
    limits, source = (
        SamplingLimits(HeatTable(capacity_pages=10, half_life_s=5.0), resident_bytes(1, 1)),
        ScanningSource(),
    )
    limits.bound(source, TIERS, 0.5, 0.0)
    assert source.longest_us == 7800
    assert source.lag_us == 500_000
    limits.bound(source, TIERS, 0.5, 16.0)
    assert (source.longest_us, source.lag_us) == (31_200, 2_000_000)
    limits.bound(source, one, 0.5, 0.0)
    assert source.longest_us is None
    limits.bound(Source(), TIERS, 0.5, 0.0)  # one that does not scan takes no bounds
