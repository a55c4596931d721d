# SPDX-License-Identifier: Apache-2.0
"""`TierModel`: how long an access to each tier takes, idle and under load.

A tier serves lines one after another, each in 64 bytes / bandwidth. The lines of a stream come in
bursts, because a prefetcher asks for up to `COST.stream_lines` at once; lines that depend on each
other come alone. In an M[X]/D/1 queue a line waits, at the utilisation u = load / bandwidth, for

    wait = burst · line · u / (2 (1 - u))

where `burst` is the mean number of lines that come together: 1 + (stream_lines - 1) · the streamed
fraction of the tier's lines, which follows from how much of the latency they wait for. No more
than `stream_lines` lines of each CPU can wait. Where the formula passes that, at
u = 2c / (1 + 2c) for c CPUs, its tangent goes on, so that it stays finite, rising and convex.

An access that depends on the one before takes the loaded latency; one of a stream takes a
`stream_lines`-th of it, because so many are under way at once.

A number that is missing, zero or not a number is replaced by that of the first tier that has one:
tiers that are equal are no reason to move anything. A measurement that finds a tier slower than
its description is believed, and so is a load above the bandwidth of the description. `notes` has
a sentence for each of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core.access import LINE_BYTES
from tierd.core.nodes import Measured
from tierd.core.tiermap import Quantity, Tier, TierMap
from tierd.core.tuning import COST
from tierd.policy.traffic import Traffic

F64Array = npt.NDArray[np.float64]

EQUAL: Final = "equal"
"""Origin of a number that replaces a missing one."""
MEASURED: Final = "measured"
OBSERVED: Final = "observed"
"""Origin of a number of a derated tier."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number and its origin: a provenance of the tier map, or one of the three above."""

    value: float
    origin: str


@dataclass(frozen=True, slots=True)
class TierModel:
    """All tiers, by rank.

    Attributes:
        latency: idle latency, ns.
        bandwidth: bytes a second.
        load: float64[tiers] bytes a second now.
        source: where each load is from.
        cpus: CPUs that may have lines under way.
        notes: one sentence for each number that is not the described one.
    """

    latency: tuple[Value, ...]
    bandwidth: tuple[Value, ...]
    load: F64Array
    source: tuple[str, ...]
    cpus: int
    notes: tuple[str, ...] = ()

    @property
    def idle_ns(self) -> F64Array:
        """Idle latencies, float64[tiers]."""
        return np.array([each.value for each in self.latency])

    @property
    def bytes_per_s(self) -> F64Array:
        """Bandwidths, float64[tiers]."""
        return np.array([each.value for each in self.bandwidth])

    @property
    def reported(self) -> npt.NDArray[np.bool_]:
        """bool[tiers] whether a tier's load is reported."""
        return np.array([source != "none" for source in self.source])

    @property
    def _line_ns(self) -> F64Array:
        return np.asarray(LINE_BYTES * 1e9 / self.bytes_per_s)

    def _wait(self, load: F64Array) -> tuple[F64Array, F64Array]:
        """Lines that a single one waits for, and how that rises with the utilisation."""
        u = np.maximum(load, 0) / self.bytes_per_s
        below = np.minimum(u, 2 * self.cpus / (1 + 2 * self.cpus))
        rise = 0.5 / (1 - below) ** 2
        return below / (2 * (1 - below)) + rise * (u - below), rise

    @staticmethod
    def _bursts(load: F64Array, stalls: F64Array) -> tuple[F64Array, F64Array]:
        """Lines of a burst, 1 to `COST.stream_lines`, and the mean stall fraction of lines."""
        with np.errstate(divide="ignore", invalid="ignore"):
            stall = np.where(load > 0, LINE_BYTES * stalls / load, 0.0)
        streamed = np.clip((1 - stall) * COST.stream_lines / (COST.stream_lines - 1), 0, 1)
        return 1 + (COST.stream_lines - 1) * streamed, stall

    def loaded_ns(self, load: F64Array, stalls: F64Array) -> F64Array:
        """Loaded latencies, ns.

        Args:
            load: float64[..., tiers] bytes a second.
            stalls: float64[..., tiers] latencies a second that all accesses wait for.
        """
        wait, _ = self._wait(load)
        return np.asarray(self.idle_ns + self._line_ns * wait * self._bursts(load, stalls)[0])

    def waited_s(self, load: F64Array, stalls: F64Array) -> float:
        """Seconds a second that all accesses wait."""
        return float(self.loaded_ns(load, stalls) @ stalls) * 1e-9

    def prices(self, load: F64Array, stalls: F64Array) -> tuple[F64Array, F64Array]:
        """Marginal costs, float64[tiers] each: what one more stall a second makes all wait, ns,
        and the congestion cost, which is that of one more byte a second.

        A stall makes bursts shorter on average; a byte makes the queue longer.
        """
        wait, rise = self._wait(load)
        burst, stall = self._bursts(load, stalls)
        between = (burst > 1) & (burst < COST.stream_lines)
        with np.errstate(divide="ignore", invalid="ignore"):
            shorter = np.where(between, COST.stream_lines * LINE_BYTES / load, 0.0)
            longer = np.where(between, COST.stream_lines * stall / load, 0.0)
        latency = self.idle_ns + self._line_ns * wait * burst
        latency = np.maximum(latency - stalls * self._line_ns * wait * shorter, self.idle_ns)
        congestion = stalls * self._line_ns * (rise * burst / self.bytes_per_s + wait * longer)
        return np.asarray(latency), np.asarray(congestion)

    def derated(self, names: Sequence[str], factors: Mapping[str, float]) -> TierModel:
        """The model with some tiers slower, and narrower, than their description.

        Args:
            names: of the tiers, by rank.
            factors: how many times slower, by name.
        """
        latency, bandwidth, notes = list(self.latency), list(self.bandwidth), list(self.notes)
        for rank, name in enumerate(names):
            if name in factors:
                latency[rank] = Value(latency[rank].value * factors[name], OBSERVED)
                bandwidth[rank] = Value(bandwidth[rank].value / factors[name], OBSERVED)
                notes.append(f"tier {name} is derated: memory served less after moves to it")
        return replace(self, latency=tuple(latency), bandwidth=tuple(bandwidth), notes=tuple(notes))

    def without_load(self) -> TierModel:
        """The same tiers in the order of latency alone: so wide that no load slows them."""
        wide = tuple(Value(1e18, "idle") for _ in self.bandwidth)
        return replace(self, bandwidth=wide, load=np.zeros_like(self.load))


