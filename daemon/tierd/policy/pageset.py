# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on page sets that every policy needs: choose, join, measure, assign.

Owns: vectorised helpers over `PageSet`.
Must not touch: settings, tiers, or the host.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tierd.heat.view import PageSet
from tierd.moves import I16Array, U8Array
from tierd.pagekey import PAGE_SIZE

I64Array = npt.NDArray[np.int64]


def take(pages: PageSet, index: npt.NDArray[np.bool_] | I64Array | slice) -> PageSet:
    """The chosen pages: a bool[n] mask, int64[m] positions in order, or a slice."""
    return PageSet(
        page=pages.page[index],
        heat=pages.heat[index],
        node=pages.node[index],
        order=pages.order[index],
        idle_s=pages.idle_s[index],
    )


def concat(sets: Sequence[PageSet]) -> PageSet:
    """All pages of `sets`, in order."""
    if not sets:
        return PageSet(
            page=np.empty(0, np.uint64),
            heat=np.empty(0, np.float32),
            node=np.empty(0, np.int16),
            order=np.empty(0, np.uint8),
            idle_s=np.empty(0, np.float32),
        )
    if len(sets) == 1:
        return sets[0]
    return PageSet(
        page=np.concatenate([s.page for s in sets]),
        heat=np.concatenate([s.heat for s in sets]),
        node=np.concatenate([s.node for s in sets]),
        order=np.concatenate([s.order for s in sets]),
        idle_s=np.concatenate([s.idle_s for s in sets]),
    )


def sizes(pages: PageSet) -> I64Array:
    """Bytes, int64[n], of each folio."""
    return sizes_of(pages.order)


def sizes_of(order: U8Array) -> I64Array:
    """Bytes, int64[n], of folios of these orders, uint8[n]."""
    return np.int64(PAGE_SIZE) << order.astype(np.int64)


def total(pages: PageSet) -> int:
    """Bytes of all folios together."""
    return int(sizes(pages).sum())


def prefix(pages: PageSet, need: int) -> PageSet:
    """The shortest prefix that holds at least `need` bytes (all, if there is less)."""
    if need <= 0:
        return take(pages, slice(0, 0))
    count = int(np.searchsorted(np.cumsum(sizes(pages)), need, side="left")) + 1
    return take(pages, slice(0, count))


def assign(pages: PageSet, nodes: Sequence[int], room: dict[int, int]) -> I16Array:
    """Destinations, int16[n]: the first of `nodes` with room left, -1 where none has.

    Takes what it assigns from `room` (node → bytes).
    """
    size = sizes(pages)
    dest = np.full(len(size), -1, np.int16)
    start = 0
    for node in nodes:
        ends = np.cumsum(size[start:])
        fits = int(np.searchsorted(ends, room.get(node, 0), side="right"))
        dest[start : start + fits] = node
        if fits:
            room[node] -= int(ends[fits - 1])
        start += fits
    return dest
