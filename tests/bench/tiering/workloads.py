# SPDX-License-Identifier: Apache-2.0
"""The benchmark's workloads and how large they are.

Owns: the table. A cell takes one to two minutes of an emulating host, in which the
workload under first touch runs some seconds of modelled time.
Must not touch: how they are run.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
SIZE = 192 * MIB
FAST = SIZE // 3
"""On the fast node when the workload starts: what was touched first."""


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
        Workload("updates", 12_000_000, "random updates, 90 % of them in a scattered tenth"),
        Workload("moving", 20_000_000, "the same, another tenth from the middle on"),
        Workload("pagerank", 4, "PageRank on a Kronecker graph"),
        Workload("bfs", 8, "breadth-first searches in a Kronecker graph"),
        Workload("lookup", 1_000_000, "cross-section look-ups in the manner of XSBench"),
        Workload("btree", 2_000_000, "B-tree look-ups and inserts"),
        Workload("oltp", 400_000, "in-memory OLTP in the manner of Silo under YCSB"),
        Workload("stencil", 6, "a stencil swept over memory"),
        Workload("redis", 400_000, "Redis under a Zipf load"),
        Workload("sqlite", 100_000, "SQLite in memory"),
    )
}
