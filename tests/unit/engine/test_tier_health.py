# SPDX-License-Identifier: Apache-2.0
"""The watch over tiers: made-up probes of two nodes, one of which becomes slow, and the tiers."""

from __future__ import annotations

import errno
import logging
import queue
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from tierd.config.serving import TierHealthConfig
from tierd.config.whole import loads
from tierd.core import bounds
from tierd.core.tiermap import (
    MemoryKind,
    MemoryNode,
    NodeUsage,
    Provenance,
    Quantity,
    TierMap,
)
from tierd.core.tuning import HEALTH
from tierd.engine import tier_health
from tierd.engine.build import build, make_tier_health
from tierd.engine.tier_health import TierHealth
from tierd.observe.metrics import families as f
from tierd.observe.metrics.background import of_health
from tierd.policy.rule import least_rate
from tierd.topology.errors import MemoryErrors
from tierd.topology.health import RECOVERY, Symptom
from tierd.topology.probe import FREE, Probed
from tierd.topology.reader import rank_tiers

RECOVERED = RECOVERY * HEALTH.slow_probes
GIB = 1 << 30
LATENCY = {0: 118.0, 1: 430.0}
STREAM = {0: 16e9, 1: 8e9}


def host() -> TierMap:
    nodes = {
        n: MemoryNode(
            n, GIB, frozenset({0} if n == 0 else ()), kind,
            Quantity(LATENCY[n], Provenance.HMAT), Quantity(width, Provenance.HMAT),
        )
        for n, kind, width in ((0, MemoryKind.DRAM, 1e11), (1, MemoryKind.CXL, 2e10))
    }  # fmt: skip
    return TierMap(rank_tiers(nodes)[0], nodes)


@dataclass
class World:
    """A host whose nodes answer probes as `slower` says: by node, times latency, times width."""

    slower: dict[int, tuple[float, float]] = field(default_factory=dict)
    fails: dict[int, int] = field(default_factory=dict)
    free: int = GIB
    stalls: dict[int, int] = field(default_factory=dict)
    """Slow blocks by node."""
    probed: int = 0
    changes: int = 0
    busy: int = 0

    def on_change(self) -> None:
        if self.busy:
            self.busy -= 1
            raise queue.Full
        self.changes += 1

    def probe(self, node: MemoryNode, tiers: TierMap) -> Probed | int:
        assert tiers.nodes[node.node] is node
        self.probed += 1
        if node.node in self.fails:
            return self.fails[node.node]
        latency, width = self.slower.get(node.node, (1.0, 1.0))
        found = LATENCY[node.node] * latency * (1 + 0.01 * (self.probed % 3))
        stalls = self.stalls.get(node.node, 0)
        return Probed(found, found, stalls, STREAM[node.node] * width)

    def watch(
        self, tiers: Callable[[], TierMap] = host, *, interval_ns: int = 5 * 10**9
    ) -> TierHealth:
        made = TierHealth(
            TierHealthConfig(enabled=True, interval_ns=interval_ns),
            lambda tiers: {n: NodeUsage(GIB, self.free, 0) for n in tiers.nodes},
            probe=self.probe,
        )
        made.tiers, made.on_change = tiers, self.on_change
        return made


def rounds(watch: TierHealth, number: int) -> None:
    for _ in range(number):
        watch.round()


def test_a_slow_tiers_figures_are_what_is_measured_and_decisions_follow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tierd.engine.tier_health")
    world = World()
    watch = world.watch()
    rounds(watch, 20)
    assert world.changes == 0
    tiers = host()
    assert watch.applied(tiers) is tiers
    world.slower[1] = (2.0, 0.5)
    rounds(watch, HEALTH.slow_probes - 1)
    assert world.changes == 0
    rounds(watch, 3)
    assert world.changes == 1
    assert watch.health[1].symptoms == {Symptom.LATENCY, Symptom.BANDWIDTH}
    assert watch.health[0].symptoms == frozenset()
    (said,) = watch.slow_nodes()
    words = r"node 1 is slow \(bandwidth, latency\): a read takes (\d+) ns \(usually (\d+)\), "
    found = re.fullmatch(words + r"a stream gets ([\d.]+) GB/s \(([\d.]+)\)", said)
    assert found is not None
    now_ns, usual_ns, now, usual = map(float, found.groups())
    assert (now_ns / usual_ns, usual / now) == (pytest.approx(2, rel=0.03),) * 2
    now = watch.applied(tiers)
    assert now.tiers[1].latency_ns.value == pytest.approx(860, rel=0.03)
    assert now.tiers[1].latency_ns.provenance is Provenance.MEASURED
    assert now.tiers[1].bandwidth_bytes_per_s.value == pytest.approx(1e10, rel=0.01)
    assert now.nodes[1].latency_ns == now.tiers[1].latency_ns
    assert now.tiers[0] == tiers.tiers[0]
    assert [tier.name for tier in now.tiers] == ["dram", "cxl"]
    # Each access saves more, so fewer accesses pay for a move.
    assert least_rate(now, [1], 0.5) < 0.5 * least_rate(tiers, [1], 0.5)
    world.slower.clear()
    world.busy = 2
    rounds(watch, RECOVERED + 1)
    told = world.changes
    assert not world.busy
    rounds(watch, 5)
    assert world.changes == told
    assert watch.applied(tiers) is tiers
    assert watch.slow_nodes() == []
    events = [record.message.split()[0] for record in caplog.records]
    assert events == ["event=node_slow", "event=node_as_usual"]
    assert "what=bandwidth+latency" in caplog.records[0].message


