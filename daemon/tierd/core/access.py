# SPDX-License-Identifier: Apache-2.0
"""What a source saw: `AccessBatch`, and the interface of a source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core.errors import UnavailableError
from tierd.core.pagekey import PAGE_SIZE, BoolArray, I16Array, U64Array

F32Array = npt.NDArray[np.float32]
LINE_BYTES: Final = 64
"""What one access that misses the caches moves: a cache line."""
LINES_PER_PAGE: Final = PAGE_SIZE // LINE_BYTES
"""Requests that the copy of a page of 4 KiB makes."""


@dataclass(frozen=True, slots=True)
class AccessBatch:
    """Accesses seen in one interval, one record a page.

    Attributes:
        page: uint64[n], page keys (`tierd.core.pagekey`); a page may occur twice.
        count: float32[n], accesses seen per 4 KiB in the interval (a sampled count
            where the source samples; comparable within one source only).
        is_write: bool[n], or None where the source cannot tell.
        time_ns: CLOCK_MONOTONIC at the end of the interval.
        source: name of the source, for metrics and logs.
        lost: records that the source knows it dropped in the interval.
        node: int16[n], where the source met each page, -1 where it does not know; None where
            it never does.
        ordered: records are single accesses (or samples) in the order in which they were made.
    """

    page: U64Array
    count: F32Array
    time_ns: int
    source: str
    is_write: BoolArray | None = None
    lost: int = 0
    ordered: bool = False
    node: I16Array | None = None

    def __post_init__(self) -> None:
        if self.page.shape != self.count.shape:
            raise ValueError(f"{len(self.page)} pages but {len(self.count)} counts")
        if self.is_write is not None and self.is_write.shape != self.page.shape:
            raise ValueError(f"{len(self.page)} pages but {len(self.is_write)} write marks")
        if self.node is not None and self.node.shape != self.page.shape:
            raise ValueError(f"{len(self.page)} pages but {len(self.node)} nodes")

    def __len__(self) -> int:
        return len(self.page)


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether an ability can be used here, and if not, why and what helps."""

    ok: bool
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class WatchedRange:
    """Virtual pages [start, end) in 4 KiB page numbers that may be moved."""

    start: int
    end: int


def join_ranges(ranges: Sequence[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """At most `limit` ascending ranges that cover `ranges`, joined over the smallest gaps."""
    if len(ranges) <= limit:
        return list(ranges)
    table = np.array(ranges, np.uint64)
    gaps = table[1:, 0] - table[:-1, 1]
    keep = np.sort(np.argsort(gaps, kind="stable")[len(gaps) - (limit - 1) :])
    starts = np.concatenate([table[:1, 0], table[keep + 1, 0]])
    ends = np.concatenate([table[keep, 1], table[-1:, 1]])
    return [(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]


@dataclass(frozen=True, slots=True)
class WatchedTarget:
    """A process that sources watch: its number, its pid, and its movable ranges."""

    target: int
    pid: int
    ranges: tuple[WatchedRange, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last whole scans of all targets saw.

    Attributes:
        share: fraction of the pages that were found accessed, 0 to 1.
        sampling_interval_s: time from clearing an accessed bit to checking it.
        period_s: time between two scans of a page.
    """

    share: float
    sampling_interval_s: float
    period_s: float


class AccessSource(ABC):
    """What the loop asks of every source.

    The methods are every source's own. The properties are abilities that some sources have; what
    they return here says that this source has not.
    """

    name: str

    @abstractmethod
    def available(self) -> Availability:
        """Say whether this host can run the source, without changing anything."""

    @abstractmethod
    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        """Replace what is watched; an empty sequence stops sampling.

        Raises:
            UnavailableError: the host refused; the message says what.
        """

    @abstractmethod
    def poll(self) -> list[AccessBatch]:
        """What was seen since the last call; never blocks longer than a few milliseconds."""

    @abstractmethod
    def close(self) -> None:
        """Stop sampling and leave nothing behind in the kernel."""

    @contextmanager
    def closed_on_failure(self) -> Iterator[None]:
        """Close the source when what is done inside finds that the host refuses."""
        try:
            yield
        except UnavailableError:
            self.close()
            raise

    @property
    def lines_per_count(self) -> float:
        """Cache lines from memory that a count of one stands for; 0: not known."""
        return 0.0

    @property
    def dilution(self) -> float:
        """The fraction of time whose accesses are counted, in (0, 1]."""
        return 1.0

    @property
    def report_ns(self) -> int:
        """Time between two reports, for a source that makes them at intervals; 0: not known."""
        return 0

    @property
    def seen(self) -> Seen | None:
        """What the last whole scans saw; None for a source that does not scan."""
        return None

    @property
    def unseen(self) -> frozenset[int]:
        """Numbers of watched targets whose accesses this source cannot see."""
        return frozenset()

    @property
    def counted_nodes(self) -> frozenset[int]:
        """Nodes of which hardware counts all requests."""
        return frozenset()

    def counted_requests(self) -> int | None:
        """Requests to `counted_nodes`, page copies among them, since some moment; None: unknown."""
        return None

    @property
    def left_out(self) -> int | None:
        """Reports that were discarded because they told nothing; None: the source discards none."""
        return None

    @property
    def unwatched(self) -> int | None:
        """Times that a page table was not watched for want of memory; None: never."""
        return None

    @property
    def passed_over(self) -> int | None:
        """Times that a process was passed over, as its pages could not be read; None: never."""
        return None

    @property
    def untracked(self) -> Mapping[str, int]:
        """Pages that were scanned and not, or not wholly, seen, by reason; empty: none are."""
        return {}


class AdaptiveSource(AccessSource):
    """A source that chooses its sampling interval by what fast memory has room for."""

    aim: float | None = None
    """The fraction of the targets' pages that fast memory has room for; None: not known."""

    @property
    @abstractmethod
    def backlog(self) -> float:
        """The fraction of its ring that is not read yet, in [0, 1]."""


class EventDrivenSource(AdaptiveSource):
    """A source whose own scans alone find pages that become hot, and which wakes the loop."""

    longest_us: int | None = None
    """No sampling interval is longer; None: none is too long."""
    lag_us: int = 0
    """A phase change may go undetected for so long."""

    @property
    @abstractmethod
    def learning_ns(self) -> int:
        """Time after which a tick learns something new; 0: ticks need not be quick."""

    @property
    @abstractmethod
    def phase_change_fd(self) -> int:
        """A descriptor that is readable from the end of a scan until `poll`; -1 for none."""

    @abstractmethod
    def phase_changed(self) -> bool:
        """Whether to poll: a phase has changed, or the source is about to go."""

    @property
    @abstractmethod
    def phase_change_ns(self) -> int:
        """When a phase change was last detected, CLOCK_MONOTONIC; 0: not yet."""
