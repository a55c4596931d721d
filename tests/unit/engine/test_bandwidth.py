# SPDX-License-Identifier: Apache-2.0
"""What memory serves, and who says so: one rule a test."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from madeup_host import MadeUpHost, record

from tierd.config.whole import loads as parse
from tierd.core.access import LINE_BYTES, AccessBatch
from tierd.core.tiermap import Measured
from tierd.engine.bandwidth import BandwidthMonitor
from tierd.engine.build import make_policy
from tierd.hotness.pattern import Patterns
from tierd.hotness.table import HeatTable
from tierd.observe.metrics.background import cost_of
from tierd.observe.recording import RecordingError
from tierd.observe.recording.reader import Recording
from tierd.observe.recording.schema import TRAFFIC
from tierd.policy.cost import CostPolicy
from tierd.policy.inputs import LoadSource, Traffic
from tierd.replay.policy import Replay
from tierd.sources.neoprof import NeoProfSource

SECOND = 10**9
PERIOD = 1000.0


@dataclass
class Sampler:
    """A source of which a count stands for a period of lines."""

    name: str = "sampler"
    lines_per_count: float = PERIOD


class Cards(NeoProfSource):
    """Cards that count what a test says."""

    def __init__(self) -> None:
        self.beats = 0
        self.nodes = frozenset({1})

    @property
    def cards(self) -> Any:
        return {0: SimpleNamespace(nodes=self.nodes)}

    def profiles(self) -> Any:
        counters = {"read_beats": self.beats, "write_beats": self.beats // 2}
        return {0: SimpleNamespace(counters=counters)}


@dataclass
class World:
    """Pages 0 to 99 on node 0, 100 to 199 on node 1."""

    loads: BandwidthMonitor
    heat: HeatTable = field(default_factory=lambda: HeatTable(capacity_pages=1000, half_life_s=5))
    now_ns: int = SECOND

    @staticmethod
    def made(tmp_path: Path, **more: Any) -> World:
        heat = HeatTable(capacity_pages=1000, half_life_s=5)
        page = np.arange(200, dtype=np.uint64)
        node = (page >= 100).astype(np.int16)
        heat.place(page, node, np.zeros(200, np.uint8), insert_on=(0, 1))
        world = World(BandwidthMonitor(heat, 5.0, root=tmp_path, **more), heat)
        world.loads.read(world.now_ns, (0, 1), None)
        return world

    def second(self, pages: np.ndarray, source: Any, **batch: Any) -> Traffic:
        self.now_ns += SECOND
        made = AccessBatch(
            pages.astype(np.uint64),
            np.ones(len(pages), np.float32),
            self.now_ns,
            "test",
            **batch,
        )
        self.loads.see([made], source)
        return self.loads.read(self.now_ns, (0, 1), source)


def test_samples_tell_loads_by_their_period_and_their_pages_node(tmp_path: Path) -> None:
    traffic = World.made(tmp_path).second(np.r_[np.arange(50), 100 + np.arange(10)], Sampler())
    assert traffic.load == {0: 50 * PERIOD * LINE_BYTES, 1: 10 * PERIOD * LINE_BYTES}
    assert set(traffic.source.values()) == {LoadSource.SAMPLES}
    assert traffic.lines_per_count == PERIOD
    assert traffic.seen_s == 0


def test_a_written_line_counts_twice(tmp_path: Path) -> None:
    traffic = World.made(tmp_path).second(np.arange(50), Sampler(), is_write=np.arange(50) < 10)
    assert traffic.load[0] == 60 * PERIOD * LINE_BYTES


def test_a_source_that_counts_no_lines_tells_no_load(tmp_path: Path) -> None:
    traffic = World.made(tmp_path).second(np.arange(50), Sampler(lines_per_count=0))
    assert traffic.load == {}
    assert traffic.lines_per_count == 1


def test_loads_are_smoothed(tmp_path: Path) -> None:
    world = World.made(tmp_path)
    world.second(np.arange(50), Sampler())
    world.now_ns -= SECOND // 2
    traffic = world.second(np.arange(0), Sampler())
    assert 0 < traffic.load[0] < 50 * PERIOD * LINE_BYTES


def test_resctrl_tells_the_total_and_samples_who_has_it(tmp_path: Path) -> None:
    files = [tmp_path / f"sys/fs/resctrl/mon_data/mon_L3_0{n}/mbm_total_bytes" for n in (0, 1)]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text("1000000\n")
    world = World.made(tmp_path)
    pages = np.r_[np.arange(30), 100 + np.arange(10)]
    world.second(pages, Sampler())
    files[1].write_text("9000000\n")
    traffic = world.second(pages, Sampler())
    assert traffic.load == pytest.approx({0: 6e6, 1: 2e6})
    assert set(traffic.source.values()) == {LoadSource.RESCTRL}


def test_resctrl_that_is_unavailable_is_done_without(tmp_path: Path) -> None:
    file = tmp_path / "sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes"
    file.parent.mkdir(parents=True)
    file.write_text("Unavailable\n")
    traffic = World.made(tmp_path).second(np.arange(30), Sampler())
    assert traffic.source[0] is LoadSource.SAMPLES


def test_a_cards_state_monitor_counts_its_node(tmp_path: Path) -> None:
    world, cards = World.made(tmp_path), Cards()
    world.second(np.arange(10), cards)
    cards.beats = 2_000_000
    traffic = world.second(np.arange(10), cards)
    assert traffic.load == {1: 3_000_000 * LINE_BYTES}
    assert traffic.source == {1: LoadSource.CARD}


def test_a_card_of_two_nodes_cannot_say_which(tmp_path: Path) -> None:
    world, cards = World.made(tmp_path), Cards()
    cards.nodes = frozenset({0, 1})
    world.second(np.arange(10), cards)
    cards.beats = 2_000_000
    assert world.second(np.arange(10), cards).load == {}


def test_memory_controllers_are_believed_before_samples(tmp_path: Path) -> None:
    world = World.made(tmp_path, counted=lambda elapsed_s: {1: 5e9, 7: 1e9})
    traffic = world.second(np.arange(10), Sampler())
    assert traffic.load == {0: 10 * PERIOD * LINE_BYTES, 1: 5e9}
    assert traffic.source == {0: LoadSource.SAMPLES, 1: LoadSource.UNCORE}


def test_of_several_probes_the_least_latency_and_the_most_bandwidth_count(tmp_path: Path) -> None:
    told = iter([Measured(500.0, 1e9), Measured(450.0, None), Measured(700.0, 2e9)])
    world = World.made(tmp_path, measured=lambda: {1: next(told)})
    for _ in range(2):
        world.now_ns += 60 * SECOND
        traffic = world.second(np.arange(1), Sampler())
    assert traffic.measured == {1: Measured(450.0, 2e9)}
    world.second(np.arange(1), Sampler())  # too soon for another


# ------------------------------------------------------------------ recordings


def example() -> Traffic:
    ones = np.array([1.0, np.nan])
    return Traffic(
        7,
        5.0,
        seen_s=3.5,
        load={0: 1.5e9, 2: 0.0},
        source={0: LoadSource.CARD, 2: LoadSource.NONE},
        lines_per_count=997.0,
        patterns=Patterns(np.array([3, 1 << 40], np.uint64), ones, ones, ones, ones, ones),
        measured={1: Measured(430.0, None)},
    )


def test_traffic_is_recorded_bit_for_bit() -> None:
    made = example()
    found = TRAFFIC.decode(TRAFFIC.encode(made))
    assert (found.load, found.source, found.measured) == (made.load, made.source, made.measured)
    assert (found.time_ns, found.half_life_s, found.seen_s) == (7, 5.0, 3.5)
    assert found.lines_per_count == 997
    for name in ("region", "counted", "parallel", "doubt", "written"):
        one, other = getattr(made.patterns, name), getattr(found.patterns, name)
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("at", [8, 34])
def test_damaged_traffic_is_refused(at: int) -> None:
    data = bytearray(TRAFFIC.encode(example()))
    data[at : at + 10] = b"\xff" * 10
    with pytest.raises(RecordingError):
        TRAFFIC.decode(bytes(data))


COST = '[policy]\nname = "cost"\nmigration_cooldown = "1s"\n'


def test_a_recording_of_the_cost_policy_replays_to_the_same_plans(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    host, stats = record(path, 5, text=COST, ticks=30)
    assert stats.dropped_ticks == 0
    assert host.service.totals.promoted_pages > 0
    assert any(tick.traffic is not None for tick in Recording(path))  # type: ignore[union-attr]
    found = Replay(Recording(path), make_policy)
    for _ in found:
        pass
    assert found.decisions > 20
    assert found.differing == 0


# ------------------------------------------------------------------ what is told


def test_status_tells_numbers_and_their_origin() -> None:
    host = MadeUpHost(3, parse(COST))
    host.run(10)
    policy = host.service.components.policy
    assert isinstance(policy, CostPolicy)
    assert policy.state is not None
    told = cost_of(host.tiers, policy.state)
    assert [tier["name"] for tier in told["tiers"]] == ["dram", "cxl"]
    assert {tier["latency_from"] for tier in told["tiers"]} == {"hmat"}
    assert {tier["bandwidth_from"] for tier in told["tiers"]} == {"default"}
    assert told["tiers"][1]["loaded_latency_ns"] >= 430


def test_a_page_is_explained_by_the_rule() -> None:
    host = MadeUpHost(2, parse(COST))
    policy = host.service.components.policy
    assert isinstance(policy, CostPolicy)
    assert host.service.explain(host.heat.hottest(1, 1)) == ""
    host.run(10)
    said = host.service.explain(host.heat.hottest(1, 1))
    assert isinstance(said, str)
    assert "lines a second" in said
    assert "cxl 430 ns" in said
    assert "stays on dram" in str(host.service.explain(host.heat.coldest(0, 1)))


@pytest.mark.parametrize("name", ["cost", "watermark"])
def test_a_page_on_a_node_that_no_tier_has_is_explained(name: str) -> None:
    """Memory that was plugged in since the last decision, or taken away."""
    host = MadeUpHost(3, parse(COST.replace("cost", name)))
    host.run(2)
    page = host.heat.hottest(1, 1)
    assert len(page)
    elsewhere = dataclasses.replace(page, node=np.array([7], np.int16))
    assert "node 7 was in no tier" in str(host.service.explain(elsewhere))