def test_a_node_that_may_have_begun_to_stall_is_measured_again_soon() -> None:
    world = World()
    watch = world.watch()
    rounds(watch, 20)
    assert watch.interval_ns == 5 * 10**9
    world.slower[1] = (2.0, 0.5)
    rounds(watch, 1)
    assert watch.interval_ns == 5 * 10**9
    world.slower.clear()
    world.stalls[1] = 2
    intervals = []
    for number in range(HEALTH.slow_probes):
        watch.round(hurried=number > 0)
        intervals.append(watch.interval_ns)
    assert watch.health[1].symptoms == {Symptom.STALLS}
    assert intervals == [bounds.PROBE_AGAIN_NS] * (HEALTH.slow_probes - 1) + [5 * 10**9]
    world.stalls.clear()
    rounds(watch, 40)
    assert watch.health[1].symptoms == frozenset()
    # One slow block, as there are on any host.
    world.stalls[1] = 1
    rounds(watch, 1)
    world.stalls.clear()
    assert watch.interval_ns == bounds.PROBE_AGAIN_NS
    rounds(watch, HEALTH.slow_probes)
    assert watch.interval_ns == 5 * 10**9


def test_a_short_load_with_a_slow_read_is_no_slow_node() -> None:
    """Rounds that stalls hurry tell nothing of the rest."""
    world = World()
    watch = world.watch()
    rounds(watch, 20)
    world.slower[1], world.stalls[1] = (2.0, 0.5), 1
    rounds(watch, 1)
    world.stalls.clear()
    for _ in range(2 * HEALTH.slow_probes):
        watch.round(hurried=True)
    world.slower.clear()
    rounds(watch, 10)
    assert watch.health[1].symptoms == frozenset()
    assert watch.health[1].usual_latency_ns == pytest.approx(LATENCY[1], rel=0.02)


@pytest.mark.parametrize("interval_ms", [100, 2050, 4100])
def test_a_round_at_the_configured_interval_is_not_hurried(
    interval_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_health, "give_up_all", lambda: None)
    world, hurried = World(), []
    watch = world.watch(interval_ns=interval_ms * 10**6)
    waits = iter([False, False, False, True])
    watch._ends = SimpleNamespace(wait=lambda seconds: next(waits))  # type: ignore[assignment]
    told = hurried
    watch.round = lambda *, hurried: told.append(hurried)  # type: ignore[method-assign]
    watch._run()
    assert hurried == [False] * 3


def test_stalls_of_all_nodes_in_a_hurried_round_are_the_hosts() -> None:
    world = World()
    watch = world.watch()
    rounds(watch, 20)
    world.stalls[1] = 1
    rounds(watch, 1)
    world.stalls = {0: 2, 1: 2}
    for _ in range(20):
        watch.round(hurried=True)
    assert not any(each.symptoms for each in watch.health.values())


def test_nothing_is_promoted_into_a_fast_tier_that_is_no_nearer_any_more() -> None:
    world = World()
    watch = world.watch()
    rounds(watch, 20)
    assert watch.applied(host()).promotion_tier(1) is not None
    world.slower[0] = (4.0, 1.0)
    rounds(watch, HEALTH.slow_probes)
    now = watch.applied(host())
    assert now.promotion_tier(1) is None
    assert least_rate(now, [1], 0.5) == 0


def test_a_slower_host_is_no_slower_tier() -> None:
    world = World()
    watch = world.watch()
    rounds(watch, 20)
    world.slower = {0: (2.0, 0.5), 1: (2.0, 0.5)}
    rounds(watch, 20)
    assert not any(each.symptoms for each in watch.health.values())


