# SPDX-License-Identifier: Apache-2.0
"""A heat view over plain arrays: what recordings and tests give the policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tierd.core.pagekey import BoolArray, target_of
from tierd.hotness.view import PageSet
from tierd.policy import pageset


@dataclass
class ArrayHeat:
    """Answers from one `PageSet` of all tracked folios."""

    pages: PageSet

    def hottest(
        self, node: int, n: int, min_heat: float = 0.0, among: BoolArray | None = None
    ) -> PageSet:
        chosen = self._among(node, among)
        chosen = pageset.take(chosen, chosen.heat > min_heat)
        return pageset.take(chosen, np.argsort(-chosen.heat, kind="stable")[:n])

    def folios(
        self, node: int, n: int, min_heat: float = 0.0, among: BoolArray | None = None
    ) -> PageSet:
        found = self.hottest(node, len(self.pages), min_heat, among)
        return pageset.take(found, np.flatnonzero(found.order > 0)[:n])

    def coldest(self, node: int, n: int, among: BoolArray | None = None) -> PageSet:
        chosen = self._among(node, among)
        return pageset.take(chosen, np.argsort(chosen.heat, kind="stable")[:n])

    def least(self, node: int) -> float:
        return float(self._among(node, None).heat.min(initial=np.inf))

    def _among(self, node: int, among: BoolArray | None) -> PageSet:
        chosen = self.pages.node == node
        if among is not None:
            chosen &= among[target_of(self.pages.page).astype(np.int64)]
        return pageset.take(self.pages, chosen)

    def quantile(self, node: int, q: float) -> float:
        raise AssertionError("the watermark policy asks for no quantile")


def pages(*groups: tuple[int, float, int], order: int = 0, idle_s: float = np.inf) -> PageSet:
    """Folios from (count, heat, node) groups, page numbers ascending over all groups."""
    heat = np.concatenate([np.full(count, heat, np.float32) for count, heat, _ in groups])
    node = np.concatenate([np.full(count, node, np.int16) for count, _, node in groups])
    return PageSet(
        page=np.arange(len(heat), dtype=np.uint64) << np.uint64(order),
        heat=heat,
        node=node,
        order=np.full(len(heat), order, np.uint8),
        idle_s=np.full(len(heat), idle_s, np.float32),
    )
