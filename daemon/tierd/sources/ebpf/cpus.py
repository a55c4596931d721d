# SPDX-License-Identifier: Apache-2.0
"""Which CPUs there are, and which there can be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

CPU_FOLDER: Final = Path("/sys/devices/system/cpu")


def parse_list(text: str) -> list[int]:
    """The numbers of a list such as "0-3,8".

    Raises:
        ValueError: it is none.
    """
    numbers: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
    return numbers


def online(folder: Path = CPU_FOLDER) -> list[int]:
    """CPUs that run now."""
    try:
        return parse_list((folder / "online").read_text())
    except (OSError, ValueError):
        return list(range(os.cpu_count() or 1))


def running(folder: Path = CPU_FOLDER) -> dict[int, int]:
    """CPUs that run now, with a number that is another one when a CPU went and came back.

    The kernel makes a CPU's topology folder anew then; without the folder it is zero.
    """
    marks = {}
    for cpu in online(folder):
        try:
            marks[cpu] = (folder / f"cpu{cpu}" / "topology").stat().st_ino
        except OSError:
            marks[cpu] = 0
    return marks


def possible(folder: Path = CPU_FOLDER) -> int:
    """One more than the highest number that a CPU can ever have here."""
    try:
        return max(parse_list((folder / "possible").read_text())) + 1
    except (OSError, ValueError):
        return os.cpu_count() or 1
