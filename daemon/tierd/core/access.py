# SPDX-License-Identifier: Apache-2.0
"""What a source saw: `AccessBatch`, and the interface of a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from tierd.core.pagekey import U64Array

F32Array = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
I16Array = npt.NDArray[np.int16]
LINE_BYTES: Final = 64
"""What one access that misses the caches moves: a cache line."""


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


@dataclass(frozen=True, slots=True)
class WatchedTarget:
    """A process that sources watch: its number, its pid, and its movable ranges."""

    target: int
    pid: int
    ranges: tuple[WatchedRange, ...]


class AccessSource(Protocol):
    """What every source can do; `poll` never blocks longer than a few milliseconds."""

    name: str

    def available(self) -> Availability:
        """Say whether this host can run the source, without changing anything."""
        ...

    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        """Replace what is watched; an empty sequence stops sampling.

        Raises:
            UnavailableError: the host refused; the message says what.
        """
        ...

    def poll(self) -> list[AccessBatch]:
        """What was seen since the last call."""
        ...

    def close(self) -> None:
        """Stop sampling and leave nothing behind in the kernel."""
        ...
