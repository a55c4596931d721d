# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF009 - option() and required() return dataclasses.field
"""[[rule]]: processes with shares and budgets of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tierd.config.matchers import KEYS, Matcher, Parser
from tierd.config.schema import ListOf, Optional, Section, option, required
from tierd.config.values import Flag, Share, Text, join, rate, unknown_key
from tierd.core.errors import ConfigError

MOST_RULES = 64


@dataclass(frozen=True, slots=True)
class MatcherKind:
    """A matcher tree (`tierd.config.matchers`); `empty` allows {}, every process."""

    empty: bool = False

    def parse(self, value: Any, path: str) -> Matcher:
        """The matcher."""
        parser = Parser(lambda key, where: unknown_key(key, KEYS, where))
        return parser.parse(value, path, empty=self.empty)

    def text(self, value: Any) -> Any:
        """The matcher's table."""
        return value.table()

    def describe(self) -> str:
        """The keys."""
        return f"matcher: table with {', '.join(KEYS)}"


@dataclass(frozen=True, slots=True)
class RuleConfig:
    """[[rule]]: what holds for the processes it matches, all of them together."""

    name: str = required(Text(), "Short name, unique; metrics and logs tell it.")
    match: Matcher = required(MatcherKind(), "Processes; the first rule that matches one counts.")
    deny: bool = option(Flag(), False, "Leave these processes alone.")
    fast_min: float = option(
        Share(), "0%", "Share of each tier but the slowest that is theirs before others get more."
    )
    fast_max: float = option(
        Share(), "100%", "Share of each tier but the slowest that they may take."
    )
    rate_limit_bytes_per_s: int | None = option(
        Optional(rate("4KiB/s", "1TB/s")),
        None,
        "Most bytes of theirs moved in a second, within the whole budget.",
    )

    def check(self, path: str) -> None:
        """Refuse values that contradict each other."""
        if self.fast_min > self.fast_max:
            raise ConfigError(join(path, "fast_min"), "must not be larger than fast_max")


@dataclass(frozen=True, slots=True)
class RulesKind:
    """The list of rules."""

    item: Section = Section(RuleConfig)

    def parse(self, value: Any, path: str) -> tuple[RuleConfig, ...]:
        """The rules, in their order."""
        rules: tuple[RuleConfig, ...] = ListOf(self.item, most=MOST_RULES).parse(value, path)
        names: set[str] = set()
        for index, each in enumerate(rules):
            where = f"{path}[{index}]"
            if each.name in names:
                raise ConfigError(join(where, "name"), f"two rules are called {each.name!r}")
            names.add(each.name)
        if (total := sum(each.fast_min for each in rules)) > 1:
            raise ConfigError(path, f"the rules' fast_min add up to {total:.0%}, more than all")
        return rules

    def text(self, value: Any) -> Any:
        """A list of tables."""
        return [self.item.text(each) for each in value]

    def describe(self) -> str:
        """What is in the list."""
        return "list of tables, below"
