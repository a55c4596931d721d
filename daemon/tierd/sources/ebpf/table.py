# SPDX-License-Identifier: Apache-2.0
"""What is watched and what was sampled; `PageTable`: the tables that BPF programs count in.

Programs write into one half of a table while the service reads the other; the epoch
says which (see `ebpf/table.h`). Reading needs no system call: the kernel's memory is mapped
(BPF_F_MMAPABLE) and decoded as NumPy views. That matters beyond speed: the kernel does
not run BPF programs on a CPU that is inside a map system call, and a sample that comes
then is counted by nobody.
"""

from __future__ import annotations

import enum
import mmap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core import bounds
from tierd.core.access import F32Array, WatchedTarget
from tierd.core.pagekey import PAGE_SHIFT, VPN_BITS, VPN_MASK, U64Array
from tierd.sources.ebpf.loader import WAYS as LOADING_WAYS
from tierd.sources.ebpf.perf import EventAttr, decode, is_store, sample_dtype

U32Array = npt.NDArray[np.uint32]


class Layout:
    """Numbers of `ebpf/table.h`."""

    WAYS: Final = 4
    """Pages of a set."""
    HALVES: Final = 2
    """Programs count in one while the service reads the other."""
    OFFSETS: Final = 7
    """Tracepoint fields that a program can be told of."""
    FIRST_EPOCH: Final = 2
    LAST_EPOCH: Final = (1 << 32) - 1


class Mode(enum.IntEnum):
    """Where samples are counted: in the kernel's table, or by heat, from raw samples."""

    COUNT = 0
    PASS = 1


def _words(names: str, kind: str) -> list[tuple[str, str]]:
    return [(name, kind) for name in names.split()]


SLOT: Final = np.dtype([("key", "u8"), *_words("epoch stamp count writes hints order", "u4")])
CONFIG: Final = np.dtype(
    [
        *_words("epoch mode sets cpus hints own demotion", "u4"),
        ("offset", "u4", Layout.OFFSETS),
        *_words("spare0 spare1", "u4"),
    ]
)
STATS: Final = np.dtype(
    [
        *_words("seen foreign no_address", "u8"),
        ("counted", "u8", Layout.HALVES),
        ("evicted", "u8", Layout.HALVES),
        *_words("passed unplaced hints hints_foreign hints_lost", "u8"),
        *_words("spare0 spare1 spare2 spare3", "u8"),
    ]
)
SET_BYTES: Final = Layout.WAYS * SLOT.itemsize


@dataclass(frozen=True, slots=True)
class TableSize:
    """How large the tables of one program are.

    Attributes:
        sets: sets of one CPU in one half, of 4 pages each.
        cpus: CPUs that there can be (/sys/devices/system/cpu/possible).
    """

    sets: int
    cpus: int

    @classmethod
    def for_bytes(cls, table_bytes: int, cpus: int) -> TableSize:
        """The largest table, both halves and all CPUs together, within `table_bytes`."""
        return cls(max(1, table_bytes // (Layout.HALVES * cpus * SET_BYTES)), cpus)

    @property
    def all_sets(self) -> int:
        """Entries of the map `sets`."""
        return Layout.HALVES * self.cpus * self.sets

    @property
    def pages(self) -> int:
        """Pages that one half holds on all CPUs."""
        return self.cpus * self.sets * Layout.WAYS


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted in one epoch; a page is there once for each CPU that saw it.

    Attributes:
        key: uint64[n] page keys.
        count, writes: uint32[n].
        lost: samples that were counted and gave way since the last drain.
    """

    key: U64Array
    count: U32Array
    writes: U32Array
    lost: int


def map_array(fd: int, entries: int, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """The values of an mmapable BPF array, shared with the kernel.

    Raises:
        OSError: the map cannot be mapped.
    """
    size = entries * dtype.itemsize
    padded = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    # The mapping lives as long as the array does.
    memory = mmap.mmap(fd, padded, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    return np.frombuffer(memory, dtype, entries)


class PageTable:
    """The maps `sets`, `stats` and `config` of one program.

    Args:
        maps: their descriptors; they may be closed afterwards.
    """

    def __init__(
        self,
        maps: Mapping[str, int],
        size: TableSize,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        slots = map_array(maps["sets"], size.all_sets * Layout.WAYS, SLOT)
        self._halves = slots.reshape(Layout.HALVES, -1)
        self._stats = map_array(maps["stats"], size.cpus, STATS)
        self._config = map_array(maps["config"], 1, CONFIG)
        self._sleep = sleep
        self._drained = [0, 0]
        self.size = size
        self._config["sets"] = size.sets
        self._config["cpus"] = size.cpus
        self._config["epoch"] = Layout.FIRST_EPOCH

    def configure(self, **values: int) -> None:
        """Set fields of `struct config` by name."""
        for name, value in values.items():
            self._config[name] = value

    def set_offsets(self, offsets: Sequence[int]) -> None:
        """Tell the program where tracepoint fields stand, at most `Layout.OFFSETS` of them."""
        for number, offset in enumerate(offsets):
            self._config["offset"][0, number] = offset

    @property
    def mode(self) -> int:
        """Mode.COUNT or Mode.PASS."""
        return int(self._config["mode"][0])

    @mode.setter
    def mode(self, value: int) -> None:
        self._config["mode"] = value

    def stat(self, name: str, cpu: int | None = None) -> int:
        """A counter of `struct stats` since loading, of one CPU or of all, both halves."""
        stats = self._stats if cpu is None else self._stats[cpu : cpu + 1]
        return int(stats[name].sum())

    def drain(self) -> Counts:
        """Begin a new epoch, and what the ended one holds.

        The account: `counted` of a half grows with each sample put into it. What the
        slots do not hold when the half is read has given way, and is lost. A program
        that was slower than the wait shows in the account of the next drain.
        """
        epoch = int(self._config["epoch"][0])
        half = epoch & 1
        self._config["epoch"] = epoch + 1 if epoch < Layout.LAST_EPOCH else Layout.FIRST_EPOCH
        self._sleep(bounds.BPF_EPOCH_SETTLE_S)
        counted = int(self._stats["counted"][:, half].sum())
        if counted == self._drained[half]:
            none = np.empty(0, np.uint32)
            return Counts(np.empty(0, np.uint64), none, none, 0)
        slots = self._halves[half]
        found = slots[slots["epoch"] == epoch]
        found = found[found["count"] > 0]
        total = int(found["count"].sum(dtype=np.uint64))
        lost = max(0, counted - self._drained[half] - total)
        self._drained[half] += total + lost
        return Counts(
            key=np.ascontiguousarray(found["key"]),
            count=np.ascontiguousarray(found["count"]),
            writes=np.ascontiguousarray(found["writes"]),
            lost=lost,
        )


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

    table_bytes: int = bounds.BPF_TABLE_BYTES
    ring_bytes: int = bounds.BPF_TABLE_BYTES
    ways: tuple[str, ...] = LOADING_WAYS


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
