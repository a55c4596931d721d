# SPDX-License-Identifier: Apache-2.0
"""Limits of groups of targets in fast memory: floors, caps and migration budgets.

A group is all processes that one [[rule]] matches. Its floor and cap are fractions of a tier, and
hold for each tier but the slowest:

- Its pages leave a tier only while it has more there than its floor. While it has less, its warm
  pages are promoted first.
- Its pages are promoted only while it has less there than its cap. What exceeds the cap is demoted,
  coldest first. At the cap a hotter page still replaces a colder one of the group.
- In a tick no more of its bytes are moved than its own budget, both directions together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tierd.core.migration import I16Array
from tierd.core.pagekey import MAX_TARGETS, target_of
from tierd.hotness.view import PageSet
from tierd.policy import pageset
from tierd.policy.pageset import I64Array

BoolArray = npt.NDArray[np.bool_]
NO_LIMIT = np.iinfo(np.int64).max
"""The budget of a group that has no limit."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups in one tick.

    Attributes:
        of_target: int16[targets] group of each target number, -1 for none; numbers beyond
            the array have none.
        floor: float64[groups] fractions of a tier, 0 to 1.
        cap: float64[groups] fractions of a tier, at least the floor.
        budget: int64[groups] bytes that may move in this tick, or `NO_LIMIT`.
        resident: node → int64[groups] bytes of the groups on it.
    """

    of_target: I16Array
    floor: npt.NDArray[np.float64]
    cap: npt.NDArray[np.float64]
    budget: I64Array
    resident: Mapping[int, I64Array]

    def __len__(self) -> int:
        return len(self.floor)


def within(group: I16Array, size: I64Array, space: I64Array) -> BoolArray:
    """Which pages fit, bool[n]: the first ones of each group whose sum is within its space.

    Args:
        group: int16[n] groups, -1 for pages without a limit.
        size: int64[n] bytes.
        space: int64[groups] bytes.
    """
    fits = np.ones(len(group), np.bool_)
    limited = np.flatnonzero(group >= 0)
    if not len(limited):
        return fits
    limited = limited[np.argsort(group[limited], kind="stable")]
    of = group[limited]
    sums = np.cumsum(size[limited])
    first = np.flatnonzero(np.concatenate([[True], of[1:] != of[:-1]]))
    before = sums[first] - size[limited][first]
    lengths = np.diff(np.append(first, len(of)))
    fits[limited] = sums - np.repeat(before, lengths) <= space[of]
    return fits


class Fairness:
    """The state of the groups within one decision; `moved` updates it.

    Args:
        groups: as they are before the decision.
        capacity: node → bytes of memory.
    """

    def __init__(self, groups: Groups, capacity: Mapping[int, int]) -> None:
        self._groups = groups
        self._capacity = capacity
        none = np.zeros(len(groups), np.int64)
        self._resident = {
            node: groups.resident.get(node, none).astype(np.int64) for node in capacity
        }
        self._left = groups.budget.astype(np.int64)

    def __len__(self) -> int:
        return len(self._groups)

    def group_of(self, pages: PageSet) -> I16Array:
        """Groups, int16[n], of pages; -1 for none."""
        known = self._groups.of_target
        target = target_of(pages.page).astype(np.int64)
        group = np.full(len(target), -1, np.int16)
        listed = target < len(known)
        group[listed] = known[target[listed]]
        return group

    def targets(self, groups: set[int], *, inside: bool) -> BoolArray:
        """Targets, bool[MAX_TARGETS], in one of `groups` (`inside`), or in none of them."""
        chosen = np.full(MAX_TARGETS, not inside, np.bool_)
        known = self._groups.of_target
        chosen[: len(known)] = np.isin(known, list(groups)) == inside
        return chosen

    def may_enter(self, pages: PageSet, nodes: Sequence[int]) -> BoolArray:
        """Which of `pages`, best first, may be promoted into the tier of `nodes`, bool[n]."""
        return within(self.group_of(pages), pageset.sizes(pages), self.space(nodes))

    def space(self, nodes: Sequence[int]) -> I64Array:
        """Bytes, int64[groups], that caps and budgets admit into the tier of `nodes`."""
        space: I64Array = self._limit(self._groups.cap, nodes) - self._on(nodes)
        return space.clip(max=self._left)

    def may_move(self, pages: PageSet) -> BoolArray:
        """Which of `pages`, best first, may move within their groups' budgets, bool[n]."""
        return within(self.group_of(pages), pageset.sizes(pages), self._left)

    def may_leave(self, pages: PageSet, nodes: Sequence[int]) -> BoolArray:
        """Which of `pages`, coldest first, may leave the tier of `nodes`, bool[n]."""
        space = np.minimum(self._on(nodes) - self._limit(self._groups.floor, nodes), self._left)
        return within(self.group_of(pages), pageset.sizes(pages), space)

    def over_cap(self, nodes: Sequence[int]) -> I64Array:
        """Bytes, int64[groups], of groups in the tier of `nodes` above their caps."""
        excess = self._on(nodes) - self._limit(self._groups.cap, nodes)
        return excess.clip(min=0)

    def below_floor(self, nodes: Sequence[int]) -> I64Array:
        """Bytes, int64[groups], that groups lack in the tier of `nodes`."""
        lack = self._limit(self._groups.floor, nodes) - self._on(nodes)
        return lack.clip(min=0)

    @property
    def capped(self) -> list[int]:
        """Groups that have a cap."""
        return [int(g) for g in np.flatnonzero(self._groups.cap < 1.0)]

    def moved(self, pages: PageSet, dest: I16Array) -> None:
        """Count planned moves of `pages` to the nodes `dest`, int16[n]."""
        group = self.group_of(pages)
        size = pageset.sizes(pages)
        listed = group >= 0
        if not listed.any():
            return
        for node in self._resident:
            for on, sign in ((dest, 1), (pages.node, -1)):
                here = listed & (on == node)
                self._resident[node] += sign * self._sums(group[here], size[here])
        spent = self._sums(group[listed], size[listed])
        self._left = np.where(self._left == NO_LIMIT, NO_LIMIT, self._left - spent)

    def _sums(self, group: I16Array, size: I64Array) -> I64Array:
        sums = np.zeros(len(self), np.int64)
        np.add.at(sums, group, size)
        return sums

    def _on(self, nodes: Sequence[int]) -> I64Array:
        known = [self._resident[node] for node in nodes if node in self._resident]
        return np.sum(known, axis=0, dtype=np.int64) if known else np.zeros(len(self), np.int64)

    def _limit(self, share: npt.NDArray[np.float64], nodes: Sequence[int]) -> I64Array:
        capacity = sum(self._capacity.get(node, 0) for node in nodes)
        limit = (share * capacity).astype(np.int64)
        # A fraction of 1 is no limit, even where a group holds more than the node reports.
        limit[share >= 1.0] = NO_LIMIT // 2
        return limit
