# SPDX-License-Identifier: Apache-2.0
"""`PageTable`: the tables that BPF programs count in, mapped into the service.

Programs write into one half while the service reads the other; the epoch says which
(see `ebpf/table.h`). Reading needs no system call: the kernel's memory is mapped
(BPF_F_MMAPABLE) and decoded as NumPy views. That matters beyond speed: the kernel does
not run BPF programs on a CPU that is inside a map system call, and a sample that comes
then is counted by nobody.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core.pagekey import U64Array
from tierd.core.tuning import EBPF

U32Array = npt.NDArray[np.uint32]

WAYS: Final = 4
MODE_COUNT: Final = 0
MODE_PASS: Final = 1
OFFSETS: Final = 7
_FIRST_EPOCH: Final = 2
_LAST_EPOCH: Final = (1 << 32) - 1


def _words(names: str) -> list[tuple[str, str]]:
    return [(name, "u4") for name in names.split()]


SLOT: Final = np.dtype([("key", "u8"), *_words("epoch stamp count writes hints order")])
CONFIG: Final = np.dtype(
    [
        *_words("epoch mode sets cpus hints own demotion"),
        ("offset", "u4", OFFSETS),
        ("spare", "u4", 2),
    ]
)
STATS: Final = np.dtype(
    [
        *((name, "u8") for name in ("seen", "foreign", "no_address")),
        ("counted", "u8", 2),
        ("evicted", "u8", 2),
        *((n, "u8") for n in ("passed", "unplaced", "hints", "hints_foreign", "hints_lost")),
        ("spare", "u8", 4),
    ]
)
SET_BYTES: Final = WAYS * SLOT.itemsize


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
        return cls(max(1, table_bytes // (2 * cpus * SET_BYTES)), cpus)

    @property
    def all_sets(self) -> int:
        """Entries of the map `sets`."""
        return 2 * self.cpus * self.sets

    @property
    def pages(self) -> int:
        """Pages that one half holds on all CPUs."""
        return self.cpus * self.sets * WAYS

    @property
    def memory_bytes(self) -> int:
        """Bytes of the map `sets`."""
        return self.all_sets * SET_BYTES


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted in one epoch; a page is there once for each CPU that saw it.

    Attributes:
        key: uint64[n] page keys.
        count, writes, hints, order: uint32[n].
        lost: samples that were counted and gave way since the last drain.
    """

    key: U64Array
    count: U32Array
    writes: U32Array
    hints: U32Array
    order: U32Array
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
        size: what the program was loaded with.
        sleep: time.sleep, or a test's.
    """

    def __init__(
        self,
        maps: Mapping[str, int],
        size: TableSize,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        slots = map_array(maps["sets"], size.all_sets * WAYS, SLOT)
        self._halves = slots.reshape(2, -1)
        self._stats = map_array(maps["stats"], size.cpus, STATS)
        self._config = map_array(maps["config"], 1, CONFIG)
        self._sleep = sleep
        self._drained = [0, 0]
        self._lost = 0
        self.size = size
        self._config["sets"] = size.sets
        self._config["cpus"] = size.cpus
        self._config["epoch"] = _FIRST_EPOCH

    def configure(self, **values: int) -> None:
        """Set fields of `struct config` by name."""
        for name, value in values.items():
            self._config[name] = value

    def set_offsets(self, offsets: Sequence[int]) -> None:
        """Tell the program where tracepoint fields stand, at most `OFFSETS` of them."""
        for number, offset in enumerate(offsets):
            self._config["offset"][0, number] = offset

    @property
    def mode(self) -> int:
        """MODE_COUNT or MODE_PASS."""
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
        self._config["epoch"] = epoch + 1 if epoch < _LAST_EPOCH else _FIRST_EPOCH
        self._sleep(EBPF.epoch_settle_s)
        counted = int(self._stats["counted"][:, half].sum())
        if counted == self._drained[half]:
            return _nothing()
        slots = self._halves[half]
        found = slots[slots["epoch"] == epoch]
        found = found[(found["count"] > 0) | (found["hints"] > 0)]
        total = int(found["count"].sum(dtype=np.uint64))
        lost = max(0, counted - self._drained[half] - total)
        self._drained[half] += total + lost
        self._lost += lost
        return Counts(
            key=np.ascontiguousarray(found["key"]),
            count=np.ascontiguousarray(found["count"]),
            writes=np.ascontiguousarray(found["writes"]),
            hints=np.ascontiguousarray(found["hints"]),
            order=np.ascontiguousarray(found["order"]),
            lost=lost,
        )


def _nothing() -> Counts:
    none = np.empty(0, np.uint32)
    return Counts(np.empty(0, np.uint64), none, none, none, none, 0)
