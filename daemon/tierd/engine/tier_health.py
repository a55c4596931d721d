# SPDX-License-Identifier: Apache-2.0
"""`TierHealth`: probes the nodes from time to time, and has slow ones be seen as they are.

A thread of its own measures each node (`topology.probe`), and `topology.health` judges. While a
node is slow, the figures of its tier are those of the last probes, so decisions follow: fewer
pages pay for a promotion into a slow tier, and more for one out of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import queue
import threading
from collections.abc import Callable, Mapping

from tierd._native import lib
from tierd.config.model import Config
from tierd.config.serving import TierHealthConfig
from tierd.core import bounds
from tierd.core.errors import UnavailableError
from tierd.core.logfmt import logfmt
from tierd.core.tiermap import MemoryNode, NodeUsage, Provenance, Quantity, Tier, TierMap
from tierd.topology.health import Health, NodeHealth, Symptom
from tierd.topology.probe import Probed, can_hold, probe_node

log = logging.getLogger(__name__)

FULL = "full"
DISTURBED = "disturbed"
OK = "ok"


class TierHealth:
    """A `BackgroundService`.

    Args:
        read_usage: how full nodes are.

    Attributes:
        tiers: returns the host's tiers as they are now; set before `start`.
        on_change: called when a node has become slow, or as usual again. Where it raises
            queue.Full, it is called again after the next round.
        health: what is known, by node; replaced as a whole, so any thread may read it.
        results: probes by node and result: ok, disturbed, full, or the name of an errno.
    """

    name = "tier_health"

    def __init__(
        self,
        config: TierHealthConfig,
        read_usage: Callable[[TierMap], Mapping[int, NodeUsage]],
        *,
        probe: Callable[[MemoryNode, TierMap], Probed | int] = probe_node,
    ) -> None:
        self._config = config
        self._read_usage = read_usage
        self._probe = probe
        self._nodes: dict[int, NodeHealth] = {}
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._changed = False
        self.tiers: Callable[[], TierMap] | None = None
        self.on_change: Callable[[], object] = bool
        self.health: Mapping[int, Health] = {}
        self.results: dict[tuple[int, str], int] = {}

    def start(self) -> None:
        """Begin to probe. Raises UnavailableError: this kernel has no memory policies."""
        assert self.tiers is not None
        tiers = self.tiers()
        for node in tiers.nodes.values():
            if self._probe(node, tiers) == errno.ENOSYS:
                raise UnavailableError("this kernel has no memory policies")
        self._thread = threading.Thread(target=self._run, name="tierd-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join(bounds.PROBE_END_S)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._ends.wait(pause_s):
            spent = lib.tierd_thread_cpu_ns()
            try:
                self.round()
            except Exception:
                log.exception(logfmt(event="tier_health_failed"))
            spent = lib.tierd_thread_cpu_ns() - spent
            pause_s = max(self._config.interval_ns, spent / self._config.cpu_limit) / 1e9

    def round(self) -> None:
        """Probe each node once, and judge them together."""
        assert self.tiers is not None
        tiers, before = self.tiers(), self.health
        odd = self._probed(tiers)
        # What a host shows that has several nodes, and all of them, is not a node's.
        shared = frozenset.intersection(*odd.values()) if len(odd) > 1 else frozenset[Symptom]()
        judged = {number: self._nodes[number].judge(shared) for number in odd}
        self._nodes = {n: each for n, each in self._nodes.items() if n in tiers.nodes}
        self.health = {n: each for n, each in {**before, **judged}.items() if n in tiers.nodes}
        changed = {
            number: each
            for number, each in judged.items()
            if each.symptoms != (before[number].symptoms if number in before else frozenset())
        }
        self._changed |= bool(changed)
        if self._changed:
            with contextlib.suppress(queue.Full):
                self.on_change()
                self._changed = False
        for number, each in changed.items():
            _tell(number, each)

    def _probed(self, tiers: TierMap) -> dict[int, frozenset[Symptom]]:
        """Each node that could be measured, and in which ways it is out of the usual."""
        usage = self._read_usage(tiers)
        odd = {}
        for number, node in tiers.nodes.items():
            if not can_hold(usage.get(number)):
                self._count(number, FULL)
                continue
            probed = self._probe(node, tiers)
            log.debug('event=node_probed node=%d result="%s"', number, probed)
            if isinstance(probed, Probed):
                odd[number] = self._nodes.setdefault(number, NodeHealth()).add(probed)
                self._count(number, OK)
            elif probed == errno.EAGAIN:
                self._count(number, DISTURBED)
            else:
                self._count(number, errno.errorcode.get(probed, str(probed)))
        return odd

    def _count(self, node: int, result: str) -> None:
        self.results[node, result] = self.results.get((node, result), 0) + 1

    def over(
        self, reader: Callable[[Config], Callable[[], TierMap]]
    ) -> Callable[[Config], Callable[[], TierMap]]:
        """A reader of tiers by configuration, as they are now."""

        def made(config: Config) -> Callable[[], TierMap]:
            read = reader(config)
            return lambda: self.applied(read())

        return made

    def applied(self, tiers: TierMap) -> TierMap:
        """The tiers with slow nodes' figures as they are; ranks stay as they were."""
        slow = {n: each for n, each in self.health.items() if each.symptoms and n in tiers.nodes}
        if not slow:
            return tiers
        nodes = {n: _as_probed(node, slow.get(n)) for n, node in tiers.nodes.items()}
        changed = tuple(
            _tier_of(tier, nodes) if slow.keys() & set(tier.nodes) else tier for tier in tiers.tiers
        )
        return dataclasses.replace(tiers, tiers=changed, nodes=nodes)


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


def _as_probed(node: MemoryNode, health: Health | None) -> MemoryNode:
    if health is None:
        return node
    return dataclasses.replace(
        node,
        latency_ns=_times(node.latency_ns, max(1.0, health.latency_ratio)),
        bandwidth_bytes_per_s=_times(node.bandwidth_bytes_per_s, min(1.0, health.bandwidth_ratio)),
    )


def _times(told: Quantity, ratio: float) -> Quantity:
    """What is told of a node, times what probes say of its change: one yardstick for all nodes."""
    return Quantity(told.value * ratio, Provenance.MEASURED)


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
