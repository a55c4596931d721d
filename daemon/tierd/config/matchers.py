# SPDX-License-Identifier: Apache-2.0
"""Which processes are meant: matchers, combined with all, any and not.

In TOML a matcher is a table. Its keys: `pid`, `exe` (full path or base name),
`cmdline` (regular expression, searched in the arguments joined by spaces),
`cgroup` (path or glob, with everything below it), `uid` (number or user name),
`min_rss` (size), `all` and `any` (lists of matchers) and `not` (one matcher).
Several keys in one table must all hold.

`tierd.config.matcher_parsing` reads them.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tierd.core import units

CMDLINE_LIMIT: Final = 4096
"""Characters of a command line that are looked at."""


class Facts(Protocol):
    """What a matcher may ask about a process; each is read when it is asked for.

    Any of them may raise TargetGoneError.
    """

    @property
    def pid(self) -> int:
        """Process id."""
        ...

    @property
    def rss_bytes(self) -> int:
        """Resident memory."""
        ...

    @property
    def exe(self) -> str:
        """Path of the executable, undecodable bytes as surrogate escapes."""
        ...

    @property
    def cmdline(self) -> str:
        """Arguments joined by spaces, at most `CMDLINE_LIMIT` characters."""
        ...

    @property
    def cgroup(self) -> str:
        """Path in the cgroup v2 tree, "/" for its root."""
        ...

    @property
    def uid(self) -> int:
        """Effective user id."""
        ...


class Matcher(Protocol):
    """A predicate over processes that can be written back to TOML."""

    def matches(self, process: Facts) -> bool:
        """Whether the process is meant."""
        ...

    def table(self) -> dict[str, Any]:
        """The matcher as a TOML table."""
        ...


@dataclass(frozen=True, slots=True)
class Pid:
    """One process id."""

    pid: int

    def matches(self, process: Facts) -> bool:
        """Same number."""
        return process.pid == self.pid

    def table(self) -> dict[str, Any]:
        """As TOML."""
        return {"pid": self.pid}


@dataclass(frozen=True, slots=True)
class Exe:
    """An executable: the full path when the text has a slash, else the base name."""

    exe: str

    def matches(self, process: Facts) -> bool:
        """The target of /proc/PID/exe, never the name the process gave itself."""
        exe = process.exe
        return exe == self.exe or ("/" not in self.exe and exe.rpartition("/")[2] == self.exe)

    def table(self) -> dict[str, Any]:
        """As TOML."""
        return {"exe": self.exe}


@functools.lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern of `Cmdline`, compiled once."""
    return re.compile(pattern, re.DOTALL)


@dataclass(frozen=True, slots=True)
class Cmdline:
    """A regular expression found anywhere in the arguments joined by spaces."""

    pattern: str

    def matches(self, process: Facts) -> bool:
        """`.` matches newlines too, so that an argument with one hides nothing."""
        return compiled(self.pattern).search(process.cmdline[:CMDLINE_LIMIT]) is not None

    def table(self) -> dict[str, Any]:
        """As TOML."""
        return {"cmdline": self.pattern}


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A cgroup and everything below it; `*`, `?` and `[...]` match within one path part."""

    path: str

    def matches(self, process: Facts) -> bool:
        """Compare part by part, as many as the pattern has."""
        return _within(process.cgroup, self.path)

    def table(self) -> dict[str, Any]:
        """As TOML."""
        return {"cgroup": self.path}


# A cgroup can change at any time, so it is compared at each refresh; hardly ever it has.
@functools.lru_cache(maxsize=1024)
def _within(path: str, pattern: str) -> bool:
    """Whether a cgroup's path is that of the pattern, or below it."""
    found, wanted = _parts(path), _parts(pattern)
    return len(found) >= len(wanted) and all(map(fnmatch.fnmatchcase, found, wanted))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


@dataclass(frozen=True, slots=True)
class Uid:
    """The effective user; `shown` is the number or the name as it was written."""

    uid: int
    shown: int | str

    def matches(self, process: Facts) -> bool:
        """Same effective user id."""
        return process.uid == self.uid

    def table(self) -> dict[str, Any]:
        """As TOML."""
        return {"uid": self.shown}


@dataclass(frozen=True, slots=True)
class MinRss:
    """At least so much resident memory."""

    rss_bytes: int

    def matches(self, process: Facts) -> bool:
        """Resident memory now."""
        return process.rss_bytes >= self.rss_bytes

    def table(self) -> dict[str, Any]:
        """As TOML."""
        return {"min_rss": units.size_text(self.rss_bytes)}


@dataclass(frozen=True, slots=True)
class All:
    """Every part matches; without parts every process does (`match = {}`)."""

    parts: tuple[Matcher, ...] = ()

    def matches(self, process: Facts) -> bool:
        """Stops at the first that does not."""
        return all(part.matches(process) for part in self.parts)

    def table(self) -> dict[str, Any]:
        """As TOML; the empty table stands for every process."""
        return {"all": [part.table() for part in self.parts]} if self.parts else {}


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part matches."""

    parts: tuple[Matcher, ...]

    def matches(self, process: Facts) -> bool:
        """Stops at the first that does."""
        return any(part.matches(process) for part in self.parts)

    def table(self) -> dict[str, Any]:
        """As TOML."""
        return {"any": [part.table() for part in self.parts]}


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not match."""

    part: Matcher

    def matches(self, process: Facts) -> bool:
        """The opposite."""
        return not self.part.matches(process)

    def table(self) -> dict[str, Any]:
        """As TOML."""
        return {"not": self.part.table()}


EVERYTHING: Final = All()
