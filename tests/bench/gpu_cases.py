# SPDX-License-Identifier: Apache-2.0
"""The HUVM paper's four cases on the simulated 4 x V100 (USENIX ATC 2022, section 5).

The paper does not give the footprints; these oversubscribe a 16 GB GPU as its graphs
do, and leave lenders what these batch sizes leave. `scale` divides every size (memory,
footprints, batches) for quick runs; the links stay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import graphs
import networks
from events import ALLOC, COMPUTE, Events, make
from simulate import Job

GIB = 1 << 30
GPU_BYTES = 16 * GIB
CHUNKS = GPU_BYTES // (2 << 20)
LAUNCHED = False
"""Borrowers are unmodified programs under the preload."""
SEED = 7
"""Of the generated graph."""
ALGORITHMS: dict[str, Callable[[graphs.Graph, int], Events]] = {
    "pagerank": graphs.pagerank,
    "bfs": graphs.bfs,
    "wcc": graphs.wcc,
    "louvain": graphs.louvain,
}


@lru_cache
def _graph() -> graphs.Graph:
    return graphs.power_law(seed=SEED)


@lru_cache
def graph_trace(name: str, chunks: int) -> Events:
    """The trace of an algorithm on `chunks` chunks."""
    return ALGORITHMS[name](_graph(), chunks)


def borrower(name: str, gpu: int, share: float, scale: int) -> Job:
    """A graph job that needs `share` times its GPU's memory."""
    chunks = int(CHUNKS * share) // scale
    return Job(f"{name}@{gpu}", gpu, graph_trace(name, chunks), chunks, launched=LAUNCHED)


def training(name: str, gpu: int, batch: int, scale: int) -> Job:
    """A training job that lends. Its batch shrinks with the scale, its weights are cut."""
    events, first = networks.training(name, max(1, batch // scale))
    events = events.copy()
    events["value"][:first] //= scale
    return Job(f"{name}@{gpu}", gpu, events, 0, first)


def resident(name: str, gpu: int, share: float, scale: int) -> Job:
    """A graph job that fits in its GPU and lends the rest: constant memory, short laps."""
    held = int(GPU_BYTES * share) // scale
    rows = [(0, 0, ALLOC, 0, held)] + [(0, 0, COMPUTE, 0, 58_000)] * 200
    return Job(f"{name}@{gpu}", gpu, make(rows), 0, 1)


def case(number: int, scale: int = 1) -> list[Job]:
    """The jobs of case 1 to 4."""
    if number == 1:
        return [
            borrower("pagerank", 0, 1.6, scale),
            training("vgg16", 1, 96, scale),
            training("vgg16", 2, 96, scale),
            resident("wcc", 3, 0.4, scale),
        ]
    if number == 2:
        return [
            borrower("bfs", 0, 1.4, scale),
            borrower("bfs", 1, 1.4, scale),
            training("mobilenet_v3", 2, 192, scale),
            training("resnet101", 3, 64, scale),
        ]
    if number == 3:
        return [
            borrower("wcc", 0, 1.4, scale),
            borrower("bfs", 1, 1.4, scale),
            resident("pagerank", 2, 0.5, scale),
            resident("pagerank", 3, 0.5, scale),
        ]
    return [
        borrower("wcc", 0, 1.3, scale),
        borrower("louvain", 1, 1.3, scale),
        borrower("louvain", 2, 1.3, scale),
        training("resnet101", 3, 64, scale),
    ]


def spare(share: float, scale: int = 1) -> list[Job]:
    """The sensitivity case: PageRank, and three neighbours that leave `share` unused."""
    return [
        borrower("pagerank", 0, 1.6, scale),
        *(resident("lender", gpu, 1.0 - share, scale) for gpu in (1, 2, 3)),
    ]
