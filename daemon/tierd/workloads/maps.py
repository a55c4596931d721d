# SPDX-License-Identifier: Apache-2.0
"""Which pages of a process may be moved: its files, read as seldom as will do.

numa_maps and smaps walk the page tables of the whole process, and numa_maps looks at each of its
pages. They are read again after `PACING.upkeep_interval_ns` when there are many pages in unread
mappings, after `bounds.REREAD_NS` when there are few or none (a policy may have been set on a
mapping that was there), and for all processes together so seldom that it takes less than
`bounds.READING_CPU_FRACTION` of the time; smaps only when the process has locked memory.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tierd.core import bounds
from tierd.core.errors import TargetGoneError
from tierd.core.tuning import PACING
from tierd.workloads.mappings import MovableRanges, Policies, decide, parse_maps, parse_policies
from tierd.workloads.procs import PROC, Stat, read_bytes, read_stat, start_time
from tierd.workloads.target import Target

ProcessId = Stat | Target
"""What names a process for good: its `pid` and its `start_time`."""


@dataclass(slots=True)
class _Cached:
    text: int = 0
    policies: Policies | None = None
    result: MovableRanges | None = None

    def keep(self, result: MovableRanges) -> MovableRanges:
        """The kept object when `result` equals it, so that callers can compare by identity."""
        kept = self.result
        if kept is None or kept != result or not np.array_equal(kept.mappings, result.mappings):
            self.result = kept = result
        return kept


@dataclass(slots=True)
class MapReader:
    """Reads movable ranges and keeps, for each process, what is costly to read again.

    Attributes:
        policy_reads: times numa_maps was read.
    """

    root: Path = PROC
    policy_interval_ns: int = field(default_factory=lambda: PACING.upkeep_interval_ns)
    policy_reads: int = 0
    _cache: dict[tuple[int, int], _Cached] = field(default_factory=dict)

    def movable_ranges(self, process: ProcessId, now_ns: int) -> MovableRanges:
        """The ranges of `process`; the same object as long as nothing changed.

        Args:
            process: whom; its start time is compared after reading.

        Raises:
            TargetGoneError: the process ended or may not be looked at.
        """
        key = (process.pid, process.start_time)
        cached = self._cache.setdefault(key, _Cached())
        try:
            result = self._read(process.pid, cached, now_ns)
            if start_time(process.pid, self.root) != process.start_time:
                raise TargetGoneError(f"process {process.pid} is another one now")
        except TargetGoneError:
            self._cache.pop(key, None)
            raise
        return result

    def forget(self, process: ProcessId) -> None:
        """Drop what is kept of a process."""
        self._cache.pop((process.pid, process.start_time), None)

    def _read(self, pid: int, cached: _Cached, now_ns: int) -> MovableRanges:
        if cached.policies is None or self._due(cached.policies, now_ns, bounds.REREAD_NS):
            return self._read_policies(pid, cached, now_ns)
        text = self._maps(pid)
        digest = hash(text)
        if digest != cached.text or cached.result is None:
            cached.text = digest
            cached.keep(decide(parse_maps(text), cached.policies))
        assert cached.result is not None
        unread = cached.result.skipped.get("unread", 0)
        known = sum(part.end - part.start for part in cached.result.ranges)
        few = unread < bounds.FEW_NEW_FRACTION * (known + unread)
        interval_ns = max(bounds.REREAD_NS if few else 0, self.policy_interval_ns)
        if unread and self._due(cached.policies, now_ns, interval_ns):
            return self._read_policies(pid, cached, now_ns)
        return cached.result

    def _due(self, policies: Policies, now_ns: int, interval_ns: int) -> bool:
        """Whether policies may be read again: all processes share `bounds.READING_CPU_FRACTION`."""
        least = policies.cost_ns / bounds.READING_CPU_FRACTION * len(self._cache)
        return now_ns - policies.read_ns >= max(interval_ns, least)

    def _read_policies(self, pid: int, cached: _Cached, now_ns: int) -> MovableRanges:
        begun = time.monotonic_ns()
        # Policies first: mappings that appear in between have none and stay unread.
        policy_text = _optional(self.root, pid, "numa_maps")
        locked_text = _smaps(self.root, pid)
        text = self._maps(pid)
        mappings = parse_maps(text)
        policies = parse_policies(policy_text, locked_text, mappings)
        result = decide(mappings, policies)
        policies.read_ns = now_ns
        policies.cost_ns = time.monotonic_ns() - begun
        self.policy_reads += 1
        cached.policies = policies
        cached.text = hash(text)
        return cached.keep(result)

    def _maps(self, pid: int) -> bytes:
        text = read_bytes(f"{self.root}/{pid}/maps", bounds.MAPS_BYTES)
        if not text:
            raise TargetGoneError(f"process {pid} has no memory any more")
        return text


def movable_ranges(pid: int, root: Path = PROC) -> MovableRanges:
    """The ranges of one process, read once; `MapReader` is for reading them again.

    Raises:
        TargetGoneError: there is no such process, or it may not be looked at.
    """
    return MapReader(root).movable_ranges(read_stat(pid, root), 0)


def _optional(root: Path, pid: int, name: str) -> bytes:
    """A file that a kernel may be built without (numa_maps needs CONFIG_NUMA)."""
    path = root / str(pid) / name
    if not path.exists():
        read_stat(pid, root)
        return b""
    return read_bytes(str(path), bounds.MAPS_BYTES)


def _smaps(root: Path, pid: int) -> bytes:
    """smaps, only for a process that has locked memory."""
    status = read_bytes(f"{root}/{pid}/status")
    _, _, rest = status.partition(b"\nVmLck:")
    locked = rest.split(None, 1)[:1]
    if not locked or locked[0] == b"0":
        return b""
    return read_bytes(f"{root}/{pid}/smaps", bounds.SMAPS_BYTES)
