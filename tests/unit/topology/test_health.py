# SPDX-License-Identifier: Apache-2.0
"""Judging nodes by probes: made-up probes of nodes that are as usual, slow, or both in turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tierd.core import bounds
from tierd.core.tuning import HEALTH
from tierd.topology.health import LEARNING, RECOVERY, Health, NodeHealth, Symptom
from tierd.topology.probe import Probed

RECOVERED = RECOVERY * HEALTH.slow_probes
LEARNED = LEARNING * HEALTH.slow_probes
FAR = Probed(430.0, 432.0, 0, 2e10)


def probes(
    rng: np.random.Generator,
    *,
    latency: float = 430.0,
    spread: float = 0.03,
    stalls: float = 0.05,
    bandwidth: float = 2e10,
) -> Iterator[Probed]:
    """Probes of a node, without end; stalls: slow blocks in the mean of a probe."""
    while True:
        near = latency * np.exp(rng.normal(0, spread))
        slow = min(64, rng.poisson(stalls))
        width = bandwidth * np.exp(rng.normal(0, spread))
        yield Probed(near, near * (1 + slow / 64 * 10), slow, width)


def judged(node: NodeHealth, stream: Iterator[Probed], most: int) -> list[Health]:
    found = []
    for _ in range(most):
        node.add(next(stream))
        found.append(node.judge(()))
    return found


def first_with(healths: list[Health], symptom: Symptom) -> int:
    """Probes until a symptom is there; more than there are where it never is."""
    return next((i + 1 for i, each in enumerate(healths) if symptom in each.symptoms), 10**6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("symptom", "change"),
    [
        (Symptom.LATENCY, {"latency": 860.0}),
        (Symptom.BANDWIDTH, {"bandwidth": 1e10}),
        (Symptom.STALLS, {"stalls": 2.05}),
    ],
)
def test_a_slow_node_is_found_in_a_few_probes_and_recovers_later(
    symptom: Symptom, change: dict[str, float], seed: int
) -> None:
    rng, node = np.random.default_rng(seed), NodeHealth()
    assert not any(each.symptoms for each in judged(node, probes(rng), 100))
    slow = judged(node, probes(rng, **change), 40)
    found = first_with(slow, symptom)
    assert found <= 10 if symptom is Symptom.STALLS else found == HEALTH.slow_probes
    assert all(each.symptoms == {symptom} for each in slow[found:])
    after = judged(node, probes(rng), 40)
    gone = next(i for i, each in enumerate(after) if not each.symptoms)
    assert RECOVERED - 1 <= gone <= 2 * RECOVERED
    assert not any(each.symptoms for each in after[gone:])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [0.01, 0.1, 0.3])
def test_a_node_that_is_as_noisy_as_ever_is_not_slow(spread: float, seed: int) -> None:
    """Two hours of probes; half of them have slow blocks."""
    stream = probes(np.random.default_rng(seed), spread=spread, stalls=0.7)
    assert not any(each.symptoms for each in judged(NodeHealth(), stream, 1440))


def test_figures_are_of_what_programs_see() -> None:
    rng, node = np.random.default_rng(1), NodeHealth()
    judged(node, probes(rng), 50)
    health = judged(node, probes(rng, latency=860.0, bandwidth=1e10), 10)[-1]
    assert health.symptoms == {Symptom.LATENCY, Symptom.BANDWIDTH}
    assert health.latency_ratio == pytest.approx(2, rel=0.1)
    assert health.bandwidth_ratio == pytest.approx(0.5, rel=0.1)
    assert health.usual_latency_ns == pytest.approx(430, rel=0.05)
    assert health.usual_bandwidth == pytest.approx(2e10, rel=0.05)


def test_what_all_nodes_show_is_no_nodes_and_is_not_learned() -> None:
    rng, node = np.random.default_rng(1), NodeHealth()
    judged(node, probes(rng), 50)
    for _, probed in zip(range(600), probes(rng, latency=860.0), strict=False):
        assert Symptom.LATENCY in node.add(probed)
        assert node.judge({Symptom.LATENCY}).symptoms == frozenset()
    found = judged(node, probes(rng, latency=860.0), HEALTH.slow_probes)
    assert found[-1].symptoms == {Symptom.LATENCY}


def test_a_slow_node_does_not_recover_while_nothing_can_be_told() -> None:
    rng, node = np.random.default_rng(1), NodeHealth()
    judged(node, probes(rng), 50)
    assert judged(node, probes(rng, latency=860.0), 10)[-1].symptoms
    for _, probed in zip(range(50), probes(rng), strict=False):
        node.add(probed)
        assert node.judge({Symptom.BANDWIDTH}).symptoms == {Symptom.LATENCY}
    assert not judged(node, probes(rng), RECOVERED)[-1].symptoms


def test_what_all_nodes_show_for_an_hour_becomes_the_usual() -> None:
    rng, node = np.random.default_rng(1), NodeHealth()
    judged(node, probes(rng), 50)
    stream = probes(rng, latency=860.0)
    for _ in range(bounds.HEALTH_HISTORY + 1):
        node.add(next(stream))
        node.judge({Symptom.LATENCY})
    health = judged(node, stream, 50)[-1]
    assert health.symptoms == frozenset()
    assert health.usual_latency_ns == pytest.approx(860, rel=0.05)


def test_a_load_that_comes_and_goes_within_a_quarter_is_nothing() -> None:
    """Noise of one probe and the next are alike, as load's is: half a minute at a time."""
    rng, node = np.random.default_rng(3), NodeHealth()
    load = 0.0
    for _ in range(1440):
        load = 0.85 * load + rng.normal(0, 0.03)
        found = 430.0 * np.exp(load)
        node.add(Probed(found, found, 0, 2e10 / np.exp(load)))
        assert node.judge(()).symptoms == frozenset()


def test_a_fault_is_found_as_fast_in_a_young_node_as_in_an_old_one() -> None:
    """What it shows before it is found is not taken for usual."""
    took = []
    for probes_before in (LEARNED, 20, bounds.HEALTH_HISTORY):
        node = NodeHealth()
        for _ in range(probes_before):
            node.add(FAR)
            node.judge(())
        number = 0
        for stalls in itertools.cycle((1, 0, 1, 1, 0, 2)):
            number += 1
            node.add(FAR._replace(slow_blocks=stalls))
            if node.judge(()).symptoms:
                break
        took.append(number)
    assert took == [took[0]] * 3


def test_one_storm_in_one_probe_is_nothing() -> None:
    node = NodeHealth()
    for _ in range(50):
        node.add(FAR)
        node.judge(())
    node.add(Probed(430.0, 4300.0, 40, 2e10))
    assert node.judge(()).symptoms == frozenset()
    for _ in range(20):
        node.add(FAR)
        assert node.judge(()).symptoms == frozenset()


def test_a_young_node_is_not_judged() -> None:
    node = NodeHealth()
    for number in range(LEARNED - 1):
        node.add(Probed(430.0 * 2**number, 430.0 * 2**number, number, 2e10))
        assert node.judge(()).symptoms == frozenset()
