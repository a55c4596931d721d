# SPDX-License-Identifier: Apache-2.0
"""What a `Sampler` is told and what it tells: plans, sizes, samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tierd.core.access import F32Array
from tierd.core.pagekey import PAGE_SHIFT, U64Array
from tierd.sources.ebpf.attr import EventAttr
from tierd.sources.ebpf.loader import WAYS
from tierd.sources.ebpf.ranges import Watched
from tierd.sources.ebpf.ring import decode, is_store, sample_dtype


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
    """Sizes.

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
        physical: uint64[m] page frame numbers of raw samples that have one.
        ordered: each CPU's samples follow each other in the order of time.
    """

    key: U64Array
    count: F32Array
    is_write: npt.NDArray[np.bool_] | None
    samples: int
    outside: int
    lost: int
    throttled: int
    physical: U64Array
    ordered: bool = False


class RawSamples:
    """Raw samples of several rings, on their way to one batch."""

    def __init__(self) -> None:
        self.keys: list[U64Array] = []
        self.stores: list[npt.NDArray[np.bool_]] = []
        self.physical: list[U64Array] = []
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
        if "phys_addr" in names:
            frames = samples["phys_addr"] >> np.uint64(PAGE_SHIFT)
            self.physical.append(frames[frames > 0])
