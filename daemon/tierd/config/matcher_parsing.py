# SPDX-License-Identifier: Apache-2.0
"""Matchers from TOML tables, with every mistake reported by its path.

A watched process can choose its own arguments, so a regular expression must not
be able to take long: `_cost` bounds the work of a pattern when it is loaded, and
matching sees the first `CMDLINE_LIMIT` characters only.
"""

from __future__ import annotations

import posixpath
import pwd
import re
from collections.abc import Callable, Mapping
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any, Final

from tierd.config.matchers import (
    CMDLINE_LIMIT,
    All,
    AnyOf,
    Cgroup,
    Cmdline,
    Exe,
    Matcher,
    MinRss,
    Not,
    Pid,
    Uid,
    compiled,
)
from tierd.core import units
from tierd.core.errors import ConfigError

MAX_DEPTH: Final = 16
MAX_MATCHERS: Final = 256
_PATTERN_LIMIT: Final = 512
_COST_LIMIT: Final = 1 << 15


def _cost(parsed: Any) -> float:
    """Upper bound of the ways to match `parsed` at one place (backtracking work)."""
    total = 1.0
    for code, argument in parsed:
        total *= max(1.0, _item_cost(code, argument))
        if total > _COST_LIMIT:
            return float("inf")
    return total


def _item_cost(code: Any, argument: Any) -> float:
    if code in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN, sre.AT):
        return 1.0
    if code is sre.SUBPATTERN:
        return _cost(argument[3])
    if code is sre.BRANCH:
        return float(sum(_cost(part) for part in argument[1]))
    if code in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        low, high, body = argument
        ways = min(int(high), CMDLINE_LIMIT) - int(low) + 1
        body_cost = _cost(body)
        if body_cost == 1.0 and len(body) == 1:
            return float(max(ways, 1))
        if int(high) > 64:
            return float("inf")
        return float(ways) * max(body_cost, 1.0) ** int(high)
    return float("inf")  # look-around and back-references


def _check_pattern(pattern: str, path: str) -> None:
    if len(pattern) > _PATTERN_LIMIT:
        raise ConfigError(path, f"the regular expression is longer than {_PATTERN_LIMIT}")
    try:
        compiled(pattern)
        cost = _cost(sre_parser.parse(pattern))
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(path, f"not a regular expression: {error}") from None
    if cost > _COST_LIMIT:
        raise ConfigError(
            path,
            f"the regular expression {pattern[:60]!r} can take too long on a hostile command line",
            hint='use at most one ".*", no look-around or back-references, '
            "no repeated groups; combine several with all = [{cmdline=...}, {cmdline=...}]",
        )


def _parse_pid(value: Any, path: str) -> Matcher:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 1 << 22:
        raise ConfigError(path, f"must be a process id from 1 to {1 << 22}")
    return Pid(value)


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value or len(value) > 4096 or "\0" in value:
        raise ConfigError(path, "must be a text in quotes, not empty")
    return value


def _parse_exe(value: Any, path: str) -> Matcher:
    exe = _text(value, path)
    if "/" in exe and not exe.startswith("/"):
        raise ConfigError(
            path, f"{exe[:60]!r} is neither a base name nor a full path", hint='start it with "/"'
        )
    if exe.endswith("/"):
        raise ConfigError(path, f"{exe[:60]!r} is a folder, not an executable")
    return Exe(exe)


def _parse_cmdline(value: Any, path: str) -> Matcher:
    pattern = _text(value, path)
    _check_pattern(pattern, path)
    return Cmdline(pattern)


def _parse_cgroup(value: Any, path: str) -> Matcher:
    cgroup = _text(value, path)
    if not cgroup.startswith("/") or posixpath.normpath(cgroup).lstrip("/") != cgroup.strip("/"):
        raise ConfigError(
            path,
            f'{cgroup[:60]!r} is not a cgroup path such as "/system.slice/redis.service"',
            hint="paths start at the root of the cgroup v2 tree, without /sys/fs/cgroup",
        )
    return Cgroup(cgroup)


def _parse_uid(value: Any, path: str) -> Matcher:
    if isinstance(value, str) and value:
        try:
            return Uid(pwd.getpwnam(value).pw_uid, value)
        except (KeyError, ValueError, OSError):
            raise ConfigError(path, f"there is no user {value[:60]!r}") from None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise ConfigError(path, "must be a user name in quotes or a user id")
    return Uid(value, value)


def _parse_min_rss(value: Any, path: str) -> Matcher:
    if not isinstance(value, str):
        raise ConfigError(path, 'must be a size with its unit, for example "64MiB"')
    try:
        return MinRss(units.parse_size(value))
    except ValueError as error:
        raise ConfigError(path, str(error)) from None


_LEAVES: Final[Mapping[str, Callable[[Any, str], Matcher]]] = {
    "pid": _parse_pid,
    "exe": _parse_exe,
    "cmdline": _parse_cmdline,
    "cgroup": _parse_cgroup,
    "uid": _parse_uid,
    "min_rss": _parse_min_rss,
}
KEYS: Final = (*_LEAVES, "all", "any", "not")
"""The keys of a matcher table."""


class Parser:
    """Turns TOML tables into matchers; one parser counts all matchers of a configuration."""

    def __init__(self, unknown: Callable[[str, str], ConfigError]) -> None:
        """`unknown(key, path)` makes the error for a key that no matcher has."""
        self._unknown = unknown
        self._count = 0

    def parse(self, value: Any, path: str, depth: int = 0, *, empty: bool = False) -> Matcher:
        """The matcher of one table; an empty table matches all, where `empty` allows it.

        Raises:
            ConfigError: not a table, an unknown key, a bad value, or too many or too deep.
        """
        if not isinstance(value, dict):
            raise ConfigError(path, 'must be a table such as { exe = "redis-server" }')
        if not value and not empty:
            raise ConfigError(path, "an empty matcher would match every process")
        if depth > MAX_DEPTH:
            raise ConfigError(path, f"matchers are nested deeper than {MAX_DEPTH}")
        parts: list[Matcher] = []
        for key, raw in value.items():
            self._count += 1
            if self._count > MAX_MATCHERS:
                raise ConfigError(path, f"there are more than {MAX_MATCHERS} matchers")
            parts.append(self._one(key, raw, path, depth))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _one(self, key: str, raw: Any, path: str, depth: int) -> Matcher:
        where = f"{path}.{key}"
        if key in _LEAVES:
            return _LEAVES[key](raw, where)
        if key == "not":
            return Not(self.parse(raw, where, depth + 1))
        if key not in ("all", "any"):
            raise self._unknown(key, path)
        if not isinstance(raw, list) or not raw:
            raise ConfigError(where, "must be a list of matchers, not empty")
        inner = tuple(
            self.parse(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(raw)
        )
        return All(inner) if key == "all" else AnyOf(inner)
