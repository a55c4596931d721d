# SPDX-License-Identifier: Apache-2.0
"""Access traces of graph algorithms, by running them on a generated power-law graph.

The graph is small; its edge list stands for one of `edge_chunks` chunks, in proportion.
What the algorithms touch, in which order and how densely, is what they really do.
Compute times are of a V100: about 9 billion edges a second for PageRank
(Gunrock, PPoPP 2016, and its later measurements), others relative to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from events import ACCESS, EVENT, KERNEL, Events  # isort: skip

PAGERANK_NS = 58_000
"""A chunk of 2 MiB holds 524,288 edges of 4 bytes."""
COST = {"pagerank": 1.0, "bfs": 0.45, "wcc": 0.8, "louvain": 2.0}
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Graph:
    """Compressed rows: the edges of vertex v are target[offset[v]:offset[v + 1]]."""

    offset: I64
    target: I64

    @property
    def vertices(self) -> int:
        """Their number."""
        return len(self.offset) - 1


def power_law(vertices: int = 1 << 15, degree: int = 16, seed: int = 7) -> Graph:
    """An undirected graph whose degrees follow a power law (exponent about 2.2)."""
    rng = np.random.default_rng(seed)
    weight = (np.arange(vertices) + 10.0) ** -0.8
    weight = rng.permutation(weight / weight.sum())
    edges = vertices * degree // 2
    ends = rng.choice(vertices, (2, edges), p=weight)
    source = np.concatenate([ends[0], ends[1]])
    target = np.concatenate([ends[1], ends[0]])
    order = np.argsort(source, kind="stable")
    offset = np.zeros(vertices + 1, np.int64)
    offset[1:] = np.cumsum(np.bincount(source, minlength=vertices))
    return Graph(offset, target[order].astype(np.int64))


class Tracer:
    """Turns touched vertices into touched chunks.

    Chunks 0 to edge_chunks - 1 hold edges, the `vertex_chunks` after them what is
    known of each vertex.
    """

    def __init__(self, graph: Graph, chunks: int, name: str, seed: int = 1) -> None:
        self.graph = graph
        self.vertex_chunks = max(4, chunks // 64)
        self.edge_chunks = chunks - self.vertex_chunks
        self.cost_ns = PAGERANK_NS * COST[name]
        self.rng = np.random.default_rng(seed)
        self.parts: list[Events] = []

    def sweep(self, active: npt.NDArray[np.bool_]) -> None:
        """One pass over the edges of the active vertices, in order, as a kernel does it."""
        graph = self.graph
        edges = len(graph.target)
        touched = np.zeros(edges + 1, np.int64)
        np.add.at(touched, graph.offset[:-1][active], 1)
        np.add.at(touched, graph.offset[1:][active], -1)
        live = np.flatnonzero(np.cumsum(touched[:-1]) > 0)
        if not len(live):
            return
        chunk, count = np.unique(live * self.edge_chunks // edges, return_counts=True)
        dense = np.minimum(1.0, count * self.edge_chunks / edges)
        events = np.zeros((len(chunk), 2), EVENT)
        events["kind"] = ACCESS
        events["index"][:, 0] = chunk
        events["pages"][:, 0] = np.maximum(1, dense * 512)
        events["value"][:, 0] = 2000 + self.cost_ns * dense
        # The vertex that the chunk's first edge belongs to is written in its place.
        first = live[np.searchsorted(live * self.edge_chunks // edges, chunk)]
        owner = np.searchsorted(graph.offset, first, side="right") - 1
        at = self.edge_chunks + owner * self.vertex_chunks // graph.vertices
        events["index"][:, 1] = at
        events["pages"][:, 1] = np.maximum(1, dense * 64)
        events["write"][:, 1] = 1
        events["value"][:, 1] = 500
        self.parts += [events.reshape(-1), self.launch()]

    def launch(self) -> Events:
        """The end of a kernel that had the addresses of edges and vertices."""
        event = np.zeros(1, EVENT)
        event["kind"] = KERNEL
        event["value"] = self.edge_chunks
        return event

    def trace(self) -> Events:
        """All that was touched, with one first pass that fills the memory."""
        fill = np.zeros(self.edge_chunks + self.vertex_chunks, EVENT)
        fill["kind"] = ACCESS
        fill["index"] = np.arange(len(fill))
        fill["pages"] = 512
        fill["write"] = 1
        fill["value"] = 5000
        return np.concatenate([fill, self.launch(), *self.parts])


def pagerank(graph: Graph, chunks: int, tolerance: float = 2e-2, most: int = 6) -> Events:
    """Power iteration until the ranks change by less than `tolerance` in all."""
    tracer = Tracer(graph, chunks, "pagerank")
    degree = np.maximum(1, np.diff(graph.offset))
    rank = np.full(graph.vertices, 1 / graph.vertices)
    owner = np.repeat(np.arange(graph.vertices), np.diff(graph.offset))
    for _ in range(most):
        tracer.sweep(np.ones(graph.vertices, np.bool_))
        flow = np.bincount(graph.target, (rank / degree)[owner], graph.vertices)
        new = 0.15 / graph.vertices + 0.85 * flow
        change = np.abs(new - rank).sum()
        rank = new
        if change < tolerance:
            break
    return tracer.trace()


def bfs(graph: Graph, chunks: int, roots: int = 3) -> Events:
    """Level by level from several roots."""
    tracer = Tracer(graph, chunks, "bfs")
    owner = np.repeat(np.arange(graph.vertices), np.diff(graph.offset))
    for root in tracer.rng.choice(graph.vertices, roots, replace=False):
        seen = np.zeros(graph.vertices, np.bool_)
        seen[root] = True
        frontier = seen.copy()
        while frontier.any():
            tracer.sweep(frontier)
            reached = np.zeros(graph.vertices, np.bool_)
            reached[graph.target[frontier[owner]]] = True
            frontier = reached & ~seen
            seen |= frontier
    return tracer.trace()


def wcc(graph: Graph, chunks: int) -> Events:
    """Weakly connected components: the least label spreads until nothing changes."""
    tracer = Tracer(graph, chunks, "wcc")
    owner = np.repeat(np.arange(graph.vertices), np.diff(graph.offset))
    label = np.random.default_rng(3).permutation(graph.vertices)
    active = np.ones(graph.vertices, np.bool_)
    while active.any():
        tracer.sweep(active)
        new = label.copy()
        push = active[owner]
        np.minimum.at(new, graph.target[push], label[owner[push]])
        active = new != label
        label = new
    return tracer.trace()


def louvain(graph: Graph, chunks: int, most: int = 5) -> Events:
    """Local moving of the Louvain method: each pass moves half of the vertices that gain."""
    tracer = Tracer(graph, chunks, "louvain")
    count, edges = graph.vertices, len(graph.target)
    owner = np.repeat(np.arange(count), np.diff(graph.offset))
    degree = np.diff(graph.offset).astype(np.float64)
    community = np.arange(count)
    active = np.ones(count, np.bool_)
    for turn in range(most):
        tracer.sweep(active)
        total = np.bincount(community, degree, count)
        pair, links = np.unique(owner * count + community[graph.target], return_counts=True)
        vertex, other = pair // count, pair % count
        gain = links - degree[vertex] * total[other] / edges
        order = np.lexsort((-gain, vertex))
        first = np.unique(vertex[order], return_index=True)[1]
        best = other[order][first]
        move = vertex[order][first]
        better = (best != community[move]) & (gain[order][first] > 0)
        move, best = move[better & (move % 2 == turn % 2)], best[better & (move % 2 == turn % 2)]
        community[move] = best
        active = np.zeros(count, np.bool_)
        active[move] = True
        active[graph.target[active[owner]]] = True
        if not len(move):
            break
    return tracer.trace()
