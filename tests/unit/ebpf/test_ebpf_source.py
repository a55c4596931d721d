# SPDX-License-Identifier: Apache-2.0
"""The course of a source: background loading, failures, scaling, writes, accounts."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tierd.core import bounds
from tierd.core.access import Availability, WatchedRange, WatchedTarget
from tierd.core.errors import UnavailableError
from tierd.core.pagekey import make_keys
from tierd.core.tuning import PACING
from tierd.sources.ebpf.loader import Loaded
from tierd.sources.ebpf.perf import EventAttr, Sample
from tierd.sources.ebpf.sampler import Sampler, ring_pages
from tierd.sources.ebpf.source import Budget, SampledSource
from tierd.sources.ebpf.table import (
    CONFIG,
    SLOT,
    STATS,
    EventPlan,
    Layout,
    PageTable,
    Sampled,
    SamplerSettings,
    Watched,
    map_array,
)

TARGETS = [WatchedTarget(3, 33, (WatchedRange(100, 200),))]
ATTR = EventAttr(1, 2, 10, Sample.TID | Sample.ADDR)


class FakeTable:
    def stat(self, _name: str) -> int:
        return 0


class FakeSampler:
    """Becomes ready after some polls, or fails; samples what it is told."""

    def __init__(self, wait: int = 0, error: str = "") -> None:
        self.left, self.error = wait, error
        self.loaded: Loaded | None = None
        self.table: FakeTable | None = None
        self.targets: dict[int, int] = {}
        self.periods: list[int] = []
        self.modes: list[int] = []
        self.closed = False
        self.samples, self.lost, self.throttled = 0, 0, 0

    def start(self) -> None:
        pass

    def ready(self, *, wait: bool = False) -> bool:
        if self.left > 0 and not wait:
            self.left -= 1
            return False
        if self.error:
            raise UnavailableError(self.error)
        if self.loaded is None:
            self.loaded, self.table = Loaded({}, {}, "fake", 0.0, 0), FakeTable()
        return True

    def set_targets(self, targets: dict[int, int]) -> None:
        self.targets = targets

    def set_mode(self, mode: int) -> None:
        self.modes.append(mode)

    def set_period(self, period: int) -> None:
        self.periods.append(period)

    def follow_cpus(self) -> None:
        pass

    def program_runs(self) -> tuple[int, int]:
        return 0, 0

    def drain(self, _watched: Watched) -> Sampled:
        key = make_keys(3, np.array([100, 101], np.uint64)[: min(2, self.samples)])
        return Sampled(
            key=key,
            count=np.ones(len(key), np.float32),
            is_write=None,
            samples=self.samples,
            outside=0,
            lost=self.lost,
            throttled=self.throttled,
        )

    def close(self) -> None:
        self.closed = True


class Source(SampledSource):
    """A source with a fake sampler and a clock in hand."""

    def __init__(self, *samplers: FakeSampler) -> None:
        self.now = 10**9
        self.made = list(samplers)
        super().__init__(
            "fake",
            Budget(
                samples_per_s=100, cpu_share=1e9, interrupt_ns=0, least_period=10, most_period=1000
            ),
            clock=lambda: self.now,
        )

    def probe(self) -> Availability:
        return Availability(True, "fake")

    def make_sampler(self) -> Sampler:
        return self.made.pop(0)  # type: ignore[return-value]

    def first_period(self) -> int:
        return 10


def test_while_the_program_loads_there_is_nothing_and_no_waiting():
    sampler = FakeSampler(wait=3)
    source = Source(sampler)
    source.watch(TARGETS)
    assert source.poll() == [] and source.poll() == []
    sampler.samples = 2
    batch = source.poll()[0]
    assert batch.page.tolist() == make_keys(3, np.array([100, 101], np.uint64)).tolist()
    assert sampler.targets == {33: 3}, "targets that came before loading ended are watched"


def test_an_empty_watch_loads_nothing():
    source = Source()
    source.watch([])
    assert source.poll() == []


def test_a_failed_load_is_told_to_the_selector_and_remembered():
    source = Source(FakeSampler(error="no way"), FakeSampler())
    with pytest.raises(UnavailableError, match="no way"):
        source.watch(TARGETS)
    assert not source.available().ok and "no way" in source.available().reason
    source.now += bounds.BPF_LOAD_RETRY_NS
    assert source.available().ok
    source.watch(TARGETS)
    assert source.ready()


def test_a_load_that_fails_later_makes_the_selector_take_another():
    sampler = FakeSampler(wait=2, error="refused")
    source = Source(sampler)
    source.watch(TARGETS)
    assert source.poll() == []
    with pytest.raises(UnavailableError, match="refused"):
        source.poll()
    assert sampler.closed
    assert source.available().reason == "refused"
    assert source.poll() == []


def test_loss_alone_makes_a_batch():
    sampler = FakeSampler()
    source = Source(sampler)
    source.watch(TARGETS)
    sampler.lost = 5
    (batch,) = source.poll()
    assert (len(batch), batch.lost) == (0, 5)
    assert source.totals.lost == 5


def test_counts_are_scaled_by_the_period():
    sampler = FakeSampler()
    source = Source(sampler)
    source.watch(TARGETS)
    sampler.samples = 800
    source.now += PACING.upkeep_interval_ns
    (batch,) = source.poll()
    assert batch.count.tolist() == [1.0, 1.0], "the period that was in force counts"
    assert sampler.periods == [40]
    (batch,) = source.poll()
    assert batch.count.tolist() == [4.0, 4.0]


def test_throttling_lengthens_the_period():
    sampler = FakeSampler()
    source = Source(sampler)
    source.watch(TARGETS)
    sampler.samples, sampler.throttled = 100, 2
    source.now += PACING.upkeep_interval_ns
    source.poll()
    assert sampler.periods == [20]
    assert source.totals.throttled == 2


def fill(table_size, maps, counted: list[tuple[int, int, int]]) -> None:
    """Slots (vpn, count, writes) of target 3 in the current half of CPU 0."""
    slots = map_array(maps["sets"], table_size.all_sets * Layout.WAYS, SLOT)
    config = map_array(maps["config"], 1, CONFIG)
    stats = map_array(maps["stats"], table_size.cpus, STATS)
    epoch = int(config["epoch"][0])
    base = (epoch & 1) * table_size.cpus * table_size.sets * Layout.WAYS
    for number, (vpn, count, writes) in enumerate(counted):
        slots[base + number] = (3 << 48 | vpn, epoch, number, count, writes, 0, 0)
        stats["counted"][0, epoch & 1] += count


def test_rings_share_their_memory():
    """However many CPUs: a power of two of pages each, within the whole if at all possible."""
    for rings in (1, 2, 3, 96, 512):
        pages = ring_pages(4 << 20, rings)
        assert pages & (pages - 1) == 0
        assert pages * rings * 4096 <= 4 << 20
    assert ring_pages(1, 2) == 1


@pytest.fixture
def filled():
    """A sampler of two events whose maps are files in memory, with pages in its table."""
    plans = [EventPlan(ATTR, "on_load", False), EventPlan(ATTR, "on_store", True)]
    sampler = Sampler("pmu", plans, SamplerSettings(table_bytes=1 << 16))
    maps = {name: os.memfd_create(name) for name in ("sets", "stats", "config")}
    for fd in maps.values():
        os.ftruncate(fd, 1 << 20)
    sampler.table = PageTable(maps, sampler.size, sleep=lambda _: None)
    fill(sampler.size, maps, [(100, 5, 2), (150, 3, 0), (160, 4, 4), (500, 7, 1)])
    yield sampler
    for fd in maps.values():
        os.close(fd)


def test_loads_and_stores_of_a_page_are_two_records(filled):
    got = filled.drain(Watched(TARGETS))
    assert got.is_write is not None
    records = {
        (int(k) & 0xFFFF, bool(w)): int(c)
        for k, c, w in zip(got.key, got.count, got.is_write, strict=True)
    }
    assert records == {
        (100, False): 3,
        (100, True): 2,
        (150, False): 3,
        (160, True): 4,
    }


def test_samples_are_reported_or_outside_or_lost(filled):
    got = filled.drain(Watched(TARGETS))
    assert got.outside == 7, "page 500 is in no watched range"
    assert got.samples == int(got.count.sum()) + got.outside + got.lost == 19


def test_nobody_can_tell_writes_of_one_mixed_event():
    sampler = Sampler(
        "faults", [EventPlan(ATTR, "on_fault", None)], SamplerSettings(table_bytes=1 << 16)
    )
    maps = {name: os.memfd_create(name) for name in ("sets", "stats", "config")}
    for fd in maps.values():
        os.ftruncate(fd, 1 << 20)
    sampler.table = PageTable(maps, sampler.size, sleep=lambda _: None)
    fill(sampler.size, maps, [(100, 5, 0)])
    got = sampler.drain(Watched(TARGETS))
    for fd in maps.values():
        os.close(fd)
    assert got.is_write is None and got.count.tolist() == [5.0]
