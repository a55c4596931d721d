# SPDX-License-Identifier: Apache-2.0
"""Which processes are meant: matchers, read from TOML tables, combined with all, any and not.

In TOML a matcher is a table. Its keys: `pid`, `exe` (full path or base name),
`cmdline` (regular expression, searched in the arguments joined by spaces),
`cgroup` (path or glob, with everything below it), `uid` (number or user name),
`min_rss` (size), `all` and `any` (lists of matchers) and `not` (one matcher).
Several keys in one table must all hold. Every mistake is reported by its path.

A watched process can choose its own arguments, so a regular expression must not
be able to take long: `_cost` bounds the work of a pattern when it is loaded, and
matching sees the first `CMDLINE_LIMIT` characters only.
"""

from __future__ import annotations

import fnmatch
import functools
import posixpath
import pwd
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, Final, Protocol

from tierd.config.values import unknown_key
from tierd.core import units
from tierd.core.errors import ConfigError, UnjudgeableError

if TYPE_CHECKING:
    from tierd.core.process import ProcessFacts

CMDLINE_LIMIT: Final = 4096
"""Characters of a command line that are looked at."""
MAX_DEPTH: Final = 16
MAX_MATCHERS: Final = 256
_PATTERN_LIMIT: Final = 512
_COST_LIMIT: Final = 1 << 15


class Matcher(Protocol):
    """A predicate over processes that can be written back to TOML."""

    def matches(self, process: ProcessFacts) -> bool:
        """Whether the process is meant.

        Raises:
            TargetGoneError: the process ended before what is asked of it was read.
            UnjudgeableError: it depends on what cannot be known from here.
        """
        ...

    def table(self) -> dict[str, Any]:
        """The matcher as a TOML table."""
        ...


@dataclass(frozen=True, slots=True)
class Fact:
    """A matcher of one key that asks for one fact about a process.

    Attributes:
        shown: the value as it was written in TOML.
    """

    key: str
    value: Any
    shown: Any

    def matches(self, process: ProcessFacts) -> bool:
        """Whether the fact is as the value says."""
        return _FACTS[self.key][1](process, self.value)

    def table(self) -> dict[str, Any]:
        """The matcher as a TOML table."""
        return {self.key: self.shown}


@dataclass(frozen=True, slots=True)
class Combined:
    """Matchers put together.

    Attributes:
        key: "all": every part matches (without parts every process does, `match = {}`);
            "any": at least one does; "not": none does.
        parts: asked in order, as far as the answer needs it; of "not" there is one.
    """

    key: str
    parts: tuple[Matcher, ...] = ()

    def matches(self, process: ProcessFacts) -> bool:
        """Whether the process is meant."""
        unknown: UnjudgeableError | None = None
        decisive = self.key != "all"
        for part in self.parts:
            try:
                if part.matches(process) is decisive:
                    return self.key == "any"
            except UnjudgeableError as error:
                unknown = error
        if unknown is not None:
            raise unknown
        return self.key != "any"

    def table(self) -> dict[str, Any]:
        """The matcher as a TOML table; the empty one stands for every process."""
        tables = [part.table() for part in self.parts]
        if self.key == "not":
            return {"not": tables[0]}
        return {self.key: tables} if tables else {}


def _has_exe(process: ProcessFacts, wanted: str) -> bool:
    """Compares /proc/PID/exe, never the name that the process gave itself."""
    exe = process.exe
    return exe == wanted or ("/" not in wanted and exe.rpartition("/")[2] == wanted)


# A cgroup can change at any time, so it is compared at each refresh; hardly ever it has.
@functools.lru_cache(maxsize=1024)
def within_cgroup(path: str, pattern: str) -> bool:
    """Whether a cgroup's path is that of the pattern, or below it.

    `*`, `?` and `[...]` of the pattern match within one part of the path.
    """
    found, wanted = _parts(path), _parts(pattern)
    return len(found) >= len(wanted) and all(map(fnmatch.fnmatchcase, found, wanted))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """The pattern; `.` matches newlines too, so that an argument with one hides nothing."""
    return re.compile(pattern, re.DOTALL)


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
        _compiled(pattern)
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


