# SPDX-License-Identifier: Apache-2.0
"""What an operator sets that survives a restart: a pause, and values of the configuration.

The file `paused` in the state folder is there while an operator's pause is in force, and says
since when and why. A key with another value stands in `conf.d/90-set.toml`; it is checked first.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tierd.config.whole import as_table, dump_table, load, loads, with_values
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
        """Forget the pause. Raises TierdError: the file could not be removed."""
        try:
            self._file.unlink(missing_ok=True)
            if self._file.parent.exists():
                _sync(self._file.parent)
        except OSError as error:
            raise TierdError(f"cannot remove {self._file}: {error.strerror}") from error


def write_whole(file: Path, text: str, mode: int) -> None:
    """Write a file that is there whole or, after a failure or a power cut, as it was before.

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
    found = load(main, instead={file: text})
    if as_table(found) != as_table(with_values(found, {key: value})):
        raise ConfigError(
            key, f"a file in {folder} with a later name than {TUNED} sets it", hint="edit that one"
        )
    folder.mkdir(mode=0o755, exist_ok=True)
    write_whole(file, text, 0o644)
    return file