def test_of_a_node_that_is_measured_alone_nothing_is_told_or_learned() -> None:
    world = World()
    watch = world.watch()
    rounds(watch, 20)
    world.slower[1], world.fails[0] = (2.0, 1.0), errno.EAGAIN
    rounds(watch, 5)
    assert not any(each.symptoms for each in watch.health.values())
    world.fails.clear()
    rounds(watch, HEALTH.slow_probes)
    assert watch.health[1].symptoms == {Symptom.LATENCY}
    assert watch.applied(host()).tiers[1].latency_ns.value > 800
    # What is not known any more is not applied; what was learned is kept.
    world.fails[1] = errno.EPERM
    rounds(watch, RECOVERED)
    assert watch.health[1].symptoms
    watch.round()
    assert watch.health == {}
    tiers = host()
    assert watch.applied(tiers) is tiers
    world.fails.clear()
    watch.round()
    assert watch.health[1].symptoms == {Symptom.LATENCY}


def test_a_slow_node_that_becomes_slower_is_applied_anew() -> None:
    world = World()
    watch = world.watch()
    rounds(watch, 20)
    world.slower[1] = (2.0, 1.0)
    rounds(watch, 10)
    assert world.changes == 1
    world.slower[1] = (4.0, 1.0)
    rounds(watch, 10)
    assert world.changes > 1
    assert watch.applied(host()).tiers[1].latency_ns.value == pytest.approx(4 * 430, rel=0.05)


def test_what_the_whole_host_lost_is_no_nodes_share() -> None:
    world = World()
    watch = world.watch()
    rounds(watch, 20)
    world.slower = {0: (1.2, 1.0), 1: (2.4, 1.0)}
    rounds(watch, 10)
    assert watch.health[0].symptoms == frozenset()
    assert watch.applied(host()).tiers[1].latency_ns.value == pytest.approx(860, rel=0.05)


def test_a_tier_of_two_nodes_is_as_near_as_its_nearest_and_loses_their_bandwidth() -> None:
    one = host().nodes[1]
    nodes = {**host().nodes, 2: replace(one, node=2)}
    tiers = TierMap(rank_tiers(nodes)[0], nodes)
    assert tiers.tiers[1].nodes == (1, 2)
    world = World()
    LATENCY[2], STREAM[2] = LATENCY[1], STREAM[1]
    watch = world.watch(lambda: tiers)
    rounds(watch, 20)
    world.slower[2] = (2.0, 0.5)
    rounds(watch, HEALTH.slow_probes)
    now = watch.applied(tiers)
    assert now.tiers[1].latency_ns.value == 430
    assert now.tiers[1].bandwidth_bytes_per_s.value == pytest.approx(3e10, rel=0.02)
    assert now.nodes[2].latency_ns.value == pytest.approx(860, rel=0.05)


def test_the_policy_cost_measures_by_itself() -> None:
    world, tiers = World(), host()
    watch = world.watch()
    rounds(watch, 20)
    world.slower[1] = (2.0, 1.0)
    rounds(watch, 10)
    read = watch.over(lambda config: lambda: tiers)
    assert read(loads(""))().tiers[1].latency_ns.value > 800
    assert read(loads('[policy]\nname = "cost"'))() is tiers


def test_figures_for_prometheus() -> None:
    world = World()
    watch = world.watch()
    rounds(watch, 20)
    world.slower[1] = (2.0, 1.0)
    rounds(watch, 10)
    found = of_health(watch.health, watch.results, watch.probe_cpu_ns)
    assert found[f.NODE_SLOW] == {
        ("0", "latency"): 0, ("0", "bandwidth"): 0, ("0", "stalls"): 0,
        ("1", "latency"): 1, ("1", "bandwidth"): 0, ("1", "stalls"): 0,
    }  # fmt: skip
    assert found[f.NODE_LATENCY]["1",] == pytest.approx(860e-9, rel=0.05)
    assert found[f.NODE_USUAL_LATENCY]["1",] == pytest.approx(430e-9, rel=0.05)
    assert found[f.NODE_BANDWIDTH] == {("0",): 16e9, ("1",): 8e9}
    assert found[f.NODE_USUAL_BANDWIDTH] == {("0",): 16e9, ("1",): 8e9}
    assert found[f.NODE_PROBES] == {("0", "ok"): 30, ("1", "ok"): 30}
    cpu = found[f.NODE_PROBE_CPU]
    assert (cpu["0", "count"], cpu["1", "count"]) == (30, 30)
    assert 0 < cpu["1", "0.5"] <= cpu["1", "0.99"] * 1.01 <= cpu["1", "1"] * 1.01


