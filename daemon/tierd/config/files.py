# SPDX-License-Identifier: Apache-2.0
"""What a configuration starts from: a profile, tierd.toml, then conf.d/*.toml beside it.

One section can be had alone, without the rest of the configuration's model.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, TypeVar

from tierd.config.schema import Section
from tierd.core.errors import ConfigError

DEFAULT_PATH: Final = Path("/etc/tierd/tierd.toml")
_LARGEST_FILE: Final = 1 << 20
"""Bytes; no configuration is longer, and a wrong path (a device, a dump) ends here."""

Section_T = TypeVar("Section_T")


def load_section(cls: type[Section_T], name: str, path: Path | None = None) -> Section_T:
    """One section, whatever is wrong elsewhere; files that are no TOML are passed over.

    Raises:
        ConfigError: the section itself is wrong, or the file `path` is not there.
    """
    main = DEFAULT_PATH if path is None else path
    if path is not None and not path.exists():
        raise ConfigError("", "there is no such file", file=str(path))
    table: dict[str, Any] = {}
    for file in files_of(main, needed=path is not None):
        with contextlib.suppress(ConfigError):
            found = read(file).get(name)
            table.update(found if isinstance(found, dict) else {})
    section: Section_T = Section(cls).parse(table, name)
    return section


def files_of(main: Path, more: Collection[Path] = (), *, needed: bool) -> list[Path]:
    """The files that count, in the order in which they are merged.

    Args:
        more: files of conf.d that are not there yet.
        needed: the main file has to be there.

    Raises:
        ConfigError: the folder cannot be read.
    """
    files = [main]
    try:
        if not needed and not main.exists():
            files = []
        folder = main.parent / "conf.d"
        there = set(folder.iterdir()) if folder.is_dir() else set()
        files += sorted(
            (f for f in there.union(more) if f.name.endswith(".toml") and f.name[0] != "."),
            key=lambda f: f.name,
        )
    except (OSError, ValueError) as error:
        raise _unreadable(main, error) from None
    return files


def _unreadable(file: Path, error: OSError | ValueError) -> ConfigError:
    why = error.strerror if isinstance(error, OSError) else error
    return ConfigError("", f"cannot read it: {why}", file=str(file))


def read(file: Path) -> dict[str, Any]:
    """The table in a file. Raises ConfigError: it cannot be read, or is not TOML."""
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
    return decode(text, str(file))


def decode(text: str, file: str) -> dict[str, Any]:
    """The table in a text; `file` names it in errors. Raises ConfigError: it is not TOML."""
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


PROFILES: Final[dict[str, dict[str, Any]]] = {
    # Seldom wrong, slow to act: hosts whose load is not known.
    "cautious": {
        "loop": {"interval": "1s", "cpu_limit": "1%"},
        "residency": {"pages_per_tick": 32768, "interval": "1min"},
        "sources": {
            "scan": {"interval": "2s", "cpu_limit": "2%"},
            "idlepage": {"interval": "2s", "cpu_limit": "2%"},
            "pmu": {"samples": 5000, "cpu_limit": "1%"},
            "damon": {"cpu_limit": "1%"},
            "faults": {"cpu_limit": "2%"},
        },
        "heat": {"half_life": "20s"},
        "policy": {
            "low_watermark": "4%",
            "high_watermark": "8%",
            "hysteresis": 1.0,
            "confidence_sigmas": 3.5,
            "migration_cooldown": "1min",
            "max_moves_per_tick": 8192,
        },
        "migration": {"rate_limit": "50MB/s", "cpu_limit": "2%", "max_failure_ratio": "10%"},
    },
    # The defaults themselves.
    "balanced": {},
    # Quick to act, at a price: hosts that were measured.
    "aggressive": {
        "loop": {"interval": "200ms", "max_interval": "2s", "cpu_limit": "25%"},
        "residency": {"pages_per_tick": 262144},
        "sources": {
            "scan": {"interval": "200ms", "cpu_limit": "15%"},
            "idlepage": {"interval": "200ms", "cpu_limit": "15%"},
            "pmu": {"samples": 100_000, "cpu_limit": "8%"},
            "damon": {"cpu_limit": "15%"},
            "faults": {"cpu_limit": "10%"},
        },
        "heat": {"half_life": "2s"},
        "policy": {
            "low_watermark": "1%",
            "high_watermark": "1.25%",
            "hysteresis": 0.25,
            "confidence_sigmas": 2.0,
            "migration_cooldown": "3s",
            "max_moves_per_tick": 262144,
        },
        "migration": {"rate_limit": "1GB/s", "cpu_limit": "25%", "max_failure_ratio": "40%"},
    },
}
DEFAULT_PROFILE: Final = "balanced"
