# SPDX-License-Identifier: Apache-2.0
"""What a `Sampler` is told and what it tells: what is watched, plans, sizes, samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tierd.core.access import F32Array, WatchedTarget
from tierd.core.pagekey import PAGE_SHIFT, VPN_BITS, VPN_MASK, U64Array
from tierd.sources.ebpf.loader import WAYS
from tierd.sources.ebpf.perf import EventAttr, decode, is_store, sample_dtype


class Watched:
    """The watched targets and their ranges."""

    def __init__(self, targets: Sequence[WatchedTarget]) -> None:
        self.targets = {each.pid: each.target for each in targets if each.ranges}
        pairs = sorted(
            ((each.target << VPN_BITS) + r.start, (each.target << VPN_BITS) + r.end)
            for each in targets
            for r in each.ranges
        )
        table = np.array(pairs, np.uint64).reshape(-1, 2)
        self._starts, self._ends = table[:, 0].copy(), table[:, 1].copy()
        pids = sorted(self.targets)
        self._pids = np.array(pids, np.uint32)
        self._numbers = np.array([self.targets[pid] for pid in pids], np.uint64)

    def inside(self, keys: U64Array) -> npt.NDArray[np.bool_]:
        """Which keys, uint64[n], lie in a watched range."""
        if not len(self._starts):
            return np.zeros(len(keys), np.bool_)
        at = np.searchsorted(self._starts, keys, side="right")
        known = at > 0
        result: npt.NDArray[np.bool_] = known & (keys < self._ends[np.maximum(at, 1) - 1])
        return result

    def known(self, pid: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """Which process ids, uint32[n], are watched."""
        if not len(self._pids):
            return np.zeros(len(pid), np.bool_)
        at = np.minimum(np.searchsorted(self._pids, pid), len(self._pids) - 1)
        result: npt.NDArray[np.bool_] = self._pids[at] == pid
        return result

    def keys(self, pid: npt.NDArray[np.uint32], address: U64Array) -> U64Array:
        """Page keys, uint64[n], of samples of watched processes."""
        at = np.searchsorted(self._pids, pid)
        vpn = (address >> np.uint64(PAGE_SHIFT)) & np.uint64(VPN_MASK)
        return vpn | self._numbers[at] << np.uint64(VPN_BITS)


@dataclass(frozen=True, slots=True)
class EventPlan:
    """One event of each CPU and the function that runs on its samples.

    Attributes:
        attr: the event; its period is the first one.
        function: in the BPF program.
        writes: True for stores, False for loads, None where a sample's data source says.
        step: the period must be a multiple of it.
    """

    attr: EventAttr
    function: str
    writes: bool | None
    step: int = 1


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """Sizes of what a sampler keeps, and how its program is loaded.

    Attributes:
        table_bytes: of the counting table, all CPUs together.
        ring_bytes: of the ring buffers, all CPUs and events together.
        ways: of loading, in order of preference.
    """

    table_bytes: int = 4 << 20
    ring_bytes: int = 4 << 20
    ways: tuple[str, ...] = WAYS


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was sampled since the last drain.

    Attributes:
        key: uint64[n] page keys, of watched ranges only.
        count: float32[n] samples.
        is_write: bool[n], or None where nobody can tell.
        samples: that watched processes made: the sum of `count`, `outside` and `lost`
            (exactly, once nothing is under way).
        outside: samples of watched processes outside their watched ranges.
        lost: samples that gave way or found no room. throttled: of the kernel, times.
        ordered: each CPU's samples follow each other in the order of time.
    """

    key: U64Array
    count: F32Array
    is_write: npt.NDArray[np.bool_] | None
    samples: int
    outside: int
    lost: int
    throttled: int
    ordered: bool = False


class RawSamples:
    """Raw samples of several rings, on their way to one batch."""

    def __init__(self) -> None:
        self.keys: list[U64Array] = []
        self.stores: list[npt.NDArray[np.bool_]] = []
        self.received = self.throttled = 0

    def add(self, data: bytes, plan: EventPlan, watched: Watched) -> None:
        """Decode what one ring held."""
        records = decode(data, sample_dtype(plan.attr.sample))
        self.throttled += records.throttled
        samples = records.samples
        self.received += len(samples)
        if not len(samples):
            return
        known = watched.known(samples["pid"])
        samples = samples[known]
        self.keys.append(watched.keys(samples["pid"], samples["addr"]))
        names = samples.dtype.names or ()
        if plan.writes is None and "data_src" in names:
            self.stores.append(is_store(samples["data_src"]))
        else:
            self.stores.append(np.full(len(samples), bool(plan.writes)))
