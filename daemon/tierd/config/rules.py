# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF009 - option() and required() return dataclasses.field
"""[[rule]]: processes with shares and budgets of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tierd.config.matchers import KEYS, Matcher, Parser
from tierd.config.schema import ListOf, Optional, Section, option, required
from tierd.config.values import FLAG, Kind, Value, join, rate, share, size, text
from tierd.core.errors import ConfigError

MATCHER_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "Which processes are meant; several keys must all hold.",
    "additionalProperties": False,
    "properties": {
        "pid": {"type": "integer", "minimum": 1},
        "exe": {"type": "string", "minLength": 1},
        "cmdline": {"type": "string", "minLength": 1},
        "cgroup": {"type": "string", "pattern": "^/"},
        "uid": {"type": ["integer", "string"]},
        "min_rss": {"type": "string", "pattern": size("0B", "1TiB").schema["pattern"]},
        "all": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/matcher"}},
        "any": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/matcher"}},
        "not": {"$ref": "#/$defs/matcher"},
    },
}
"""What "#/$defs/matcher" is."""


def matcher(*, empty: bool = False) -> Value:
    """A matcher tree (`tierd.config.matchers`); `empty` allows {}, every process."""
    return Value(
        lambda value, path: Parser().parse(value, path, empty=empty),
        f"matcher: table with {', '.join(KEYS)}",
        {"$ref": "#/$defs/matcher"} | ({} if empty else {"minProperties": 1}),
        lambda value: value.table(),
    )


@dataclass(frozen=True, slots=True)
class RuleConfig:
    """[[rule]]: what holds for the processes it matches, all of them together."""

    name: str = required(text(), "Short name, unique; metrics and logs tell it.")
    match: Matcher = required(matcher(), "Processes; the first rule that matches one counts.")
    deny: bool = option(FLAG, False, "Leave these processes alone.")
    fast_min: float = option(
        share(), "0%", "Share of each tier but the slowest that is theirs before others get more."
    )
    fast_max: float = option(
        share(), "100%", "Share of each tier but the slowest that they may take."
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
class RulesKind(ListOf):
    """The list of rules."""

    item: Kind = Section(RuleConfig)
    most: int = 64

    def parse(self, value: Any, path: str) -> tuple[RuleConfig, ...]:
        """The rules, in their order."""
        rules: tuple[RuleConfig, ...] = ListOf.parse(self, value, path)
        names: set[str] = set()
        for index, each in enumerate(rules):
            if each.name in names:
                where = join(f"{path}[{index}]", "name")
                raise ConfigError(where, f"two rules are called {each.name!r}")
            names.add(each.name)
        if (total := sum(each.fast_min for each in rules)) > 1:
            raise ConfigError(path, f"the rules' fast_min add up to {total:.0%}, more than all")
        return rules

    @property
    def about(self) -> str:
        """What is in the list."""
        return "list of tables, below"