def _parse_pid(value: Any, path: str) -> tuple[Any, Any]:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 1 << 22:
        raise ConfigError(path, f"must be a process id from 1 to {1 << 22}")
    return value, value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value or len(value) > 4096 or "\0" in value:
        raise ConfigError(path, "must be a text in quotes, not empty")
    return value


def _parse_exe(value: Any, path: str) -> tuple[Any, Any]:
    exe = _text(value, path)
    if "/" in exe and not exe.startswith("/"):
        raise ConfigError(
            path, f"{exe[:60]!r} is neither a base name nor a full path", hint='start it with "/"'
        )
    if exe.endswith("/"):
        raise ConfigError(path, f"{exe[:60]!r} is a folder, not an executable")
    return exe, exe


def _parse_cmdline(value: Any, path: str) -> tuple[Any, Any]:
    pattern = _text(value, path)
    _check_pattern(pattern, path)
    return pattern, pattern


def _parse_cgroup(value: Any, path: str) -> tuple[Any, Any]:
    cgroup = _text(value, path)
    if not cgroup.startswith("/") or posixpath.normpath(cgroup).lstrip("/") != cgroup.strip("/"):
        raise ConfigError(
            path,
            f'{cgroup[:60]!r} is not a cgroup path such as "/system.slice/redis.service"',
            hint="paths start at the root of the cgroup v2 tree, without /sys/fs/cgroup",
        )
    return cgroup, cgroup


def _parse_uid(value: Any, path: str) -> tuple[Any, Any]:
    if isinstance(value, str) and value:
        try:
            return pwd.getpwnam(value).pw_uid, value
        except (KeyError, ValueError, OSError):
            raise ConfigError(path, f"there is no user {value[:60]!r}") from None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise ConfigError(path, "must be a user name in quotes or a user id")
    return value, value


def _parse_min_rss(value: Any, path: str) -> tuple[Any, Any]:
    if not isinstance(value, str):
        raise ConfigError(path, 'must be a size with its unit, for example "64MiB"')
    try:
        size = units.parse_size(value)
        return size, units.size_text(size)
    except ValueError as error:
        raise ConfigError(path, str(error)) from None


_Read = Callable[[Any, str], tuple[Any, Any]]
"""Takes a TOML value and its path to the value to compare with and the one to show.

Raises ConfigError.
"""
_Test = Callable[["ProcessFacts", Any], bool]

_FACTS: Final[Mapping[str, tuple[_Read, _Test]]] = {
    "pid": (_parse_pid, lambda process, pid: process.pid == pid),
    "exe": (_parse_exe, _has_exe),
    "cmdline": (
        _parse_cmdline,
        lambda process, pattern: bool(_compiled(pattern).search(process.cmdline[:CMDLINE_LIMIT])),
    ),
    "cgroup": (_parse_cgroup, lambda process, path: within_cgroup(process.cgroup, path)),
    "uid": (_parse_uid, lambda process, uid: process.uid == uid),
    "min_rss": (_parse_min_rss, lambda process, size: process.rss_bytes >= size),
}
KEYS: Final = (*_FACTS, "all", "any", "not")
"""The keys of a matcher table."""


class Parser:
    """Turns TOML tables into matchers; one parser counts all matchers of a configuration."""

    def __init__(self) -> None:
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
        return parts[0] if len(parts) == 1 else Combined("all", tuple(parts))

    def _one(self, key: str, raw: Any, path: str, depth: int) -> Matcher:
        where = f"{path}.{key}"
        if key in _FACTS:
            return Fact(key, *_FACTS[key][0](raw, where))
        if key == "not":
            return Combined("not", (self.parse(raw, where, depth + 1),))
        if key not in ("all", "any"):
            raise unknown_key(key, KEYS, path)
        if not isinstance(raw, list) or not raw:
            raise ConfigError(where, "must be a list of matchers, not empty")
        inner = tuple(
            self.parse(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(raw)
        )
        return Combined(key, inner)
