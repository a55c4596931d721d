# SPDX-License-Identifier: Apache-2.0
"""A configuration back to TOML, its keys set one by one, and what differs between two."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tierd.config.model import ROOT, Config
from tierd.config.rules import MATCHER_SCHEMA
from tierd.config.schema import Numbered, Section, kind_of
from tierd.config.values import Kind, join
from tierd.core.errors import ConfigError


def dumps(config: Config) -> str:
    """The whole configuration as TOML; `loads` of it gives an equal one."""
    return dump_table(as_table(config))


def dump_table(table: Mapping[str, Any]) -> str:
    """A table of the configuration's keys, not all of them perhaps, as TOML."""
    lines: list[str] = []
    _dump(table, ROOT, "", lines)
    return "\n".join(lines).strip() + "\n"


def as_table(config: Config) -> dict[str, Any]:
    """The whole configuration as TOML values (for JSON too)."""
    table: dict[str, Any] = ROOT.text(config)
    return table


def schema() -> dict[str, Any]:
    """A JSON schema of the whole file, for editors that check and complete TOML."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tierd.toml",
        **ROOT.schema,
        "$defs": {"matcher": MATCHER_SCHEMA},
    }


def _dump(table: Mapping[str, Any], kind: Kind | None, path: str, lines: list[str]) -> None:
    """Plain keys first, then sub-tables, so that every key lands in its own table."""
    tables = {}
    for key, value in table.items():
        inner = kind_of(kind, key)
        if isinstance(inner, Section | Numbered):
            tables[key] = (value, inner)
        else:
            lines.append(f"{toml_key(key)} = {toml_value(value)}")
    for key, (value, inner) in tables.items():
        where = f"{path}.{toml_key(key)}" if path else toml_key(key)
        lines += ["", f"[{where}]"]
        _dump(value, inner, where, lines)


def toml_value(value: Any) -> str:
    """One value in TOML, on one line (tables inline).

    Raises:
        ValueError: a value that TOML cannot hold.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} in a configuration")
        return repr(value)
    if isinstance(value, str):
        return toml_text(value)
    if isinstance(value, Mapping):
        if not value:
            return "{}"
        inner = ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, Sequence):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    raise ValueError(f"{type(value).__name__} in a configuration")


def toml_key(key: str) -> str:
    """A key as TOML writes it: bare where possible."""
    bare = key and all(c.isascii() and (c.isalnum() or c in "_-") for c in key)
    return key if bare else toml_text(key)


def toml_text(text: str) -> str:
    """A TOML basic string: JSON's, but for one more character that must be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(frozen=True, slots=True)
class Difference:
    """One key with two values, as TOML values; None where the key is left out."""

    key: str
    old: Any
    new: Any


def differences(old: Config, new: Config) -> list[Difference]:
    """The keys whose values differ, in the order of the configuration."""
    return list(_differences(as_table(old), as_table(new), ROOT, ""))


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], kind: Kind | None, path: str
) -> Iterator[Difference]:
    for key in dict.fromkeys([*old, *new]):
        here = join(path, key)
        before, after = old.get(key), new.get(key)
        inner = kind_of(kind, key)
        if isinstance(inner, Section | Numbered):
            yield from _differences(before or {}, after or {}, inner, here)
        elif before != after:
            yield Difference(here, before, after)


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


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """`config` with dotted keys set to TOML values, all checked.

    Raises:
        ConfigError: no such key, or not such a value.
    """
    table = as_table(config)
    for key, value in values.items():
        _put(table, key, value)
    found: Config = ROOT.parse(table, "")
    return dataclasses.replace(found, files=config.files)


def _put(table: dict[str, Any], key: str, value: Any) -> None:
    place: dict[str, Any] = table
    kind: Kind = ROOT
    *names, last = key.split(".")
    for depth, name in enumerate(names, 1):
        inner = kind_of(kind, name)
        if not isinstance(inner, Section):
            # The parser names the nearest key, or says that this is no table.
            place[name] = {} if inner is None else None
            ROOT.parse(table, "")
            raise ConfigError(".".join(key.split(".")[:depth]), "cannot be set: it is no section")
        place, kind = place.setdefault(name, {}), inner
    if isinstance(kind_of(kind, last), Section):
        raise ConfigError(key, "is a section; name one key of it")
    place[last] = value
