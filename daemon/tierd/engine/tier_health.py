# SPDX-License-Identifier: Apache-2.0
"""`TierHealth`: probes the nodes from time to time, and has slow ones be seen as they are.

A thread of its own measures each node (`topology.probe`), and `topology.health` judges. While a
node is slow, its tier's latency and bandwidth are multiplied by its slowdown. The same thread reads
memory errors (`topology.errors`), which decide nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from tierd._native import lib
from tierd.config.model import Config
from tierd.config.serving import TierHealthConfig
from tierd.core import bounds
from tierd.core.cpu_budget import CpuBudget
from tierd.core.logfmt import logfmt
from tierd.core.process import give_up_all
from tierd.core.quantiles import Quantiles
from tierd.core.tiermap import MemoryNode, NodeUsage, Provenance, Quantity, Tier, TierMap
from tierd.core.tuning import HEALTH
from tierd.policy.cost import CostPolicy
from tierd.topology.errors import MemoryErrors
from tierd.topology.health import RECOVERY, Health, NodeHealth, Symptom
from tierd.topology.probe import Probed, Prober, can_hold

log = logging.getLogger(__name__)

FULL = "full"
DISTURBED = "disturbed"
OK = "ok"


class TierHealth:
    """A `BackgroundService`.

    Args:
        read_usage: how full nodes are.
        errors: what the kernel tells of memory errors; None: they are not read.

    Attributes:
        tiers: returns the host's tiers as they are now; set before `start`.
        on_change: called when `applied` gives other figures. Where it raises queue.Full, it is
            called again after the next round.
        health: what is known, by node; replaced as a whole, so any thread may read it.
        results: probes by node and result: ok, disturbed, full, or the name of an errno.
        probe_cpu_ns: CPU time of a node's measurements, whatever their results, by node; replaced
            as a whole where nodes come or go.
    """

    name = "tier_health"

    def __init__(
        self,
        config: TierHealthConfig,
        read_usage: Callable[[TierMap], Mapping[int, NodeUsage]],
        *,
        probe: Callable[[MemoryNode, TierMap], Probed | int] | None = None,
        errors: MemoryErrors | None = None,
    ) -> None:
        self._config = config
        self._read_usage = read_usage
        self._probe = Prober() if probe is None else probe
        self._nodes: dict[int, NodeHealth] = {}
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._unjudged: dict[int, int] = {}
        self._factors: Mapping[int, tuple[float, float]] = {}
        self._waits = False
        self.tiers: Callable[[], TierMap] | None = None
        self.on_change: Callable[[], object] = bool
        self.health: Mapping[int, Health] = {}
        self.results: dict[tuple[int, str], int] = {}
        self.probe_cpu_ns: Mapping[int, Quantiles] = {}
        self.errors = errors

    def start(self) -> None:
        """Begin to probe."""
        self._thread = threading.Thread(target=self._run, name="tierd-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join(bounds.PROBE_END_S)

    def _run(self) -> None:
        give_up_all()  # a thread's own memory and CPUs need no capability
        spent = lib.tierd_thread_cpu_ns
        budget = CpuBudget(time.monotonic_ns(), spent(), bounds.PROBE_CREDIT_NS, full=True)
        pause_ns = 0
        polls = (self.errors.poll,) if self.errors else ()
        while not self._ends.wait(pause_ns / 1e9):
            hurried = 0 < pause_ns < self._config.interval_ns
            for step in (*polls, partial(self.round, hurried=hurried)):
                try:
                    step()
                except Exception:
                    log.exception(logfmt(event="tier_health_failed"))
            wait_ns = budget.wait_ns(time.monotonic_ns(), spent(), self._config.cpu_limit)
            pause_ns = max(self.interval_ns, wait_ns)
        if self.errors is not None:
            self.errors.close()

    @property
    def interval_ns(self) -> int:
        """Time to the next round; it is short while a node may have begun to stall.

        Latency and bandwidth are not hurried: that they last is what tells them from a load.
        """
        suspected = any(
            node.suspected and Symptom.STALLS not in self.health[number].symptoms
            for number, node in self._nodes.items()
            if number in self.health
        )
        interval_ns = self._config.interval_ns
        return min(interval_ns, bounds.PROBE_AGAIN_NS) if suspected else interval_ns

    def round(self, *, hurried: bool = False) -> None:
        """Probe each node once, and judge them together; of stalls alone in a hurried round."""
        assert self.tiers is not None
        tiers, before = self.tiers(), self.health
        probed = self._probed(tiers)
        judged = self._hurried(probed) if hurried else self._judged(probed)
        self._unjudged = {
            n: 0 if n in judged else self._unjudged.get(n, 0) + (not hurried) for n in tiers.nodes
        }
        known = {
            n for n, rounds in self._unjudged.items() if rounds <= RECOVERY * HEALTH.slow_probes
        }
        self._nodes = {n: each for n, each in self._nodes.items() if n in tiers.nodes}
        self.health = {n: each for n, each in {**before, **judged}.items() if n in known}
        factors = _factors(self.health)
        if self._waits or _differ(factors, self._factors):
            self._factors = factors
            self._waits = True
            with contextlib.suppress(queue.Full):
                self.on_change()
                self._waits = False
        for number, each in judged.items():
            if each.symptoms != (before[number].symptoms if number in before else frozenset()):
                _tell(number, each)

    def _hurried(self, probed: Mapping[int, Probed]) -> dict[int, Health]:
        """The health of nodes that are suspected of stalls, unless all have some: the host's."""
        if all(each.slow_blocks for each in probed.values()):
            return {}
        return {
            number: self._nodes[number].add_hurried(each)
            for number, each in probed.items()
            if number in self.health and self._nodes[number].suspected
        }

    def _judged(self, probed: Mapping[int, Probed]) -> dict[int, Health]:
        """The nodes' health; of one that was measured alone nothing can be told."""
        if len(probed) < 2:
            return {}
        shown = {
            number: self._nodes.setdefault(number, NodeHealth()).add(each)
            for number, each in probed.items()
        }
        shared = frozenset.intersection(*shown.values())
        return {number: self._nodes[number].judge(shared) for number in probed}

    def _probed(self, tiers: TierMap) -> dict[int, Probed]:
        """What was found of each node that could be measured."""
        usage = self._read_usage(tiers)
        found = {}
        before = self.probe_cpu_ns
        if before.keys() != tiers.nodes.keys():
            self.probe_cpu_ns = {n: before.get(n) or Quantiles() for n in tiers.nodes}
        for number, node in tiers.nodes.items():
            if not can_hold(usage.get(number)):
                self._count(number, FULL)
                continue
            begun_ns = lib.tierd_thread_cpu_ns()
            probed = self._probe(node, tiers)
            self.probe_cpu_ns[number].add(lib.tierd_thread_cpu_ns() - begun_ns)
            log.debug('event=node_probed node=%d result="%s"', number, probed)
            if isinstance(probed, Probed):
                found[number] = probed
                self._count(number, OK)
            elif probed == errno.EAGAIN:
                self._count(number, DISTURBED)
            else:
                self._count(number, errno.errorcode.get(probed, str(probed)))
        return found

    def _count(self, node: int, result: str) -> None:
        if result != OK and (node, result) not in self.results:
            log.info(logfmt(event="node_not_measured", node=node, reason=result))
        self.results[node, result] = self.results.get((node, result), 0) + 1

    def slow_nodes(self) -> list[str]:
        """A sentence for each node that is slow; any thread may ask."""
        return [
            f"node {number} is slow ({', '.join(sorted(each.symptoms))}): a read takes "
            f"{each.latency_ratio * each.usual_latency_ns:.0f} ns (usually "
            f"{each.usual_latency_ns:.0f}), a stream gets "
            f"{each.bandwidth_ratio * each.usual_bandwidth / 1e9:.3g} GB/s "
            f"({each.usual_bandwidth / 1e9:.3g})"
            for number, each in sorted(self.health.items())
            if each.symptoms
        ]

    def over(
        self, reader: Callable[[Config], Callable[[], TierMap]]
    ) -> Callable[[Config], Callable[[], TierMap]]:
        """A reader of tiers by configuration, with slow nodes' figures.

        The policy `cost` measures by itself, and adds the load of tiers to their idle latency: its
        tiers stay as they are described.
        """

        def made(config: Config) -> Callable[[], TierMap]:
            read = reader(config)
            if config.policy.name == CostPolicy.name:
                return read
            return lambda: self.applied(read())

        return made

    def applied(self, tiers: TierMap) -> TierMap:
        """The tiers with slow nodes' figures multiplied by their slowdown; ranks stay."""
        slow = {n: each for n, each in self._factors.items() if n in tiers.nodes}
        if not slow:
            return tiers
        nodes = {
            n: _times(node, *slow[n]) if n in slow else node for n, node in tiers.nodes.items()
        }
        changed = tuple(
            _tier_of(tier, nodes) if slow.keys() & set(tier.nodes) else tier for tier in tiers.tiers
        )
        return dataclasses.replace(tiers, tiers=changed, nodes=nodes)


