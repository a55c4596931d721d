# SPDX-License-Identifier: Apache-2.0
"""Reading configuration files: tierd.toml, then conf.d/*.toml beside it.

Files are merged over the profile they name, in name order, a later one winning key by
key. Lists and matchers (`targets.match`) are values: a later one replaces an earlier one whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from tierd.config.model import ROOT, Config
from tierd.config.profiles import DEFAULT_PROFILE, PROFILES
from tierd.config.schema import Numbered, Section, kind_of
from tierd.config.values import Kind, join
from tierd.core.errors import ConfigError
from tierd.core.tiermap import TierMap

DEFAULT_PATH: Final = Path("/etc/tierd/tierd.toml")
_LARGEST_FILE: Final = 1 << 20
"""Bytes; no configuration is longer, and a wrong path (a device, a dump) ends here."""

_Origins = dict[str, str]
Section_T = TypeVar("Section_T")


def load(path: Path | None = None, *, instead: Mapping[Path, str] | None = None) -> Config:
    """The configuration in `path` and the conf.d folder beside it.

    Without `path`, /etc/tierd/tierd.toml, which may be absent: then the built-in
    defaults and /etc/tierd/conf.d count.

    Args:
        path: of the main file.
        instead: texts of files that are not there, or as they are not yet.

    Raises:
        ConfigError: a file cannot be read, is not TOML, or says something wrong;
            it names the file and the dotted path of the key.
    """
    main = DEFAULT_PATH if path is None else path
    merged: dict[str, Any] = {}
    origins: _Origins = {}
    texts = instead or {}
    files = _files(main, set(texts), needed=path is not None)
    for file in files:
        found = _decode(texts[file], str(file)) if file in texts else _read(file)
        _merge(ROOT, merged, found, origins, file=str(file))
    return dataclasses.replace(_parse(merged, origins), files=tuple(map(str, files)))


def load_section(cls: type[Section_T], name: str, path: Path | None = None) -> Section_T:
    """One section, whatever is wrong elsewhere; files that are no TOML are passed over.

    Args:
        cls: the section's dataclass.
        name: its name.
        path: as for `load`.

    Raises:
        ConfigError: the section itself is wrong, or the file `path` is not there.
    """
    main = DEFAULT_PATH if path is None else path
    if path is not None and not path.exists():
        raise ConfigError("", "there is no such file", file=str(path))
    table: dict[str, Any] = {}
    for file in _files(main, set(), needed=path is not None):
        with contextlib.suppress(ConfigError):
            found = _read(file).get(name)
            table.update(found if isinstance(found, dict) else {})
    section: Section_T = Section(cls).parse(table, name)
    return section


def loads(text: str, *, file: str = "") -> Config:
    """The configuration in one TOML text; `file` names it in errors.

    Raises:
        ConfigError: as `load`.
    """
    merged: dict[str, Any] = {}
    origins: _Origins = {}
    _merge(ROOT, merged, _decode(text, file), origins, file=file)
    return _parse(merged, origins, file)


def check_against(config: Config, tier_map: TierMap) -> None:
    """Refuse overrides for nodes that this host does not have.

    Raises:
        ConfigError: with the path of the key that names the missing node.
    """
    config.topology.check_nodes(tier_map.nodes, "memory node", "nodes with memory here")


def _files(main: Path, more: set[Path], *, needed: bool) -> list[Path]:
    files = [main]
    try:
        if not needed and not main.exists():
            files = []
        folder = main.parent / "conf.d"
        there = set(folder.iterdir()) if folder.is_dir() else set()
        files += sorted(
            (f for f in there | more if f.name.endswith(".toml") and f.name[0] != "."),
            key=lambda f: f.name,
        )
    except (OSError, ValueError) as error:
        raise _unreadable(main, error) from None
    return files


def _unreadable(file: Path, error: OSError | ValueError) -> ConfigError:
    why = error.strerror if isinstance(error, OSError) else error
    return ConfigError("", f"cannot read it: {why}", file=str(file))


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from None
    if len(raw) > _LARGEST_FILE:
        raise ConfigError("", f"is larger than {_LARGEST_FILE} bytes", file=str(file))
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError("", f"is not UTF-8 text (line {line})", file=str(file)) from None
    return _decode(text, str(file))


def _decode(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = text.count("\n") + 1
        column = len(text) - text.rfind("\n")
        shown = str(error).replace(
            "at end of document", f"at line {line}, column {column}, the end"
        )
        raise ConfigError("", f"not valid TOML: {shown}", file=file) from None
    except RecursionError:
        raise ConfigError("", "not valid TOML: nested too deep", file=file) from None
    except ValueError as error:  # integers of thousands of digits, impossible dates
        raise ConfigError("", f"not valid TOML: {error}", file=file) from None


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
