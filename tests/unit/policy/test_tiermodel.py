# SPDX-License-Identifier: Apache-2.0
"""Times of tiers: the queue, and which number is believed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tierd.core.access import LINE_BYTES
from tierd.core.tiermap import Measured, MemoryKind, MemoryNode, Provenance, Quantity, Tier, TierMap
from tierd.core.tuning import COST
from tierd.policy.inputs import LoadSource, Traffic
from tierd.policy.tiermodel import TierModel, make_model

DRAM, CXL = (118.0, 100e9), (430.0, 20e9)


def tier_map(*figures: tuple[float, float], cpus: int = 16) -> TierMap:
    nodes, tiers = {}, []
    for number, (latency, bandwidth) in enumerate(figures):
        told = Quantity(latency, Provenance.HMAT), Quantity(bandwidth, Provenance.HMAT)
        own = frozenset(range(cpus)) if not number else frozenset[int]()
        nodes[number] = MemoryNode(number, 1 << 30, own, MemoryKind.DRAM, *told)
        tiers.append(Tier(number, f"t{number}", MemoryKind.DRAM, (number,), 1 << 30, *told))
    return TierMap(tuple(tiers), nodes)


def model(*figures: tuple[float, float], cpus: int = 16, **known: object) -> TierModel:
    return make_model(tier_map(*figures, cpus=cpus), Traffic(1, 5.0, **known))  # type: ignore[arg-type]


def test_an_idle_tier_takes_its_idle_latency() -> None:
    made = model(DRAM, CXL)
    assert list(made.loaded_ns(np.zeros(2), np.zeros(2))) == [118, 430]


def streams(load: np.ndarray) -> np.ndarray:
    """Latencies waited for a second where all load is streamed."""
    return np.asarray(load / LINE_BYTES / COST.stream_lines)


def test_half_used_a_line_waits_for_half_a_burst() -> None:
    made, load = model(DRAM), np.array([50e9])
    line_ns = LINE_BYTES / 100
    assert made.loaded_ns(load, streams(load))[0] == pytest.approx(
        118 + COST.stream_lines * line_ns / 2
    )
    single = load / LINE_BYTES
    assert made.loaded_ns(load, single)[0] == pytest.approx(118 + line_ns / 2)
    half = (single + streams(load)) / 2
    assert made.loaded_ns(load, half)[0] == pytest.approx(
        118 + (COST.stream_lines + 1) / 2 * line_ns / 2
    )


def test_prices_are_what_one_more_costs_all() -> None:
    made = model(DRAM, CXL)
    load = np.array([60e9, 12e9])
    weight = np.array([0.2, 0.6]) * load / LINE_BYTES

    def waited(load: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return np.asarray(made.loaded_ns(load, weight) * weight)

    latency, crowd = made.prices(load, weight)
    more = waited(load, weight + 1e3) - waited(load, weight)
    # Never less than the idle latency: nothing is gained by waiting.
    assert latency == pytest.approx(np.maximum(more / 1e3, made.idle_ns), rel=1e-2)
    more = waited(load + 1e5, weight) - waited(load, weight)
    assert crowd == pytest.approx(more / 1e5, rel=1e-2)


@pytest.mark.parametrize("cpus", [1, 4, 64])
def test_latency_rises_without_end_and_without_a_leap(cpus: int) -> None:
    made = model(DRAM, cpus=cpus)
    load = np.linspace(0, 300e9, 3001)
    one = load[:, None]
    latency = made.loaded_ns(one, streams(one))[:, 0]
    rise = np.diff(latency)
    assert np.all(rise > 0)
    assert np.all(np.diff(rise) > -1e-6)  # convex
    weight = streams(one[1:-1])
    crowd = made.prices(one[1:-1], weight)[1][:, 0]
    middle = (latency[2:] - latency[:-2]) / (load[2:] - load[:-2])
    assert crowd / weight[:, 0] == pytest.approx(middle, rel=0.05)


def test_under_load_dram_is_slower_than_idle_cxl() -> None:
    made = model(DRAM, CXL)
    load = np.array([99e9, 0])
    dram, cxl = made.loaded_ns(load, streams(load))
    assert dram > cxl


def test_loads_and_their_sources_are_those_of_the_tiers_nodes() -> None:
    made = model(DRAM, CXL, load={1: 5e9}, source={1: LoadSource.CARD})
    assert list(made.load) == [0, 5e9]
    assert made.source == ("none", "card")


@pytest.mark.parametrize("lie", [0.0, -1.0, math.nan, math.inf])
def test_a_missing_number_is_taken_to_be_equal(lie: float) -> None:
    made = model(DRAM, (lie, lie))
    assert list(made.idle_ns) == [118, 118]
    assert list(made.bytes_per_s) == [100e9, 100e9]
    assert made.latency[1].origin == made.bandwidth[1].origin == "equal"
    assert len(made.notes) == 2
    assert "t1" in made.notes[0]


def test_nothing_at_all_is_harmless() -> None:
    made = model((0.0, 0.0), (math.nan, 0.0))
    assert made.idle_ns[0] == made.idle_ns[1] > 0
    assert made.bytes_per_s[0] == made.bytes_per_s[1] > 0
    assert np.all(np.isfinite(made.loaded_ns(np.array([1e12, 0]), np.zeros(2))))


def test_a_probe_that_finds_a_tier_slower_is_believed() -> None:
    made = model(DRAM, CXL, measured={1: Measured(latency_ns=900.0)})
    assert made.idle_ns[1] == 900
    assert made.latency[1].origin == "measured"
    assert "900" in made.notes[0]


def test_where_one_number_is_wrong_all_are_measured_by_one_yardstick() -> None:
    made = model(DRAM, CXL, measured={0: Measured(140.0), 1: Measured(900.0)})
    assert list(made.idle_ns) == [140, 900]
    assert len(made.notes) == 1


def test_a_probe_that_agrees_more_or_less_changes_nothing() -> None:
    made = model(DRAM, CXL, measured={1: Measured(latency_ns=430 * COST.probe_factor)})
    assert made.idle_ns[1] == 430
    assert not made.notes


def test_a_probe_stands_in_for_a_missing_number() -> None:
    made = model(DRAM, (0.0, 0.0), measured={1: Measured(300.0, 12e9)})
    assert made.idle_ns[1] == 300
    assert made.bytes_per_s[1] == 12e9


def test_a_tier_that_serves_more_than_it_says_is_wider() -> None:
    made = model(DRAM, (430.0, 1e9), load={1: 15e9})
    assert made.bytes_per_s[1] == 15e9
    assert made.bandwidth[1].origin == "measured"


def test_a_suspected_tier_is_slower_and_narrower() -> None:
    made = model(DRAM, CXL).suspecting(["t0", "t1"], {"t1": 2.0})
    assert list(made.idle_ns) == [118, 860]
    assert list(made.bytes_per_s) == [100e9, 10e9]
    assert made.latency[1].origin == "observed"


def test_as_a_ladder_load_does_not_count() -> None:
    made = model(DRAM, CXL, load={0: 90e9}).without_load()
    assert list(made.loaded_ns(np.array([90e9, 0]), np.zeros(2))) == pytest.approx(
        [118, 430], rel=1e-3
    )