def _factors(health: Mapping[int, Health]) -> dict[int, tuple[float, float]]:
    """Of slow nodes: times their latency, and times their bandwidth.

    Relative to the node that changed least, for the rest is the host's doing.
    """
    if not any(each.symptoms for each in health.values()):
        return {}
    latency = min(each.latency_ratio for each in health.values())
    bandwidth = max(each.bandwidth_ratio for each in health.values())
    return {
        number: (
            max(1.0, each.latency_ratio / latency),
            min(1.0, each.bandwidth_ratio / bandwidth),
        )
        for number, each in health.items()
        if each.symptoms
    }


def _differ(
    one: Mapping[int, tuple[float, float]], other: Mapping[int, tuple[float, float]]
) -> bool:
    """Whether decisions have to know: other nodes are slow, or by more or less than they were."""
    return one.keys() != other.keys() or any(
        abs(math.log(now / before)) > math.log(HEALTH.min_change)
        for node, factors in one.items()
        for now, before in zip(factors, other[node], strict=True)
    )


def _tell(node: int, health: Health) -> None:
    said = {
        "node": node,
        "latency_ns": round(health.latest.mean_ns),
        "usual_latency_ns": round(health.usual_latency_ns),
        "stream_bytes_per_s": float(f"{health.latest.bandwidth_bytes_per_s:.3g}"),
        "usual_stream_bytes_per_s": float(f"{health.usual_bandwidth:.3g}"),
    }
    if health.symptoms:
        what = "+".join(sorted(health.symptoms))
        log.warning(logfmt(event="node_slow", what=what, **said))
    else:
        log.info(logfmt(event="node_as_usual", **said))


def _times(node: MemoryNode, latency: float, bandwidth: float) -> MemoryNode:
    """A node with its figures times these: one yardstick for all nodes."""
    return dataclasses.replace(
        node,
        latency_ns=Quantity(node.latency_ns.value * latency, Provenance.MEASURED),
        bandwidth_bytes_per_s=Quantity(
            node.bandwidth_bytes_per_s.value * bandwidth, Provenance.MEASURED
        ),
    )


def _tier_of(tier: Tier, nodes: Mapping[int, MemoryNode]) -> Tier:
    """The tier by what its nodes are now: the lowest latency, and all bandwidth together."""
    own = [nodes[number] for number in tier.nodes]
    latency = min((node.latency_ns for node in own), key=lambda each: each.value)
    bandwidth = sum(node.bandwidth_bytes_per_s.value for node in own)
    return dataclasses.replace(
        tier,
        latency_ns=latency,
        bandwidth_bytes_per_s=Quantity(bandwidth, Provenance.MEASURED),
    )
