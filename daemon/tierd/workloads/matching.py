# SPDX-License-Identifier: Apache-2.0
"""`Matching`: who is meant by a configuration's matchers, for the service and for its check."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tierd.config.model import TargetsConfig
from tierd.config.rules import RuleConfig
from tierd.core import bounds
from tierd.core.process import ProcessFacts
from tierd.workloads.procs import Stat


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