def test_what_could_not_be_measured_is_counted_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    watch = world.watch()
    rounds(watch, 10)
    before = watch.health
    caplog.set_level(logging.INFO, "tierd.engine.tier_health")
    world.fails = {0: errno.EAGAIN, 1: errno.EPERM}
    rounds(watch, 5)
    assert watch.health == before
    assert [record.message for record in caplog.records] == [
        "event=node_not_measured node=0 reason=disturbed",
        "event=node_not_measured node=1 reason=EPERM",
    ]
    world.free = FREE - 1
    rounds(watch, 3)
    assert watch.results == {
        (0, "ok"): 10, (1, "ok"): 10, (0, "disturbed"): 5, (1, "EPERM"): 5, (0, "full"): 3,
        (1, "full"): 3,
    }  # fmt: skip
    assert world.probed == 30
    # What a measurement without a result took is CPU time as well.
    assert {node: each.count for node, each in watch.probe_cpu_ns.items()} == {0: 15, 1: 15}


def test_a_node_that_goes_is_forgotten() -> None:
    world, there = World(), [host()]
    watch = world.watch(lambda: there[0])
    rounds(watch, 20)
    world.slower[1] = (2.0, 1.0)
    rounds(watch, 10)
    assert watch.health[1].symptoms
    alone = {0: host().nodes[0]}
    there[0] = TierMap(rank_tiers(alone)[0], alone)
    watch.round()
    assert list(watch.health) == [0]
    assert watch.applied(there[0]) is there[0]
    there[0] = host()
    rounds(watch, 2)
    assert watch.health[1].probes == 2


def test_it_runs_beside_the_loop_until_it_is_closed() -> None:
    world, probed = World(), threading.Event()
    watch = TierHealth(
        TierHealthConfig(enabled=True, interval_ns=1, cpu_limit=1.0),
        lambda tiers: {n: NodeUsage(GIB, GIB, 0) for n in tiers.nodes},
        probe=lambda node, tiers: (
            (probed.set() if world.probed > 20 else None) or world.probe(node, tiers)
        ),
    )
    watch.tiers = host
    watch.start()
    assert probed.wait(60)
    watch.close()
    done = world.probed
    assert not any(thread.name == "tierd-health" for thread in threading.enumerate())
    assert world.probed == done


def test_a_failure_of_one_round_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    world, again = World(), threading.Event()

    def usage(tiers: TierMap) -> dict[int, NodeUsage]:
        if again.is_set():
            return {}
        again.set()
        raise OSError("gone")

    watch = TierHealth(TierHealthConfig(enabled=True, interval_ns=1), usage, probe=world.probe)
    watch.tiers = host
    watch.start()
    assert again.wait(60)
    while not watch.results:
        threading.Event().wait(0.01)
    watch.close()
    assert "event=tier_health_failed" in caplog.text


def test_errors_are_read_beside_measurements_of_which_each_may_fail() -> None:
    polled, closed = threading.Event(), threading.Event()

    class Errors(MemoryErrors):
        def poll(self) -> None:
            if world.probed > 2:
                polled.set()
            raise OSError("gone")

        def close(self) -> None:
            closed.set()

    world = World()
    watch = TierHealth(
        TierHealthConfig(enabled=True, interval_ns=1, cpu_limit=1.0),
        lambda tiers: {n: NodeUsage(GIB, GIB, 0) for n in tiers.nodes},
        probe=world.probe,
        errors=Errors(),
    )
    watch.tiers = host
    watch.start()
    assert polled.wait(60)
    assert not closed.is_set()
    watch.close()
    assert closed.is_set()


def test_errors_are_read_unless_that_is_turned_off() -> None:
    assert make_tier_health(loads("")).errors is not None
    assert make_tier_health(loads("[tier_health]\nerrors = false")).errors is None


def test_it_is_off_unless_asked_for() -> None:
    assert not loads("").tier_health.enabled
    found = loads('[tier_health]\nenabled = true\ninterval = "1s"\ncpu_limit = "1%"').tier_health
    assert (found.enabled, found.interval_ns, found.cpu_limit) == (True, 10**9, 0.01)


def test_explanations_name_slow_nodes() -> None:
    service, _ = build(loads(""))
    assert service.components.fast_path is not None
    slow_nodes = service.components.fast_path.explainer.slow_nodes
    assert getattr(slow_nodes, "__func__", None) is TierHealth.slow_nodes
