# SPDX-License-Identifier: Apache-2.0
"""What a watched process is, who is meant by matchers, and the numbers that page keys carry."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tierd.config.model import TargetsConfig
from tierd.config.rules import RuleConfig
from tierd.core import bounds
from tierd.core.bounds import MAX_TARGETS
from tierd.core.process import ProcessFacts
from tierd.workloads.procs import Stat


@dataclass(frozen=True, slots=True)
class Target:
    """A watched process.

    Attributes:
        number: what page keys carry, 0 to 65535.
        start_time: clock ticks since boot.
        pidfd: descriptor of the process, owned by the registry.
        comm: its name at the last refresh; chosen by the process, for people only.
        rule: index of the first rule that matched it at the last refresh, -1 for none.
        activity: `Stat.activity` at the last refresh. While it stays the same, cgroup and
            uid are not read anew.
    """

    number: int
    pid: int
    start_time: int
    pidfd: int
    comm: str
    cgroup: str
    uid: int
    rss_bytes: int
    rule: int = -1
    activity: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetChanges:
    """What one refresh changed. A process that executed a program is in both."""

    started: tuple[Target, ...] = ()
    ended: tuple[Target, ...] = ()


class Numbers:
    """Numbers from 0 to `MAX_TARGETS` - 1, the longest free first once all were in use.

    A number that was in use is handed out again only after `release`.
    """

    def __init__(self) -> None:
        self._unused = 0
        self._free: deque[int] = deque()
        self.unreleased: set[int] = set()
        """What `retire` took, and was not released yet."""

    def take(self) -> int | None:
        """A free number; None if there is none."""
        if self._free:
            return self._free.popleft()
        if self._unused < MAX_TARGETS:
            self._unused += 1
            return self._unused - 1
        return None

    def give_back(self, number: int) -> None:
        """Return a number that was taken and not used; it is the next to be taken."""
        self._free.appendleft(number)

    def retire(self, number: int) -> None:
        """Set aside the number of a target that ended: it may still stand in page keys."""
        self.unreleased.add(number)

    def release(self, number: int) -> None:
        """Let a retired number be taken again, as no page key has it any more.

        Raises:
            KeyError: it was not retired.
        """
        self.unreleased.remove(number)
        self._free.append(number)


class Matching:
    """`targets.match`, `targets.deny` and the rules, asked together."""

    def __init__(self, config: TargetsConfig, rules: Sequence[RuleConfig] = ()) -> None:
        """Keep the matchers."""
        self._config = config
        self._rules = tuple(rules)

    def rule_of(self, process: ProcessFacts) -> int | None:
        """Index of the rule of a process that is to be watched, -1 for none; None if it is not.

        Raises:
            TargetGoneError: the process ended meanwhile, or is not answered about.
            UnjudgeableError: the answer depends on what cannot be known. The process is left alone
                then: a deny or a rule that cannot be evaluated counts as a deny.
        """
        if any(deny.matches(process) for deny in self._config.deny):
            return None
        rule = self.first_rule(process)
        if rule >= 0 and self._rules[rule].deny:
            return None
        return rule if self._config.match.matches(process) else None

    def first_rule(self, process: ProcessFacts) -> int:
        """Index of the first rule that matches, -1 for none; raises as `rule_of` does."""
        for index, rule in enumerate(self._rules):
            if rule.match.matches(process):
                return index
        return -1


def descends(pid: int, own: Collection[int], stats: Mapping[int, Stat]) -> bool:
    """Whether a process is one of `own` or was started by one, by the readings `stats`."""
    for _ in range(bounds.PARENTS):
        if pid in own:
            return True
        stat = stats.get(pid)
        if stat is None:
            return False
        pid = stat.ppid
    return False
