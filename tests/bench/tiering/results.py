# SPDX-License-Identifier: Apache-2.0
"""What a cell of the benchmark's matrix gave, and the file that keeps it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One workload under one method.

    Attributes:
        workload, method: their names.
        seconds: modelled time of the measured region; None if the cell did not run.
        why: why it did not run, or what went wrong.
        fast_share: share of the region's memory requests that the fast node served.
        seconds_to_95: modelled seconds until 95 % of the best share of any interval was
            reached and kept; None if it never was.
        promoted, demoted, bounced: pages of 4 KiB; bounced were promoted again within
            5 s of a demotion; None where nothing counts them.
        instructions: by owner (workload, daemon, kernel, other).
        curve: (second, share served fast) pairs.
        facts: versions and settings that the cell ran with.
    """

    workload: str
    method: str
    seconds: float | None = None
    why: str = ""
    fast_share: float | None = None
    seconds_to_95: float | None = None
    promoted: int = 0
    demoted: int = 0
    ping_pong: int | None = None
    instructions: dict[str, int] = field(default_factory=dict)
    curve: list[tuple[float, float]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the cell."""
        return self.workload, self.method

    @property
    def daemon_share(self) -> float | None:
        """The daemon's instructions as a share of all."""
        total = sum(self.instructions.values())
        return self.instructions.get("daemon", 0) / total if total else None


class ResultFile:
    """The cells that are done, in a file that outlives the run.

    Args:
        path: the file; made when the first cell is added.

    Attributes:
        damaged: lines that could not be read (a run that was cut off leaves at most one);
            their cells run again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cells: dict[tuple[str, str], Cell] = {}
        self.damaged = 0
        self._ends_whole = True
        if path.exists():
            self._read(path.read_bytes())

    def _read(self, content: bytes) -> None:
        self._ends_whole = not content or content.endswith(b"\n")
        for line in content.splitlines():
            try:
                made = Cell(**json.loads(line))
            except (ValueError, TypeError):
                self.damaged += 1
            else:
                self.cells[made.key] = made

    def add(self, cell: Cell) -> None:
        """Keep a cell; a later one of the same key replaces it."""
        line = json.dumps(asdict(cell), separators=(",", ":")) + "\n"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line if self._ends_whole else "\n" + line)
            file.flush()
            os.fsync(file.fileno())
        self._ends_whole = True
        self.cells[cell.key] = cell

    def of_other_work(self, work: Mapping[str, int]) -> list[tuple[str, str]]:
        """Cells of workloads with more or less to do than `work` says, by workload.

        They are not to be compared with cells of this work.
        """
        return [
            key
            for key, cell in self.cells.items()
            if key[0] in work and cell.facts.get("work", work[key[0]]) != work[key[0]]
        ]

    def missing(self, wanted: Iterable[tuple[str, str]], *, again: bool) -> list[tuple[str, str]]:
        """Cells that are still to run; with `again` those that failed, too."""
        return [
            key
            for key in wanted
            if key not in self.cells or (again and self.cells[key].seconds is None)
        ]
