# SPDX-License-Identifier: Apache-2.0
"""The words of a machine file about modelled time, and what a measured region gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd_lab._fields import Table

MAX_INSTRUCTION_PS: Final = 1_000_000
MAX_OVERLAP: Final = 10_000
MAX_BEHIND_US: Final = 1000


@dataclass(frozen=True, slots=True)
class TimeSpec:
    """How instructions and cache misses become time.

    Attributes:
        instruction_ps: picoseconds an instruction takes when it hits the cache.
        overlap: percent of demand misses that are under way at once: 100 means one after
            another.
        follow: the guest's clock passes with modelled time, waiting for memory included, in
            the scale of an instruction's guest time (2**icount ns) to `instruction_ps`.
        behind_us: guest time by which that clock may be behind, about: what measures short
            times needs a small one, which takes the host longer.
    """

    instruction_ps: int = 250
    overlap: int = 100
    follow: bool = False
    behind_us: int = 200

    def __post_init__(self) -> None:
        if not 1 <= self.behind_us <= MAX_BEHIND_US:
            raise ValueError(f"behind_us must be between 1 and {MAX_BEHIND_US}")


@dataclass(frozen=True, slots=True)
class Region:
    """What lay between a program's start and stop marks.

    Attributes:
        ns: modelled time.
        guest_ns: time of the guest's own clock.
        instructions: by owner: workload, daemon, kernel, other.
        spent_ns: modelled time by owner, waiting for memory included.
        lines: by owner: lines read on demand, prefetched, and written back to make room.
        node_requests: by node: lines read on demand, prefetched, written back.
        waited_ns: by node: modelled time waiting for it.
        interval_ns: modelled time of a row of `curve`.
        curve: uint64[n, 4], requests to nodes 0 to 3 in each interval.
        spaces_dropped: address spaces that marked themselves and were not noted.
    """

    ns: float
    guest_ns: int
    instructions: dict[str, int]
    spent_ns: dict[str, float]
    lines: dict[str, tuple[int, int, int]]
    node_requests: dict[int, tuple[int, int, int]]
    waited_ns: dict[int, float]
    interval_ns: float
    curve: npt.NDArray[np.uint64]
    spaces_dropped: int

    def share(self, node: int) -> float:
        """Share of all requests that went to a node."""
        total = sum(sum(requests) for requests in self.node_requests.values())
        return sum(self.node_requests.get(node, (0, 0, 0))) / total if total else 0.0


def parse_time(top: Table) -> TimeSpec | None:
    """The `[time]` table; None if there is none.

    Raises:
        ConfigError: a number out of range.
    """
    table = top.table("time")
    if table is None:
        return None
    default = TimeSpec()
    instruction = table.number("instruction_ps", default.instruction_ps) or 0
    overlap = table.number("overlap", default.overlap) or 0
    follow = table.flag("follow", default.follow)
    table.finish()
    if not 1 <= instruction <= MAX_INSTRUCTION_PS:
        raise table.error("instruction_ps", f"must be between 1 and {MAX_INSTRUCTION_PS}")
    if not 100 <= overlap <= MAX_OVERLAP:
        raise table.error("overlap", f"must be between 100 and {MAX_OVERLAP} (percent)")
    return TimeSpec(instruction, overlap, follow)


def parse_region(report: dict[str, Any] | None) -> Region | None:
    """The region in a dump's summary; None if none was measured."""
    if report is None:
        return None
    owners, nodes = report["owners"], report["nodes"]
    return Region(
        ns=report["ns"],
        guest_ns=report["guest_ns"],
        instructions={name: owner["instructions"] for name, owner in owners.items()},
        spent_ns={name: owner["ns"] for name, owner in owners.items()},
        lines={name: _lines(owner) for name, owner in owners.items()},
        node_requests={int(number): _lines(node) for number, node in nodes.items()},
        waited_ns={int(number): node["waited_ns"] for number, node in nodes.items()},
        interval_ns=report["interval_ns"],
        curve=np.array(report["curve"], dtype=np.uint64).reshape(-1, 4),
        spaces_dropped=report["spaces_dropped"],
    )


def _lines(counts: dict[str, Any]) -> tuple[int, int, int]:
    return counts["demand"], counts["prefetched"], counts["written"]
