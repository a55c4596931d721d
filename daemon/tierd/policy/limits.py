# SPDX-License-Identifier: Apache-2.0
"""Limits of a plan (`RateLimiter`), and of groups of targets: floors, caps and budgets.

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
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tierd.core.bounds import MAX_TARGETS
from tierd.core.migration import Fate, MigrationResult
from tierd.core.pagekey import PAGE_SIZE, BoolArray, I16Array, I64Array, target_of
from tierd.core.tuning import PACING, PRESSURE
from tierd.hotness.view import PageSet
from tierd.policy import pageset


@dataclass(frozen=True, slots=True)
class Pressure:
    """Signs that moving pages does harm, each a fraction from 0 to 1; 0 if not measured.

    Attributes:
        memory: of the last 10 s, in which some task stalled on memory (PSI "some").
        cpu: of the last 10 s, in which some task stalled on a CPU.
        ping_pong: of the pages moved recently, those that had moved within a minute before.
    """

    memory: float = 0.0
    cpu: float = 0.0
    ping_pong: float = 0.0


@dataclass(frozen=True, slots=True)
class Budget:
    """The migration budget of the next plan.

    Attributes:
        move_bytes: bytes that may change node, both directions together.
    """

    move_bytes: int


CALM = Pressure()
FAILURES = (Fate.BUSY, Fate.REFUSED, Fate.NO_ROOM, Fate.FAILED)


@dataclass(frozen=True, slots=True)
class RateLimiterSettings:
    """Bytes a second that may move, and the limits above which that is less.

    Attributes:
        failure_share: fraction of a target's moves that may fail before its rate is halved.
        most: pressure above which the rate is halved; 1 turns a limit off.
    """

    rate_bytes_per_s: int
    failure_share: float
    most: Pressure = field(default_factory=lambda: Pressure(1.0, 1.0, 1.0))

    def strained(self, pressure: Pressure) -> bool:
        """Whether any kind of pressure is above its limit."""
        return (
            pressure.memory > self.most.memory
            or pressure.cpu > self.most.cpu
            or pressure.ping_pong > self.most.ping_pong
        )


@dataclass(slots=True)
class _Account:
    """The moves of a target since it was last judged, and what that left it of the rate."""

    tried: int = 0
    failed: int = 0
    share: float = 1.0


class RateLimiter:
    """Makes the next plan's budget from the configured rate, pressure and targets' failures."""

    def __init__(self, settings: RateLimiterSettings) -> None:
        self._settings = settings
        self._accounts: dict[int, _Account] = {}
        self.in_force = 1.0
        """Fraction of the rate in force, which pressure makes smaller."""

    @property
    def shares(self) -> dict[int, float]:
        """Target number → fraction of the rate that its failures leave it, where that is not 1."""
        return {target: own.share for target, own in self._accounts.items() if own.share < 1.0}

    def configure(self, settings: RateLimiterSettings) -> None:
        """Use other settings from the next plan on; a back-off goes on."""
        self._settings = settings

    def next(self, elapsed_s: float, pressure: Pressure = CALM) -> Budget:
        """The budget of a plan, for `elapsed_s` seconds of the rate.

        Pressure above a limit halves the rate in force, down to an eighth, and pressure below all
        limits doubles it, up to the configured rate.
        """
        if self._settings.strained(pressure):
            self.in_force = max(PRESSURE.min_pressure_rate_fraction, self.in_force / 2)
        else:
            self.in_force = min(1.0, self.in_force * 2)
        return Budget(int(self._settings.rate_bytes_per_s * self.in_force * elapsed_s))

    def see(self, report: MigrationResult) -> None:
        """Take in what became of moves.

        More than the allowed failures of a target halve its share of the rate, fewer double it. Of
        other targets they say nothing: memory that cannot be moved is its owner's affair.
        """
        target = target_of(report.plan.page).astype(np.intp)
        tried = np.bincount(target[report.fate != Fate.NOT_TRIED])
        failed = np.bincount(target[np.isin(report.fate, FAILURES)], minlength=len(tried))
        concerned = {number for number in self._accounts if number < len(tried)}
        for number in concerned.union(np.flatnonzero(failed).tolist()):
            account = self._accounts.setdefault(number, _Account())
            account.tried += int(tried[number])
            account.failed += int(failed[number])
            if account.tried < PACING.few_pages:
                continue
            if account.failed > self._settings.failure_share * account.tried:
                account.share = max(PRESSURE.min_rate_fraction, account.share / 2)
            else:
                account.share = min(1.0, account.share * 2)
            account.tried = account.failed = 0
            if account.share == 1.0:
                del self._accounts[number]

    def limits(self, budget: Budget) -> dict[int, int]:
        """Target number → 4 KiB pages of it that may move, of targets with failures."""
        pages = budget.move_bytes // PAGE_SIZE
        return {target: max(1, int(pages * share)) for target, share in self.shares.items()}

    def forget(self, target: int) -> None:
        """A target ended: its number may be another's from now on."""
        self._accounts.pop(target, None)


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
    """The state of the groups within one decision, by `moved`; `capacity`: bytes by node."""

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
