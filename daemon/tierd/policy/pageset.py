# SPDX-License-Identifier: Apache-2.0
"""Functions on page sets for all policies: select, join, measure, assign to nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tierd.core.migration import U8Array, filled
from tierd.core.pagekey import PAGE_SIZE, I16Array, I64Array
from tierd.hotness.view import PageSet


def take(pages: PageSet, index: npt.NDArray[np.bool_] | I64Array | slice) -> PageSet:
    """The chosen pages: a bool[n] mask, int64[m] positions in order, or a slice.

    If it is all of them, the result is `pages` itself. A slice shares memory with `pages`. Do not
    write to either.
    """
    if isinstance(index, slice):
        if index.start in (None, 0) and index.step is None and _past_limit(index.stop, len(pages)):
            return pages
        return PageSet(
            page=pages.page[index],
            heat=pages.heat[index],
            node=pages.node[index],
            order=pages.order[index],
            idle_s=pages.idle_s[index],
        )
    if index.dtype == np.bool_:
        # Most masks select all or nothing.
        if np.count_nonzero(index) == len(index):
            return pages
        index = index.nonzero()[0]
    return PageSet(
        page=pages.page.take(index),
        heat=pages.heat.take(index),
        node=pages.node.take(index),
        order=pages.order.take(index),
        idle_s=pages.idle_s.take(index),
    )


def _past_limit(stop: int | None, count: int) -> bool:
    return stop is None or stop >= count


def nodes_of(pages: PageSet) -> list[int]:
    """The nodes that `pages` lie on, ascending."""
    node = pages.node
    if not len(node):
        return []
    # The usual case is a single node: this saves sorting thousands of equal numbers.
    if np.count_nonzero(node == node[0]) == len(node):
        return [int(node[0])]
    return [int(each) for each in np.unique(node)]


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
    if not np.count_nonzero(order):
        return filled(len(order), PAGE_SIZE, np.int64)
    return np.int64(PAGE_SIZE) << order.astype(np.int64)


def total(pages: PageSet) -> int:
    """Bytes of all folios together."""
    return int(sizes(pages).sum()) if np.count_nonzero(pages.order) else len(pages) * PAGE_SIZE


def bytes_on(node: I16Array, order: U8Array) -> dict[int, int]:
    """Node → bytes of folios of orders uint8[n] on known nodes int16[n]."""
    if np.count_nonzero(order):
        size = np.bincount(node, sizes_of(order)).tolist()
        return {each: int(amount) for each, amount in enumerate(size) if amount}
    count = np.bincount(node).tolist()
    return {each: amount * PAGE_SIZE for each, amount in enumerate(count) if amount}


def prefix(pages: PageSet, need: int) -> PageSet:
    """The shortest prefix that holds at least `need` bytes (all, if there is less)."""
    if need <= 0:
        return take(pages, slice(0, 0))
    if np.count_nonzero(pages.order):
        count = int(sizes(pages).cumsum().searchsorted(need, side="left")) + 1
    else:
        count = -(-need // PAGE_SIZE)
    return take(pages, slice(0, count))


def reach(pages: PageSet, need: I64Array) -> I64Array:
    """The last page, int64[m], of the shortest prefixes that hold so many bytes, int64[m].

    Every need is above 0. A need that exceeds all `pages` gives their number.
    """
    if not np.count_nonzero(pages.order):
        return np.minimum((need - 1) // PAGE_SIZE, len(pages))
    return sizes(pages).cumsum().searchsorted(need, side="left")


def assign(pages: PageSet, nodes: Sequence[int], space: dict[int, int]) -> I16Array:
    """Destinations, int16[n]: the first of `nodes` with space left, -1 where none has.

    The assigned bytes are subtracted from `space` (node → bytes).
    """
    size = sizes(pages)
    dest = filled(len(size), -1, np.int16)
    start = 0
    for node in nodes:
        if start == len(size):
            break
        ends = size[start:].cumsum()
        fits = int(ends.searchsorted(space.get(node, 0), side="right"))
        dest[start : start + fits] = node
        if fits:
            space[node] -= int(ends[fits - 1])
        start += fits
    return dest
