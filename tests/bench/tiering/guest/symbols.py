# SPDX-License-Identifier: Apache-2.0
"""What lies where in the guest's memory: the kernel's functions, and the files of processes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path


def told(pids: Sequence[int]) -> bytes:
    """JSON, compressed: `kernel`, lines of /proc/kallsyms, and `maps`, those of the processes."""
    kernel = [line for line in _lines("/proc/kallsyms") if line.split()[1] in "tTwW"]
    maps = [line for pid in pids for line in _lines(f"/proc/{pid}/maps") if " r-xp " in line]
    return zlib.compress(json.dumps({"kernel": kernel, "maps": maps}).encode())


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
