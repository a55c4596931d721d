# SPDX-License-Identifier: Apache-2.0
"""The bytes that each target has on each node, and the groups that rules make of targets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tierd.config.rules import RuleConfig
from tierd.core.migration import MigrationResult, U8Array
from tierd.core.pagekey import HUGE_BYTES, PAGE_SIZE, I16Array, I64Array
from tierd.migration.results import flows
from tierd.policy.limits import NO_LIMIT, Groups


class ResidentBytes:
    """Bytes of each target by node: the last complete residency scan, and moves since then."""

    def __init__(self) -> None:
        self._whole: dict[int, dict[int, int]] = {}
        self._counting: dict[int, dict[int, int]] = {}

    def begin(self, number: int) -> None:
        """A residency scan of a target begins."""
        self._counting[number] = {}

    def count(self, number: int, node: I16Array, order: U8Array) -> None:
        """Folios that the scan found: node int16[n], order uint8[n]."""
        counting = self._counting.setdefault(number, {})
        known = node >= 0
        size = np.int64(PAGE_SIZE) << order[known].astype(np.int64)
        for each, amount in enumerate(np.bincount(node[known], size)):
            if amount:
                counting[each] = counting.get(each, 0) + int(amount)

    def finish(self, number: int) -> None:
        """The scan is complete: its sums replace the ones before."""
        self._whole[number] = self._counting.pop(number, {})

    def moved(self, report: MigrationResult) -> None:
        """Apply the moves of a report."""
        went = flows(report)
        left = [(number, source, -size) for number, source, _, size in went if source >= 0]
        for number, node, size in left + [(number, dest, size) for number, _, dest, size in went]:
            for counts in (self._whole.get(number), self._counting.get(number)):
                if counts is not None:
                    counts[node] = max(0, counts.get(node, 0) + size)

    def forget(self, number: int) -> None:
        """The target ended."""
        self._whole.pop(number, None)
        self._counting.pop(number, None)

    def total(self) -> dict[int, int]:
        """Node → bytes of all targets."""
        every: dict[int, int] = {}
        for number in self._whole.keys() | self._counting.keys():
            for node, size in self.of(number).items():
                every[node] = every.get(node, 0) + size
        return every

    def of(self, number: int) -> Mapping[int, int]:
        """Node → bytes; before the first complete scan, what it has found so far."""
        return self._whole.get(number, self._counting.get(number, {}))


class Shares:
    """The groups of the rules, and the budgets that they have left.

    Args:
        rules: in their order; a target's rule is an index into them.
    """

    def __init__(self, rules: Sequence[RuleConfig]) -> None:
        self._rules = tuple(rules)
        self._saved = np.array([float(_burst(rule)) for rule in rules])

    def groups(
        self,
        rule_of: Mapping[int, int],
        resident_bytes: ResidentBytes,
        elapsed_s: float,
        strained: Collection[int] = (),
        strained_bytes: int = NO_LIMIT,
    ) -> Groups | None:
        """The groups now; None without rules and strain.

        Args:
            rule_of: target number → index of its rule, -1 for none.
            elapsed_s: seconds since the last call, for which groups get budget.
            strained: targets whose control groups are under pressure. All targets of a rule
                slow down together; those without a rule are one more group.
            strained_bytes: the most that a group with such targets may move.
        """
        if not self._rules and not strained:
            return None
        # Targets may name a rule that a reload has removed, until they are refreshed.
        known = len(self._rules)
        rule_of = {number: rule if rule < known else -1 for number, rule in rule_of.items()}
        slowed = {rule_of.get(number, -1) for number in strained}
        count = len(self._rules) + (-1 in slowed)
        of_target = np.full(max(rule_of, default=-1) + 1, -1, np.int16)
        resident: dict[int, I64Array] = {}
        for number, rule in rule_of.items():
            group = len(self._rules) if rule < 0 and number in strained else rule
            of_target[number] = group
            if group >= 0:
                for node, size in resident_bytes.of(number).items():
                    on = resident.setdefault(node, np.zeros(count, np.int64))
                    on[group] += size
        budget = self._budgets(count, elapsed_s)
        for group in slowed:  # -1 (no rule) is the last group
            budget[group] = min(int(budget[group]), strained_bytes)
        others = count - len(self._rules)
        return Groups(
            of_target=of_target,
            floor=np.array([rule.fast_min for rule in self._rules] + [0.0] * others),
            cap=np.array([rule.fast_max for rule in self._rules] + [1.0] * others),
            budget=budget,
            resident=resident,
        )

    def _budgets(self, count: int, elapsed_s: float) -> I64Array:
        """Bytes that each of `count` groups may move now by its rule's rate."""
        budget = np.full(count, NO_LIMIT, np.int64)
        for index, rule in enumerate(self._rules):
            if rule.rate_limit_bytes_per_s is not None:
                saved = self._saved[index] + rule.rate_limit_bytes_per_s * elapsed_s
                self._saved[index] = min(saved, _burst(rule))
                budget[index] = max(0, int(self._saved[index]))
        return budget

    def spent(self, rule_of: Mapping[int, int], report: MigrationResult) -> None:
        """Subtract what was moved from the groups' budgets."""
        if not self._rules:
            return
        for number, _, _, size in flows(report):
            rule = rule_of.get(number, -1)
            if rule >= 0:
                self._saved[rule] -= float(size)


def _burst(rule: RuleConfig) -> int:
    return max(rule.rate_limit_bytes_per_s or 0, 2 * HUGE_BYTES)
