# SPDX-License-Identifier: Apache-2.0
"""Kinds of single configuration values: how each is parsed, bounded, described and printed.

A kind turns a TOML value into a Python value or raises ConfigError naming the
dotted path of the key. `Kind.text` is its inverse: a value that parses back to
the same thing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tierd.core import units
from tierd.core.errors import ConfigError, did_you_mean


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

    @property
    def about(self) -> str:
        """The type and the range in a few words, for documentation."""
        ...

    @property
    def schema(self) -> Mapping[str, Any]:
        """The kind in JSON schema, for editors."""
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
    hint = f"known keys here: {', '.join(names)}" if names else ""
    hint = did_you_mean(key, names, 0.5) or hint
    return ConfigError(join(path, key), "unknown key", hint=hint)


@dataclass(frozen=True, slots=True)
class Value:
    """A kind of single values.

    Attributes:
        parse: the Python value of a TOML value; see `Kind.parse`.
        text: the TOML value that parses to a Python value.
    """

    parse: Callable[[Any, str], Any]
    about: str
    schema: Mapping[str, Any]
    text: Callable[[Any], Any] = lambda value: value


def text(choices: Sequence[str] = ()) -> Value:
    """A non-empty string, or with `choices` one of them."""

    def parse(value: Any, path: str) -> str:
        if not isinstance(value, str) or not value:
            raise ConfigError(path, f"must be a text in quotes, not {show_value(value)}")
        if choices and value not in choices:
            what = f"{show_value(value)} is not one of {', '.join(choices)}"
            raise ConfigError(path, what, hint=did_you_mean(value, choices))
        return value

    about = f"one of {', '.join(choices)}" if choices else "text"
    enum = {"enum": [str(each) for each in choices]} if choices else {}
    return Value(parse, about, {"type": "string", "minLength": 1, **enum}, str)


def _parse_flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(path, f"must be true or false, not {show_value(value)}")
    return value


FLAG: Final = Value(_parse_flag, "true or false", {"type": "boolean"})
"""true or false."""


def number(low: float, high: float, *, whole: bool = True) -> Value:
    """An integer, or with `whole=False` any number (a float), from `low` to `high`."""
    kinds = (int,) if whole else (int, float)
    what = "whole number" if whole else "number"

    def parse(value: Any, path: str) -> int | float:
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ConfigError(path, f"must be a {what} without quotes, not {show_value(value)}")
        if not low <= value <= high:
            raise ConfigError(
                path, f"{show_value(value)} is not between {low:.12g} and {high:.12g}"
            )
        return int(value) if whole else float(value)

    schema = {"type": "integer" if whole else "number", "minimum": low, "maximum": high}
    return Value(parse, f"{what}, {low:.12g} to {high:.12g}", schema)


_NUMBER: Final = r"[0-9]+(\.[0-9]+)?"
_SIZE: Final = f"^{_NUMBER} *({'|'.join(units.SIZE_UNITS)})"


def _measure(
    what: str,
    example: str,
    pattern: str,
    form: tuple[Callable[[str], int], Callable[[int], str]],
    limits: tuple[str, str],
) -> Value:
    """A quantity with its unit in a string, as a number of its base unit."""
    read, write = form
    low, high = map(read, limits)

    def parse(value: Any, path: str) -> int:
        if not isinstance(value, str):
            raise ConfigError(
                path,
                f"must be a {what} with its unit in quotes, not {show_value(value)}",
                hint=f'for example "{example}"',
            )
        try:
            found = read(value)
        except ValueError as error:
            raise ConfigError(path, str(error)) from None
        if not low <= found <= high:
            raise ConfigError(
                path, f"{show_value(value)} is not between {write(low)} and {write(high)}"
            )
        return found

    bounds = f"{write(low)} to {write(high)}"
    schema = {"type": "string", "pattern": pattern, "$comment": bounds}
    return Value(parse, f"{what}, {bounds}", schema, write)


def size(low: str, high: str) -> Value:
    """Bytes."""
    form = units.parse_size, units.size_text
    return _measure("size", "64MiB", f"{_SIZE}$", form, (low, high))


def rate(low: str, high: str) -> Value:
    """Bytes per second."""
    form = units.parse_rate, units.rate_text
    return _measure("rate", "200MB/s", f"{_SIZE}/s$", form, (low, high))


def duration(low: str, high: str) -> Value:
    """Nanoseconds."""
    form = units.parse_duration_ns, units.duration_text
    pattern = f"^{_NUMBER} *({'|'.join(units.DURATION_UNITS)})$"
    return _measure("duration", "500ms", pattern, form, (low, high))


def share(low: float = 0.0, high: float = 1.0) -> Value:
    """A share, "5%" or 0.05, from `low` to `high`."""
    lowest, highest = units.share_text(low), units.share_text(high)

    def parse(value: Any, path: str) -> float:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ConfigError(
                path, f"must be a share, not {show_value(value)}", hint='for example "5%"'
            )
        try:
            found = units.parse_share(value)
        except ValueError as error:
            raise ConfigError(path, str(error)) from None
        if not low <= found <= high:
            raise ConfigError(path, f"{show_value(value)} is not between {lowest} and {highest}")
        return found

    def shown(value: float) -> str | float:
        # The bare number where that is exact and the percentage is not.
        percentage = units.share_text(value)
        return percentage if percentage.endswith("%") else value

    bare = {"type": "number", "minimum": low, "maximum": high}
    schema = {"anyOf": [{"type": "string", "pattern": f"^{_NUMBER} *%?$"}, bare]}
    return Value(parse, f"share, {lowest} to {highest}", schema, shown)


def parse_assignment(text: str) -> tuple[str, Any]:
    """KEY and value of "KEY=VALUE"; VALUE is TOML, or else the text as it stands.

    Raises:
        ConfigError: there is no "=".
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(
            "", f"{text[:60]!r} is not KEY=VALUE", hint='e.g. migration.rate_limit="1GB/s"'
        )
    try:
        read = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        read = {}
    # More than the one key: a text with a line break, not a value.
    return key.strip(), read["value"] if list(read) == ["value"] else value.strip()