def make_model(tiers: TierMap, traffic: Traffic) -> TierModel:
    """The model of the tiers of a map, with what is known of their traffic."""
    notes: list[str] = []
    load = np.zeros(len(tiers.tiers))
    source = []
    for tier in tiers.tiers:
        known = [node for node in tier.nodes if node in traffic.load]
        load[tier.rank] = sum(_sane(traffic.load[node]) or 0.0 for node in known)
        names = sorted({str(traffic.source.get(node, "none")) for node in known})
        source.append("+".join(names) or "none")
    latency = _described([tier.latency_ns for tier in tiers.tiers], tiers, "latency", notes)
    bandwidth = _described(
        [tier.bandwidth_bytes_per_s for tier in tiers.tiers], tiers, "bandwidth", notes
    )
    found = traffic.measured
    measured = [[found[node] for node in tier.nodes if node in found] for tier in tiers.tiers]
    _believe_latencies(tiers, latency, measured, notes)
    for tier in tiers.tiers:
        rank = tier.rank
        bandwidth[rank] = _served(tier, bandwidth[rank], float(load[rank]), measured[rank], notes)
    cpus = sum(len(node.cpus) for node in tiers.nodes.values())
    return TierModel(
        tuple(latency), tuple(bandwidth), load, tuple(source), max(1, cpus), tuple(notes)
    )


def _sane(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _described(
    described: Sequence[Quantity], tiers: TierMap, what: str, notes: list[str]
) -> list[Value]:
    """Numbers of a kind as the host describes them."""
    substitute = next((each.value for each in described if _sane(each.value)), 1.0)
    found = []
    for tier, each in zip(tiers.tiers, described, strict=True):
        if _sane(each.value):
            found.append(Value(each.value, str(each.provenance)))
            continue
        found.append(Value(substitute, EQUAL))
        notes.append(
            f"tier {tier.name}: {each.provenance} gives a {what} of {each.value:g}; "
            "taken to be equal to the first tier that has one"
        )
    return found


def _believe_latencies(
    tiers: TierMap,
    latency: list[Value],
    measured: Sequence[Sequence[Measured]],
    notes: list[str],
) -> None:
    """Use measured latencies, of all tiers alike, if one is far above what is described.

    Of several measurements the least counts, because load makes them longer.
    """
    least = [
        min((ns for each in own if (ns := _sane(each.latency_ns))), default=None)
        for own in measured
    ]
    wrong = [
        found is not None and (found > COST.probe_factor * each.value or each.origin == EQUAL)
        for found, each in zip(least, latency, strict=True)
    ]
    for tier in tiers.tiers if any(wrong) else ():
        found, described = least[tier.rank], latency[tier.rank]
        if found is None:
            continue
        if wrong[tier.rank]:
            notes.append(
                f"tier {tier.name}: {described.origin} gives {described.value:.0f} ns, "
                f"{found:.0f} ns were measured; measurements are believed"
            )
        latency[tier.rank] = Value(found, MEASURED)


def _served(
    tier: Tier, described: Value, load: float, measured: Sequence[Measured], notes: list[str]
) -> Value:
    """The bandwidth: what a tier serves, if that is more than what is described."""
    streams = sum(_sane(each.bandwidth_bytes_per_s) or 0.0 for each in measured)
    served = max(load, streams)
    if served <= described.value and (described.origin != EQUAL or not streams):
        return described
    notes.append(
        f"tier {tier.name}: {described.origin} gives {described.value / 1e9:.1f} GB/s, and it "
        f"serves {served / 1e9:.1f} GB/s; that is believed"
    )
    return Value(served, MEASURED)
