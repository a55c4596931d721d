# SPDX-License-Identifier: Apache-2.0
"""`TierModel`: how long an access to each tier takes, idle and under load.

Lines of a tier are served one after another, `line = 64 / bandwidth` each. Those of a stream come
in bursts: a prefetcher asks for up to `COST.stream_lines` lines at once, called DEPTH below. Those
that wait for each other come alone. In an M[X]/D/1 queue a line waits, at the utilisation
u = load / bandwidth, for

    wait = burst · line · u / (2 (1 - u))

where `burst` is the mean of the bursts that lines come in: 1 + (DEPTH - 1) · the streamed share
of the tier's lines, which is told by how much of the tier's latency they wait for,
and its loaded latency is the idle latency plus that. No more lines than all CPUs have
outstanding can wait, DEPTH for each: where the form passes that, at u = 2c / (1 + 2c) for c CPUs,
it goes on as its tangent, so that it stays finite, rising and convex for any load.

An access that depends on the one before takes the loaded latency, one of a stream a DEPTH-th
of it, as so many are under way at once.

Each number has its origin. What is missing, zero or not a number is taken to be equal to that
of the first tier that has one: tiers that are equal are no reason to move anything. A probe
that found a tier slower than it says (the least of several probes, as load makes them longer) is
believed, and so is a load beyond the
bandwidth that a tier says it has. `notes` says all that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tierd.core.access import LINE_BYTES
from tierd.core.pagekey import F64Array
from tierd.core.tiermap import Measured, Quantity, Tier, TierMap
from tierd.core.tuning import COST
from tierd.policy.inputs import Traffic

EQUAL: Final = "equal"
"""Origin of a number that stands in for one that is missing."""
MEASURED: Final = "measured"
OBSERVED: Final = "observed"
"""... of one that outcomes of moves contradict."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and its origin: a provenance of the tier map's, "measured" or "equal"."""

    value: float
    origin: str


@dataclass(frozen=True, slots=True)
class TierModel:
    """All tiers, by rank.

    Attributes:
        latency: idle latency, ns.
        bandwidth: bytes a second.
        load: float64[tiers] bytes a second now.
        cpus: CPUs that may have lines under way.
        notes: one sentence for each number that was not taken as told.
    """

    latency: tuple[Figure, ...]
    bandwidth: tuple[Figure, ...]
    load: F64Array
    source: tuple[str, ...]
    cpus: int
    notes: tuple[str, ...] = ()

    @property
    def idle_ns(self) -> F64Array:
        """Idle latencies, float64[tiers]."""
        return np.array([figure.value for figure in self.latency])

    @property
    def bytes_per_s(self) -> F64Array:
        """Bandwidths, float64[tiers]."""
        return np.array([figure.value for figure in self.bandwidth])

    @property
    def _line_ns(self) -> F64Array:
        return np.asarray(LINE_BYTES * 1e9 / self.bytes_per_s)

    @property
    def _knee(self) -> float:
        return 2 * self.cpus / (1 + 2 * self.cpus)

    def _wait(self, load: F64Array) -> tuple[F64Array, F64Array]:
        """Lines that single ones wait for, and how that rises with the utilisation."""
        u = np.maximum(load, 0) / self.bytes_per_s
        below = np.minimum(u, self._knee)
        rise = self._steepness(below)
        return below / (2 * (1 - below)) + rise * (u - below), rise

    @staticmethod
    def _bursts(load: F64Array, weight: F64Array) -> tuple[F64Array, F64Array]:
        """Lines a burst, and the share of waits in lines; 1 to `COST.stream_lines`."""
        with np.errstate(divide="ignore", invalid="ignore"):
            waited = np.where(load > 0, LINE_BYTES * weight / load, 0.0)
        streamed = np.clip((1 - waited) * COST.stream_lines / (COST.stream_lines - 1), 0, 1)
        return 1 + (COST.stream_lines - 1) * streamed, waited

    def loaded_ns(self, load: F64Array, weight: F64Array) -> F64Array:
        """Loaded latencies, ns.

        Args:
            load: float64[..., tiers] bytes a second.
            weight: float64[..., tiers] latencies waited for a second, which tells streams.
        """
        wait, _ = self._wait(load)
        return np.asarray(self.idle_ns + self._line_ns * wait * self._bursts(load, weight)[0])

    def prices(self, load: F64Array, weight: F64Array) -> tuple[F64Array, F64Array]:
        """What one more costs all, float64[tiers] each: a latency waited for a second, ns, and
        a byte a second, ns.

        One that waits makes bursts shorter on average, a byte makes the queue longer.
        """
        wait, rise = self._wait(load)
        burst, waited = self._bursts(load, weight)
        between = (burst > 1) & (burst < COST.stream_lines)
        with np.errstate(divide="ignore", invalid="ignore"):
            shorter = np.where(between, COST.stream_lines * LINE_BYTES / load, 0.0)
            longer = np.where(between, COST.stream_lines * waited / load, 0.0)
        latency = self.idle_ns + self._line_ns * wait * burst
        latency = np.maximum(latency - weight * self._line_ns * wait * shorter, self.idle_ns)
        crowd = weight * self._line_ns * (rise * burst / self.bytes_per_s + wait * longer)
        return np.asarray(latency), np.asarray(crowd)

    @staticmethod
    def _steepness(u: F64Array) -> F64Array:
        return np.asarray(0.5 / (1 - u) ** 2)

    def suspecting(self, names: Sequence[str], times: Mapping[str, float]) -> TierModel:
        """The tiers with some thought to be so many times slower than they say."""
        latency, bandwidth, notes = list(self.latency), list(self.bandwidth), list(self.notes)
        for rank, name in enumerate(names):
            if name in times:
                latency[rank] = Figure(latency[rank].value * times[name], OBSERVED)
                bandwidth[rank] = Figure(bandwidth[rank].value / times[name], OBSERVED)
                notes.append(f"tier {name}: less was served after moves to it; thought slower")
        return replace(self, latency=tuple(latency), bandwidth=tuple(bandwidth), notes=tuple(notes))

    def without_load(self) -> TierModel:
        """The same tiers as a ladder of latency: so wide that load does not slow them."""
        wide = tuple(Figure(1e18, "ladder") for _ in self.bandwidth)
        return replace(self, bandwidth=wide, load=np.zeros_like(self.load))


