# SPDX-License-Identifier: Apache-2.0
"""The whole configuration: merged of its files, written back, changed key by key, and compared.

Files are merged over the profile they name, in name order, a later one winning key by
key. Lists and matchers (`targets.match`) are values: a later one replaces an earlier one whole.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tierd.config.files import DEFAULT_PATH, DEFAULT_PROFILE, PROFILES, decode, files_of, read
from tierd.config.model import ROOT, Config
from tierd.config.rules import MATCHER_SCHEMA
from tierd.config.schema import Numbered, Section, kind_of
from tierd.config.values import Kind, join
from tierd.core.errors import ConfigError
from tierd.core.tiermap import TierMap

_Origins = dict[str, str]


def load(path: Path | None = None, *, instead: Mapping[Path, str] | None = None) -> Config:
    """The configuration in `path` and the conf.d folder beside it.

    Without `path`, /etc/tierd/tierd.toml, which may be absent: then the built-in
    defaults and /etc/tierd/conf.d count.

    Args:
        instead: texts of files that are not there, or as they are not yet.

    Raises:
        ConfigError: a file cannot be read, is not TOML, or says something wrong;
            it names the file and the dotted path of the key.
    """
    main = DEFAULT_PATH if path is None else path
    merged: dict[str, Any] = {}
    origins: _Origins = {}
    texts = instead or {}
    files = files_of(main, set(texts), needed=path is not None)
    for file in files:
        found = decode(texts[file], str(file)) if file in texts else read(file)
        _merge(ROOT, merged, found, origins, file=str(file))
    return dataclasses.replace(_parse(merged, origins), files=tuple(map(str, files)))


def loads(text: str, *, file: str = "") -> Config:
    """The configuration in one TOML text; `file` names it in errors.

    Raises:
        ConfigError: as `load`.
    """
    merged: dict[str, Any] = {}
    origins: _Origins = {}
    _merge(ROOT, merged, decode(text, file), origins, file=file)
    return _parse(merged, origins, file)


def check_against(config: Config, tier_map: TierMap) -> None:
    """Refuse overrides for nodes that this host does not have.

    Raises:
        ConfigError: with the path of the key that names the missing node.
    """
    here = {*tier_map.nodes, *(each.memory.node for each in tier_map.excluded)}
    config.topology.check_nodes(here, "memory node", "nodes with memory here")


def _merge(
    kind: Kind | None,
    base: dict[str, Any],
    over: Mapping[str, Any],
    origins: _Origins,
    *,
    path: str = "",
    file: str = "",
) -> None:
    """Put `over` into `base`, table by table where `kind` says that it is a section."""
    for key, value in over.items():
        where = join(path, key)
        inner = kind_of(kind, key)
        if isinstance(inner, Section | Numbered) and isinstance(value, dict):
            if not isinstance(base.get(key), dict):
                base[key] = {}
                origins[where] = file
            _merge(inner, base[key], value, origins, path=where, file=file)
        else:
            base[key] = value
            origins[where] = file


def _parse(merged: dict[str, Any], origins: _Origins, file: str = "") -> Config:
    profile = merged.get("profile", DEFAULT_PROFILE)
    whole: dict[str, Any] = {}
    if isinstance(profile, str) and profile in PROFILES:
        _merge(ROOT, whole, PROFILES[profile], {})
    _merge(ROOT, whole, merged, {})
    try:
        config: Config = ROOT.parse(whole, "")
    except ConfigError as error:
        where = _origin(error.path, origins) or file
        message = error.message.removeprefix(f"{error.path}: ")
        raise ConfigError(error.path, message, hint=error.hint, file=where) from None
    return config


def _origin(path: str, origins: _Origins) -> str:
    """The file that gave the key `path`, or the nearest table around it."""
    while path and path not in origins:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return origins.get(path, "")


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
