# SPDX-License-Identifier: Apache-2.0
"""Where a replay's pages are elsewhere than the recording's were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tierd.core.access import WatchedRange
from tierd.core.migration import U8Array
from tierd.core.pagekey import (
    HUGE_ORDER,
    PAGE_SIZE,
    BoolArray,
    I16Array,
    U64Array,
    target_of,
    vpn_of,
)
from tierd.core.tiermap import NodeUsage
from tierd.policy.limits import Groups

_IN_BLOCK = np.uint64((1 << HUGE_ORDER) - 1)

IndexArray = npt.NDArray[np.int64]


class Divergence:
    """Folios, by key, that are on `recorded` in the recording and on `replayed` here."""

    def __init__(self) -> None:
        self.page: U64Array = np.empty(0, np.uint64)
        self.order: U8Array = np.empty(0, np.uint8)
        self.recorded: I16Array = np.empty(0, np.int16)
        self.replayed: I16Array = np.empty(0, np.int16)
        self.resized = 0
        """Folios that changed size while they differed, and went back to the recording."""

    def __len__(self) -> int:
        return len(self.page)

    def find(self, page: U64Array) -> tuple[BoolArray, IndexArray]:
        """For each key whether it is here, and where (0 where it is not)."""
        if not len(self.page):
            return np.zeros(len(page), np.bool_), np.zeros(len(page), np.int64)
        at = np.searchsorted(self.page, page)
        at[at == len(self.page)] = 0
        return self.page[at] == page, at

    def recorded_nodes(self, page: U64Array, replayed: I16Array) -> I16Array:
        """Where pages (any page of a folio) are in the recording; `replayed` is where here."""
        if not len(self.page):
            return replayed
        found, at = self.find(page)
        in_folio, head_at = self.find(page & ~_IN_BLOCK)
        in_folio &= ~found & (self.order[head_at] >= HUGE_ORDER)
        nodes = replayed.copy()
        nodes[found] = self.recorded[at[found]]
        nodes[in_folio] = self.recorded[head_at[in_folio]]
        return nodes

    def place(self, page: U64Array, node: I16Array, order: U8Array) -> I16Array:
        """The recording says where pages are: where they are here, int16[n].

        Pages that are gone (a node below -1) are gone here as well.
        """
        if not len(self.page) or not len(page):
            return node
        head = np.where(order >= HUGE_ORDER, page & ~_IN_BLOCK, page)
        found, at = self.find(head)
        same = found & ((order >= HUGE_ORDER) == (self.order[at] >= HUGE_ORDER))
        alive = same & (node >= 0)
        self.recorded[at[alive]] = node[alive]
        result = node.copy()
        result[same & (node >= -1)] = self.replayed[at[same & (node >= -1)]]
        gone = np.zeros(len(self.page), np.bool_)
        gone[at[same & (node < -1)]] = True
        resized = gone & False
        resized[at[found & ~same]] = True
        # Pages of a folio that is in pieces in the recording now.
        block, block_at = self.find(page & ~_IN_BLOCK)
        block &= (order < HUGE_ORDER) & (self.order[block_at] >= HUGE_ORDER)
        resized[block_at[block]] = True
        # Pieces that became a folio.
        heads = np.unique(head[order >= HUGE_ORDER])
        if len(heads):
            inside = np.isin(self.page & ~_IN_BLOCK, heads) & (self.order < HUGE_ORDER)
            resized |= inside
        self.resized += int(np.count_nonzero(resized))
        self._keep(~(gone | resized))
        return result

    def move(
        self,
        page: U64Array,
        order: U8Array,
        source: I16Array,
        dest: I16Array,
        *,
        recorded: bool,
    ) -> None:
        """Folios moved in the recording, or here; a key that comes twice counts last.

        Args:
            page: uint64[n] keys.
            order: uint8[n].
            source: int16[n] where the folios were in both worlds if they did not differ.
            dest: int16[n] where they are now.
            recorded: they moved in the recording.
        """
        if not len(page):
            return
        _, last = np.unique(page[::-1], return_index=True)
        last = len(page) - 1 - last
        page, order, source, dest = page[last], order[last], source[last], dest[last]
        found, at = self.find(page)
        (self.recorded if recorded else self.replayed)[at[found]] = dest[found]
        new = ~found
        keys = np.concatenate([self.page, page[new]])
        by_key = np.argsort(keys, kind="stable")
        here, there = (source, dest) if recorded else (dest, source)
        self.page = keys[by_key]
        self.order = np.concatenate([self.order, order[new]])[by_key]
        self.recorded = np.concatenate([self.recorded, there[new]])[by_key]
        self.replayed = np.concatenate([self.replayed, here[new]])[by_key]
        self._keep(np.ones(len(self.page), np.bool_))

    def forget(self, page: U64Array) -> None:
        """Folios are gone."""
        self._keep(~np.isin(self.page, page))

    def keep_ranges(self, target: int, ranges: Sequence[WatchedRange]) -> None:
        """As `HeatTable.keep_ranges`."""
        if not len(self.page):
            return
        start = np.array([each.start for each in ranges], np.uint64)
        end = np.array([each.end for each in ranges], np.uint64)
        vpn = vpn_of(self.page)
        at = np.searchsorted(start, vpn, side="right") - 1
        inside = at >= 0
        if len(end):
            inside &= vpn < end[np.maximum(at, 0)]
        self._keep((target_of(self.page) != target) | inside)

    def usage(self, recorded: Mapping[int, NodeUsage]) -> Mapping[int, NodeUsage]:
        """How full the nodes are here."""
        if not len(self.page):
            return recorded
        size = (np.int64(PAGE_SIZE) << self.order.astype(np.int64)).astype(np.float64)
        most = 1 + max(*recorded, int(self.recorded.max()), int(self.replayed.max()), 0)
        free = np.bincount(np.maximum(self.recorded, most * (self.recorded < 0)), size, most + 1)
        free -= np.bincount(np.maximum(self.replayed, most * (self.replayed < 0)), size, most + 1)
        return {
            node: replace(each, free_bytes=max(0, each.free_bytes + int(free[node])))
            for node, each in recorded.items()
        }

    def groups(self, recorded: Groups) -> Groups:
        """What groups of targets have on the nodes here."""
        if not len(self.page) or not len(recorded.of_target):
            return recorded
        size = np.int64(PAGE_SIZE) << self.order.astype(np.int64)
        target = target_of(self.page).astype(np.int64)
        known = target < len(recorded.of_target)
        group = np.full(len(target), -1, np.int64)
        group[known] = recorded.of_target[target[known]]
        resident = {}
        for node, held in recorded.resident.items():
            here = held.copy()
            for side, sign in ((self.recorded, -1), (self.replayed, 1)):
                own = (side == node) & (group >= 0)
                np.add.at(here, group[own], sign * size[own])
            resident[node] = np.maximum(here, 0)
        return replace(recorded, resident=resident)

    def _keep(self, chosen: BoolArray) -> None:
        chosen = chosen & (self.recorded != self.replayed)
        if not chosen.all():
            self.page, self.order = self.page[chosen], self.order[chosen]
            self.recorded, self.replayed = self.recorded[chosen], self.replayed[chosen]
