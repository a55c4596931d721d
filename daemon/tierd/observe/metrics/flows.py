# SPDX-License-Identifier: Apache-2.0
"""What a report moved: between which tiers, and of which target. Arrays, no loops over pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tierd.core.migration import Direction, Fate, MigrationResult
from tierd.core.pagekey import target_of
from tierd.core.tiermap import TierMap


class Flow(NamedTuple):
    """Pages of 4 KiB that went from one tier to another; ranks, or -1 where unknown."""

    direction: Direction
    source: int
    dest: int
    pages: int


class TargetFlow(NamedTuple):
    """Pages of 4 KiB of one target that moved."""

    target: int
    direction: Direction
    pages: int


def ranks(tiers: TierMap) -> npt.NDArray[np.int64]:
    """int64[nodes + 1]: the tier's rank by node, -1 for nodes of no tier and for the last."""
    most = max((node for tier in tiers.tiers for node in tier.nodes), default=-1)
    table = np.full(most + 2, -1, np.int64)
    for tier in tiers.tiers:
        table[list(tier.nodes)] = tier.rank
    return table


def _moved(report: MigrationResult) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    done = report.fate == Fate.MOVED
    return done, np.int64(1) << report.plan.order[done].astype(np.int64)


def flows(report: MigrationResult, table: npt.NDArray[np.int64]) -> Iterator[Flow]:
    """What moved by direction and tiers; `table` is that of `ranks`."""
    done, pages = _moved(report)
    if not len(pages):
        return
    last = len(table) - 1

    def rank(node: npt.NDArray[np.int16]) -> npt.NDArray[np.int64]:
        known = (node >= 0) & (node < last)
        return table[np.where(known, node, last)]

    plan = report.plan
    side = int(table.max()) + 2
    key = plan.direction[done].astype(np.int64) * side + rank(plan.source[done]) + 1
    key = key * side + rank(plan.dest[done]) + 1
    sums = np.bincount(key, weights=pages)
    for code in np.flatnonzero(sums):
        rest, dest = divmod(int(code), side)
        direction, source = divmod(rest, side)
        yield Flow(Direction(direction), source - 1, dest - 1, int(sums[code]))


def flows_by_target(report: MigrationResult) -> Iterator[TargetFlow]:
    """What moved by target and direction."""
    done, pages = _moved(report)
    if not len(pages):
        return
    key = target_of(report.plan.page[done]).astype(np.int64) * len(Direction)
    key += report.plan.direction[done]
    codes, place = np.unique(key, return_inverse=True)
    sums = np.bincount(place, weights=pages)
    for code, count in zip(codes, sums, strict=True):
        target, direction = divmod(int(code), len(Direction))
        yield TargetFlow(target, Direction(direction), int(count))