def make_model(tiers: TierMap, traffic: Traffic | None) -> TierModel:
    """The model of the tiers of a map, with what is known of their traffic."""
    notes: list[str] = []
    all_tiers = tiers.tiers
    load, source = _loads(all_tiers, traffic)
    measured = {} if traffic is None else traffic.measured
    latency = _figures([tier.latency_ns for tier in all_tiers], all_tiers, "latency", notes)
    bandwidth = _figures(
        [tier.bandwidth_bytes_per_s for tier in all_tiers], all_tiers, "bandwidth", notes
    )
    probes = [[measured[n] for n in tier.nodes if n in measured] for tier in all_tiers]
    probed = [_least_latency(each) for each in probes]
    wrong = [_is_wrong(told, each) for told, each in zip(latency, probed, strict=True)]
    for tier in all_tiers:
        rank = tier.rank
        each = probed[rank]
        if any(wrong) and each is not None:
            # All by one yardstick: what is told of the others and what is measured differ, too.
            if wrong[rank]:
                notes.append(
                    f"tier {tier.name}: {latency[rank].origin} gives {latency[rank].value:.0f} ns, "
                    f"a probe found {each:.0f} ns; probes are believed"
                )
            latency[rank] = Figure(each, MEASURED)
        bandwidth[rank] = _borne(tier, bandwidth[rank], float(load[rank]), probes[rank], notes)
    cpus = sum(len(node.cpus) for node in tiers.nodes.values())
    return TierModel(
        tuple(latency), tuple(bandwidth), load, tuple(source), max(1, cpus), tuple(notes)
    )


def _loads(tiers: Sequence[Tier], traffic: Traffic | None) -> tuple[F64Array, list[str]]:
    """The load of each tier, bytes a second, and where it is from ("none": nowhere)."""
    load, source = np.zeros(len(tiers)), ["none"] * len(tiers)
    if traffic is None:
        return load, source
    for tier in tiers:
        told = [node for node in tier.nodes if node in traffic.load]
        load[tier.rank] = sum(_sane(traffic.load[node]) or 0.0 for node in told)
        names = {str(traffic.source.get(node, "none")) for node in told}
        source[tier.rank] = "+".join(sorted(names)) or "none"
    return load, source


def _sane(value: float) -> float | None:
    return value if math.isfinite(value) and value > 0 else None


def _figures(
    told: Sequence[Quantity], tiers: Sequence[Tier], what: str, notes: list[str]
) -> list[Figure]:
    stand_in = next((each.value for each in told if _sane(each.value)), 1.0)
    figures = []
    for tier, each in zip(tiers, told, strict=True):
        if _sane(each.value):
            figures.append(Figure(each.value, str(each.provenance)))
            continue
        figures.append(Figure(stand_in, EQUAL))
        notes.append(
            f"tier {tier.name}: {each.provenance} gives a {what} of {each.value:g}; "
            "taken to be equal to the first tier that tells one"
        )
    return figures


def _least_latency(found: Sequence[Measured]) -> float | None:
    values = [_sane(each.latency_ns or 0) for each in found]
    return min((each for each in values if each is not None), default=None)


def _is_wrong(told: Figure, probed: float | None) -> bool:
    """Whether a probe found the tier much slower than it says, or it says nothing."""
    return probed is not None and (probed > COST.probe_factor * told.value or told.origin == EQUAL)


def _borne(
    tier: Tier, told: Figure, load: float, found: Sequence[Measured], notes: list[str]
) -> Figure:
    """Believe a tier that bears more than it says; without a number, what a probe got."""
    streams = [_sane(each.bandwidth_bytes_per_s or 0) for each in found]
    probed = sum(each for each in streams if each is not None)
    least = max(load, probed)
    if least <= told.value and (told.origin != EQUAL or not probed):
        return told
    notes.append(
        f"tier {tier.name}: {told.origin} gives {told.value / 1e9:.1f} GB/s, and it serves "
        f"{least / 1e9:.1f} GB/s; that is believed"
    )
    return Figure(least, MEASURED)
