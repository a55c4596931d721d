# SPDX-License-Identifier: Apache-2.0
"""The benchmark's workloads and how large they are."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
SIZE = 192 * MIB
FAST = SIZE // 3
"""On the fast node when the workload starts: what was touched first."""

GRAPH = (SIZE // 2, FAST // 2)
"""Graphs take long to make."""


@dataclass(frozen=True)
class Workload:
    """One program of tests/workloads/suite.

    Attributes:
        name: the program.
        work: operations, iterations: the program says which.
        size: bytes of data, about.
        fast: bytes of it on the fast node when it starts.
        what: one line for people.
    """

    name: str
    work: int
    what: str
    size: int = SIZE
    fast: int = FAST

    @property
    def arguments(self) -> list[str]:
        """The program's arguments."""
        return ["--size", str(self.size), "--work", str(self.work)]


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("updates", 21_000_000, "random updates, 90 % of them in a scattered tenth"),
        Workload("moving", 24_000_000, "the same, another tenth from the middle on"),
        Workload("pagerank", 12, "PageRank on a Kronecker graph", *GRAPH),
        Workload("bfs", 18, "breadth-first searches in a Kronecker graph", *GRAPH),
        Workload("lookup", 1_500_000, "cross-section look-ups in the manner of XSBench"),
        Workload("btree", 6_000_000, "B-tree look-ups and inserts"),
        Workload("oltp", 1_400_000, "in-memory OLTP in the manner of Silo under YCSB"),
        Workload("stencil", 35, "a stencil swept over memory"),
        Workload("redis", 200_000, "Redis under a Zipf load"),
        Workload("sqlite", 1_100_000, "SQLite in memory"),
    )
}
