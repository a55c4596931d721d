# SPDX-License-Identifier: Apache-2.0
"""Folders in bpffs through which the helper hands maps and programs over.

A folder's name is `PID-START-PROGRAM`: the service's process id and its start time in
clock ticks (/proc/PID/stat, field 22), so that a recycled process id does not keep a
dead service's folder. The service opens what it finds and removes the folder at once:
a pin lives for the moment of the hand-over only, and what a crash in that moment
leaves is removed at the next start.

The helper imports this module under a bare system Python: the standard library only.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

BPFFS: Final = Path("/sys/fs/bpf")
FOLDER: Final = "tierd"


def is_bpffs(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether bpffs is mounted at `path`."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    return any(line.split()[1:3] == [str(path), "bpf"] for line in lines)


def start_time(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Start time of a process in clock ticks since boot; None when there is none."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
        # The name, in parentheses, may hold anything: count from its end.
        return int(text[text.rindex(")") + 2 :].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def folder_name(program: str, pid: int, start: int) -> str:
    """The folder's name for one program of one service."""
    return f"{pid}-{start}-{program}"


def make_folder(program: str, root: Path = BPFFS) -> Path:
    """An empty folder for this process, made anew.

    Raises:
        OSError: bpffs refused.
    """
    own = os.getpid()
    folder = root / FOLDER / folder_name(program, own, start_time(own) or 0)
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    remove_folder(folder)
    folder.mkdir(mode=0o700)
    return folder


def remove_folder(folder: Path) -> None:
    """Unpin what is in a folder and remove it; quiet when it is gone."""
    with contextlib.suppress(FileNotFoundError):
        for entry in list(folder.iterdir()):
            entry.unlink(missing_ok=True)
        folder.rmdir()


def is_stale(name: str, proc: Path = Path("/proc")) -> bool:
    """Whether the service that a folder's name tells of is gone."""
    parts = name.split("-", 2)
    if len(parts) != 3 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return False  # not ours
    return start_time(int(parts[0]), proc) != int(parts[1])


def sweep(root: Path = BPFFS, proc: Path = Path("/proc")) -> list[str]:
    """Remove the folders of services that are gone; returns their names."""
    removed: list[str] = []
    with contextlib.suppress(OSError):
        for folder in sorted((root / FOLDER).iterdir()):
            if is_stale(folder.name, proc):
                remove_folder(folder)
                removed.append(folder.name)
    return removed
