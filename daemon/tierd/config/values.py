# SPDX-License-Identifier: Apache-2.0
"""Kinds of single configuration values: how each is parsed, bounded, described and printed.

A kind turns a TOML value into a Python value or raises ConfigError naming the
dotted path of the key. `Kind.text` is its inverse: a value that parses back to
the same thing.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from tierd.core import units
from tierd.core.errors import ConfigError


class Kind(Protocol):
    """One kind of value."""

    def parse(self, value: Any, path: str) -> Any:
        """The Python value of a TOML value.

        Raises:
            ConfigError: wrong type, unit or range; `path` is in it.
        """
        ...

    def text(self, value: Any) -> Any:
        """The TOML value (str, int, float, bool, list, dict) that parses to `value`."""
        ...

    def describe(self) -> str:
        """The type and the range in a few words, for documentation."""
        ...


def join(path: str, key: str) -> str:
    """The dotted path of `key` in `path`; keys that are not bare are quoted."""
    bare = key and all(c.isascii() and (c.isalnum() or c in "_-") for c in key)
    shown = key if bare else repr(shorten(key))
    return f"{path}.{shown}" if path else shown


def shorten(text: str, limit: int = 60) -> str:
    """`text`, cut to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def show_value(value: Any) -> str:
    """A TOML value as an error message quotes it: on one line, and never long."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 200:
        return "a huge integer"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return shorten(repr(value))


def unknown_key(key: str, known: Iterable[str], path: str) -> ConfigError:
    """The error for a key that does not exist; names the nearest that does."""
    names = sorted(known)
    near = difflib.get_close_matches(key[:100], names, n=1, cutoff=0.5)
    if near:
        return ConfigError(join(path, key), "unknown key", hint=f"did you mean {near[0]!r}?")
    hint = f"known keys here: {', '.join(names)}" if names else ""
    return ConfigError(join(path, key), "unknown key", hint=hint)


@dataclass(frozen=True, slots=True)
class Text:
    """A non-empty string, or with `choices` one of them."""

    choices: tuple[str, ...] = ()

    def parse(self, value: Any, path: str) -> str:
        """The string itself."""
        if not isinstance(value, str) or not value:
            raise ConfigError(path, f"must be a text in quotes, not {show_value(value)}")
        if self.choices and value not in self.choices:
            near = difflib.get_close_matches(value[:100], self.choices, n=1)
            hint = f"did you mean {near[0]!r}?" if near else ""
            raise ConfigError(
                path, f"{show_value(value)} is not one of {', '.join(self.choices)}", hint=hint
            )
        return value

    def text(self, value: Any) -> Any:
        """The string itself."""
        return str(value)

    def describe(self) -> str:
        """The choices."""
        return f"one of {', '.join(self.choices)}" if self.choices else "text"


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""

    def parse(self, value: Any, path: str) -> bool:
        """The bool."""
        if not isinstance(value, bool):
            raise ConfigError(path, f"must be true or false, not {show_value(value)}")
        return value

    def text(self, value: Any) -> Any:
        """The bool itself."""
        return value

    def describe(self) -> str:
        """The type."""
        return "true or false"


@dataclass(frozen=True, slots=True)
class Number:
    """An integer, or with `whole=False` any number, from `low` to `high`."""

    low: float
    high: float
    whole: bool = True

    def parse(self, value: Any, path: str) -> int | float:
        """An int when `whole`, else a float."""
        kinds = (int,) if self.whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            what = "a whole number" if self.whole else "a number"
            raise ConfigError(path, f"must be {what} without quotes, not {show_value(value)}")
        if not self.low <= value <= self.high:
            raise ConfigError(
                path, f"{show_value(value)} is not between {self.low:.12g} and {self.high:.12g}"
            )
        return int(value) if self.whole else float(value)

    def text(self, value: Any) -> Any:
        """The number itself."""
        return value

    def describe(self) -> str:
        """Type and range."""
        return f"{'whole number' if self.whole else 'number'}, {self.low:.12g} to {self.high:.12g}"


@dataclass(frozen=True, slots=True)
class Measure:
    """A quantity with its unit in a string: a size, a rate or a duration."""

    what: str
    example: str
    read: Callable[[str], int]
    write: Callable[[int], str]
    low: int
    high: int

    def parse(self, value: Any, path: str) -> int:
        """The quantity in its base unit (bytes, bytes per second, nanoseconds)."""
        if not isinstance(value, str):
            raise ConfigError(
                path,
                f"must be a {self.what} with its unit in quotes, not {show_value(value)}",
                hint=f'for example "{self.example}"',
            )
        try:
            number = self.read(value)
        except ValueError as error:
            raise ConfigError(path, str(error)) from None
        if not self.low <= number <= self.high:
            raise ConfigError(
                path,
                f"{show_value(value)} is not between "
                f"{self.write(self.low)} and {self.write(self.high)}",
            )
        return number

    def text(self, value: Any) -> Any:
        """The quantity with its unit."""
        return self.write(value)

    def describe(self) -> str:
        """Type and range."""
        return f"{self.what}, {self.write(self.low)} to {self.write(self.high)}"


def size(low: str, high: str) -> Measure:
    """Bytes."""
    low_bytes, high_bytes = units.parse_size(low), units.parse_size(high)
    return Measure("size", "64MiB", units.parse_size, units.size_text, low_bytes, high_bytes)


def rate(low: str, high: str) -> Measure:
    """Bytes per second."""
    limits = units.parse_rate(low), units.parse_rate(high)
    return Measure("rate", "200MB/s", units.parse_rate, units.rate_text, *limits)


def duration(low: str, high: str) -> Measure:
    """Nanoseconds."""
    limits = units.parse_duration_ns(low), units.parse_duration_ns(high)
    return Measure("duration", "500ms", units.parse_duration_ns, units.duration_text, *limits)


@dataclass(frozen=True, slots=True)
class Share:
    """A share, "5%" or 0.05, from `low` to `high`."""

    low: float = 0.0
    high: float = 1.0

    def parse(self, value: Any, path: str) -> float:
        """A float from 0 to 1."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ConfigError(
                path, f"must be a share, not {show_value(value)}", hint='for example "5%"'
            )
        try:
            share = units.parse_share(value)
        except ValueError as error:
            raise ConfigError(path, str(error)) from None
        if not self.low <= share <= self.high:
            raise ConfigError(
                path,
                f"{show_value(value)} is not between "
                f"{units.share_text(self.low)} and {units.share_text(self.high)}",
            )
        return share

    def text(self, value: Any) -> Any:
        """A percentage, or the bare number where that is exact and the percentage is not."""
        text = units.share_text(value)
        return text if text.endswith("%") else value

    def describe(self) -> str:
        """Range."""
        return f"share, {units.share_text(self.low)} to {units.share_text(self.high)}"
