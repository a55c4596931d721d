# SPDX-License-Identifier: Apache-2.0
"""What an operator sets that survives a restart: a pause, and values of the configuration.

The file `paused` in the state folder is there while an operator's pause is in force, and says
since when and why. A key with another value stands in `conf.d/90-set.toml`; it is checked first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tierd.config import Config, as_table, load, loads
from tierd.config.model import ROOT
from tierd.config.schema import Section, kind_of
from tierd.config.write import dump_table
from tierd.core.errors import ConfigError, TierdError

NAME: Final = "paused"
LONGEST_REASON: Final = 200
_MOST_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause in force.

    Attributes:
        since: Unix time.
        uid: who asked for it, -1 where the file does not tell.
        reason: what they said, perhaps nothing.
    """

    since: float
    uid: int
    reason: str

    def as_json(self) -> dict[str, Any]:
        """JSON types only."""
        return asdict(self)


class PauseFile:
    """Keeps a pause in `folder`; a file that cannot be understood still is a pause."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / NAME

    def read(self) -> Pause | None:
        """The pause in force, or None.

        Raises:
            TierdError: the folder cannot be read, so it is not known.
        """
        try:
            with self._file.open("rb") as stream:
                raw = stream.read(_MOST_BYTES)
                changed = os.fstat(stream.fileno()).st_mtime
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TierdError(f"cannot read {self._file}: {error.strerror}") from error
        try:
            told = json.loads(raw)
            return Pause(
                float(told["since"]), int(told["uid"]), str(told["reason"])[:LONGEST_REASON]
            )
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return Pause(changed, -1, "")

    def write(self, pause: Pause) -> None:
        """Keep the pause: the file is there whole, or not at all, even after a power cut.

        Raises:
            TierdError: it could not be written.
        """
        try:
            self._file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_whole(self._file, json.dumps(pause.as_json()), 0o600)
        except OSError as error:
            raise TierdError(f"cannot write {self._file}: {error.strerror}") from error

    def clear(self) -> None:
        """Forget the pause.

        Raises:
            TierdError: the file could not be removed.
        """
        try:
            self._file.unlink(missing_ok=True)
            if self._file.parent.exists():
                _sync(self._file.parent)
        except OSError as error:
            raise TierdError(f"cannot remove {self._file}: {error.strerror}") from error


def write_whole(file: Path, text: str, mode: int) -> None:
    """Write a file that is there whole or, after a failure or a power cut, as it was before.

    Args:
        file: in a folder that exists.
        text: for it.
        mode: permissions.

    Raises:
        OSError: it could not be written.
    """
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(mode)
        Path(name).replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    _sync(file.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


TUNED: Final = "90-set.toml"
_HEADER: Final = """# SPDX-License-Identifier: Apache-2.0
# Written by `tierd set --persist`. A file of conf.d with a later name wins over this one.
"""


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


def with_value(config: Config, key: str, value: Any) -> Config:
    """`config` with the dotted `key` set to a TOML value, all checked.

    Raises:
        ConfigError: no such key, or not such a value.
    """
    table: dict[str, Any] = as_table(config)
    names = key.split(".")
    place, kind = table, ROOT
    for depth, name in enumerate(names[:-1]):
        inner = kind_of(kind, name)
        if not isinstance(inner, Section):
            # The parser names the nearest key, or says that this is no table.
            place[name] = {} if inner is None else None
            _parse(table, config)
            raise ConfigError(".".join(names[: depth + 1]), "cannot be set: it is no section")
        place, kind = place.setdefault(name, {}), inner
    if isinstance(kind_of(kind, names[-1]), Section):
        raise ConfigError(key, "is a section; name one key of it")
    place[names[-1]] = value
    return _parse(table, config)


def _parse(table: Mapping[str, Any], like: Config) -> Config:
    config: Config = ROOT.parse(table, "")
    return dataclasses.replace(config, files=like.files)


def persist(main: Path, key: str, value: Any) -> Path:
    """Keep KEY=VALUE in conf.d beside `main`; what is written has been checked.

    Raises:
        ConfigError: the files with it are not valid, or a later file wins; nothing is
            written then.
        OSError: it could not be written.
    """
    folder = main.parent / "conf.d"
    file = folder / TUNED
    table: dict[str, Any] = {}
    if file.exists():
        loads(file.read_text(), file=str(file))
        table = tomllib.loads(file.read_text())
    place = table
    *tables, last = key.split(".")
    for name in tables:
        place = place.setdefault(name, {})
    place[last] = value
    text = _HEADER + dump_table(table)
    loads(text, file=str(file))
    with _with_file(main, file, text) as trial:
        found = load(trial)
    if _value(as_table(found), key) != _value(as_table(with_value(found, key, value)), key):
        raise ConfigError(
            key, f"a file in {folder} with a later name than {TUNED} sets it", hint="edit that one"
        )
    folder.mkdir(mode=0o755, exist_ok=True)
    write_whole(file, text, 0o644)
    return file


def _value(table: Any, key: str) -> Any:
    for name in key.split("."):
        table = table.get(name) if isinstance(table, Mapping) else None
    return table


@contextlib.contextmanager
def _with_file(main: Path, file: Path, text: str) -> Any:
    """A folder like that of `main` in which `file` holds `text`."""
    with tempfile.TemporaryDirectory(prefix="tierd-set-") as name:
        trial = Path(name) / main.name
        (trial.parent / "conf.d").mkdir()
        if main.exists():
            trial.write_bytes(main.read_bytes())
        else:
            trial.write_text("")
        if file.parent.is_dir():
            for other in file.parent.iterdir():
                if other.name.endswith(".toml") and other.name[0] != ".":
                    (trial.parent / "conf.d" / other.name).write_bytes(other.read_bytes())
        (trial.parent / "conf.d" / file.name).write_text(text)
        yield trial
