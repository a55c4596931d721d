# SPDX-License-Identifier: Apache-2.0
"""Typed reading of a machine file's tables; every mistake names the key's path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from tierd.core import units
from tierd.core.errors import ConfigError

MAX_CPUS = 64


def parse_cpus(text: str) -> tuple[int, ...]:
    """CPU numbers in a text such as "0-1,4", ascending; an empty text has none.

    Raises:
        ValueError: not a list of numbers and ranges, or a number named twice.
    """
    cpus: list[int] = []
    for part in text.split(",") if text.strip() else []:
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            raise ValueError(f'{text!r} is not a list of CPUs; write for example "0-1,4"')
        low, high = int(first), int(last or first)
        if high < low or high >= MAX_CPUS:
            raise ValueError(f"{part.strip()!r} is not a range below CPU {MAX_CPUS}")
        cpus += range(low, high + 1)
    if len(set(cpus)) != len(cpus):
        raise ValueError(f"{text!r} names a CPU twice")
    return tuple(sorted(cpus))


class Table:
    """One TOML table that remembers which of its keys were asked for.

    Args:
        data: the parsed table.
        path: its path in the file, such as "node[1]"; empty for the top.
        file: the file's name, for messages.
    """

    def __init__(self, data: dict[str, Any], path: str, file: str) -> None:
        self._data = data
        self._path = path
        self._file = file
        self._known: set[str] = set()

    def error(self, key: str, message: str, *, hint: str = "") -> ConfigError:
        """A mistake at `key`, to be raised."""
        path = f"{self._path}.{key}" if self._path else key
        return ConfigError(path, message, hint=hint, file=self._file)

    def finish(self) -> None:
        """Refuse keys nobody asked for.

        Raises:
            ConfigError: an unknown key; the message names the nearest known one.
        """
        for key in self._data:
            if key not in self._known:
                near = get_close_matches(key, self._known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else ""
                raise self.error(key, "unknown key", hint=hint or f"known: {self._names()}")

    def _names(self) -> str:
        return ", ".join(sorted(self._known))

    def has(self, key: str) -> bool:
        """True if the table has `key`."""
        self._known.add(key)
        return key in self._data

    def _get(self, path: str) -> Any:
        """The value at `key` or `key.subkey`; None when absent."""
        key, _, subkey = path.partition(".")
        self._known.add(key)
        value = self._data.get(key)
        return value.get(subkey) if subkey and isinstance(value, dict) else value

    def text(self, key: str, default: str | None = None) -> str:
        """A text; without a default it must be there."""
        value = self._get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.error(key, "missing")
        if not isinstance(value, str):
            raise self.error(key, f"must be a text, not {value!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, empty when absent."""
        value = self._get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, f"must be a list of texts, not {value!r}")
        return tuple(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {value!r}")
        return value

    def number(self, key: str, default: int | None) -> int | None:
        """A whole number."""
        value = self._get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"must be a whole number, not {value!r}")
        return value

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """One of `allowed`."""
        value = self.text(key)
        if value not in allowed:
            near = get_close_matches(value, allowed, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(allowed)}"
            raise self.error(key, f"{value!r} is not known", hint=hint)
        return value

    def size(self, key: str) -> int:
        """A size in bytes."""
        return self._quantity(key, units.parse_size)

    def rate(self, key: str) -> int:
        """A rate in bytes per second."""
        return self._quantity(key, units.parse_rate)

    def duration_ns(self, key: str) -> int:
        """A duration in nanoseconds."""
        return self._quantity(key, units.parse_duration_ns)

    def _quantity(self, key: str, parse: Callable[[str], int]) -> int:
        try:
            return parse(self.text(key))
        except ValueError as error:
            raise self.error(key, str(error)) from error

    def tables(self, key: str) -> list[Table]:
        """An array of tables, empty when absent."""
        value = self._get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(key, f"must be written as [[{key}]] tables")
        return [Table(item, f"{key}[{i}]", self._file) for i, item in enumerate(value)]

    def table(self, key: str) -> Table | None:
        """A table of its own, None when absent."""
        value = self._get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(key, f"must be written as a [{key}] table")
        return Table(value, f"{self._path}.{key}" if self._path else key, self._file)

    def by_node(self, key: str, count: int) -> dict[int, Any]:
        """A table whose keys are node numbers below `count`, empty when absent."""
        value = self._get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.error(key, "must be a table from node numbers, for example { 0 = ... }")
        for text in value:
            if not (text.isdecimal() and int(text) < count):
                raise self.error(f"{key}.{text}", f"is not a node; there are {count} nodes")
        return {int(text): item for text, item in value.items()}
