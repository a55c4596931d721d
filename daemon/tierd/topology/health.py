# SPDX-License-Identifier: Apache-2.0
"""Judges from probes whether a node is slower than usual: a tier can degrade without failing.

What is usual is learned of each node: the median of its probes, their spread by the median absolute
deviation (Hampel 1974), so that a few disturbed ones change nothing, and the rate of slow accesses.
A node is slow once each of some probes in a row is out of the usual:

- latency: the link runs at a lower speed, or the device is throttled;
- bandwidth: the link has lost lanes;
- stalls: a few accesses take very long (errors that are corrected, a link that trains anew), which
  the middle of a probe does not show. They are counted.

What all nodes show at once is the host's doing (a busy or a slower CPU) and no node's. More load
than in the last hour looks like a degraded node, and what follows for placement is the same.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from tierd.core import bounds
from tierd.core.tuning import HEALTH
from tierd.topology.probe import Probed
from tierd.topology.usual import Usual

LEARNING: Final = 2
RECOVERY: Final = 3
"""Times as many probes as make a node slow: to learn what is usual, and to be as usual again."""


class Symptom(enum.StrEnum):
    """How a node is slow."""

    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    STALLS = "stalls"


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a node.

    Attributes:
        symptoms: empty for a node that is as usual, or is not judged yet.
        latency_ratio, bandwidth_ratio: medians of the last probes to the usual ones.
        latest: the last probe.
        usual_latency_ns, usual_bandwidth: medians; the latency with slow accesses.
        probes: those that were judged, since the start.
    """

    symptoms: frozenset[Symptom]
    latency_ratio: float
    bandwidth_ratio: float
    latest: Probed
    usual_latency_ns: float
    usual_bandwidth: float
    probes: int


class NodeHealth:
    """The probes of one node."""

    def __init__(self) -> None:
        self._usual = Usual()
        most = RECOVERY * HEALTH.slow_probes
        self._last: deque[tuple[Probed, frozenset[Symptom]]] = deque(maxlen=most)
        self._waiting: deque[Probed] = deque()
        """As usual so far: what a fault shows before it is found does not count as usual."""
        self._stall_evidence = 0.0
        self._shared = 0
        self._symptoms: frozenset[Symptom] = frozenset()
        self._probes = 0

    def add_hurried(self, probed: Probed) -> Health:
        """The node's health with a probe that was made soon after one that stalled.

        It tells of stalls alone: that the rest lasts is what tells a slow node from a load.
        """
        self._probes += 1
        self._stalls(probed)
        self._symptoms = self._symptoms - {Symptom.STALLS} | self._stalling()
        return self._health(probed)

    def add(self, probed: Probed) -> frozenset[Symptom]:
        """Take in a probe; which symptoms it shows. For stalls earlier ones count as well."""
        self._probes += 1
        found = set()
        if len(self._usual) >= LEARNING * HEALTH.slow_probes:
            if probed.latency_ns > self._usual.figures.most_latency_ns:
                found.add(Symptom.LATENCY)
            if probed.bandwidth_bytes_per_s < self._usual.figures.least_bandwidth:
                found.add(Symptom.BANDWIDTH)
            if self._stalls(probed):
                found.add(Symptom.STALLS)
        self._last.append((probed, frozenset(found)))
        return frozenset(found)

    def judge(self, shared: Collection[Symptom]) -> Health:
        """The node's health with the probe that was taken in last.

        Args:
            shared: what all nodes show. Then the probe says nothing of the node: neither does it
                count as usual, nor for or against a symptom. What all of them show for as long
                as is remembered becomes the usual.
        """
        probed, odd = self._last[-1]
        if shared:
            self._last.pop()
            self._stall_evidence *= Symptom.STALLS not in shared
            self._shared += 1
            if self._shared > bounds.HEALTH_HISTORY:
                self._usual.clear()
                self._waiting.clear()
            return self._health(probed)
        self._shared = 0
        lasting = (Symptom.LATENCY, Symptom.BANDWIDTH)
        self._symptoms = frozenset(filter(self._lasts, lasting)) | self._stalling()
        if self._symptoms:
            self._waiting.clear()
        elif not odd:
            self._waiting.append(probed)
            young = len(self._usual) < LEARNING * HEALTH.slow_probes
            if young or len(self._waiting) > RECOVERY * HEALTH.slow_probes:
                self._usual.add(self._waiting.popleft())
        return self._health(probed)

    @property
    def suspected(self) -> bool:
        """Whether there were slow accesses of late, and not enough yet to be sure."""
        return self._stall_evidence > 0

    def _lasts(self, symptom: Symptom) -> bool:
        """Whether a symptom begins, goes on, or has not been away for long enough."""
        odd = [symptom in each for _, each in self._last]
        if symptom in self._symptoms:
            return any(odd[-RECOVERY * HEALTH.slow_probes :])
        return len(odd) >= HEALTH.slow_probes and all(odd[-HEALTH.slow_probes :])

    def _stalling(self) -> frozenset[Symptom]:
        """Stalls, if there are any: they are judged from several probes as it is."""
        goes_on = Symptom.STALLS in self._symptoms and self._stall_evidence > 0
        sure = self._stall_evidence >= -math.log(HEALTH.stall_chance)
        return frozenset({Symptom.STALLS} if goes_on or sure else ())

    def _stalls(self, probed: Probed) -> bool:
        """Whether there have been more slow accesses of late than chance brings.

        A cumulative sum (Page 1954) of the logarithm of how much likelier each probe is with one
        slow block more, and at least twice as many, than usual. No probe decides alone.
        """
        seen = self._usual.figures.stalls if len(self._usual) else 0.0
        usual = max(seen, HEALTH.min_stalls)
        slow = max(2 * usual, usual + 1)
        limit = -math.log(HEALTH.stall_chance)
        likelier = probed.slow_blocks * math.log(slow / usual) - (slow - usual)
        grown = self._stall_evidence + min(likelier, 1.001 * limit / HEALTH.slow_probes)
        self._stall_evidence = min(max(0.0, grown), limit)
        return self._stall_evidence >= limit

    def _health(self, latest: Probed) -> Health:
        recent = [each for each, _ in self._last][-HEALTH.slow_probes :] or [latest]
        now_ns = float(np.median([each.mean_ns for each in recent]))
        now = float(np.median([each.bandwidth_bytes_per_s for each in recent]))
        usual_ns, usual = now_ns, now
        if len(self._usual):
            usual_ns, usual = self._usual.figures.mean_ns, self._usual.figures.bandwidth
        return Health(
            self._symptoms, now_ns / usual_ns, now / usual, latest, usual_ns, usual, self._probes
        )
