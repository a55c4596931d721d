# SPDX-License-Identifier: Apache-2.0
"""What a cell of the benchmark's matrix gave, and the file that keeps it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

FILE = "tiering.jsonl"
"""Name of the result file in its folder."""
DEFAULTS = "defaults"
"""The variant that changes nothing."""
RETRY_SEED = 1000
"""A cell that could not be begun is tried with a seed that is so much higher."""
OF_THE_HOST = ("host_s",)
"""Facts of a cell that two runs of it need not share."""


class Key(NamedTuple):
    """What identifies a cell."""

    workload: str
    method: str
    variant: str = DEFAULTS
    seed: int = 1

    @property
    def label(self) -> str:
        """The key as one reads it."""
        return f"{self.workload} / {column(self.method, self.variant)}, seed {self.seed}"


def column(method: str, variant: str) -> str:
    """What tables call a method with a variant."""
    return method if variant == DEFAULTS else f"{method}/{variant}"


@dataclass(frozen=True)
class Cell:
    """One workload under one method, with one seed.

    Attributes:
        workload, method: their names.
        seconds: modelled time of the measured region; None if the cell did not run.
        why: why it did not run, or what went wrong.
        fast_share: share of the region's memory requests that the fast node served.
        seconds_to_95: modelled seconds until 95 % of the best share of any interval was
            reached and kept; None if it never was.
        promoted, demoted, ping_pong: pages of 4 KiB; ping_pong were promoted again within
            5 s of a demotion; None where nothing counts them.
        instructions: by owner (workload, daemon, kernel, other).
        curve: (second, share served fast) pairs.
        facts: versions and settings that the cell ran with; `facts["seed"]` is the seed of
            the machine, which is another one than `seed` where the first could not be begun.
        variant: the method's settings (variants.py).
        seed: which sample of the cell this is. Results pair by it.
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
    variant: str = DEFAULTS
    seed: int = 1

    @property
    def key(self) -> Key:
        """What identifies the cell."""
        return Key(self.workload, self.method, self.variant, self.seed)

    @property
    def column(self) -> str:
        """What tables call the cell's method and variant."""
        return column(self.method, self.variant)

    @property
    def daemon_share(self) -> float | None:
        """The daemon's instructions as a share of all."""
        total = sum(self.instructions.values())
        return self.instructions.get("daemon", 0) / total if total else None


def from_line(line: str | bytes) -> Cell:
    """The cell of a line of a result file.

    Lines from before there were several seeds have the machine's seed alone, or none: seed 1. Older
    lines call pages that ping-ponged `bounced`.

    Raises:
        ValueError, TypeError: it is no such line.
    """
    fields = json.loads(line)
    if "seed" not in fields:
        fields["seed"] = fields.get("facts", {}).get("seed", 1) % RETRY_SEED
    if "bounced" in fields:
        fields["ping_pong"] = fields.pop("bounced")
    return Cell(**fields)


def differences(first: Cell, second: Cell) -> list[str]:
    """Names of what two runs of a cell do not agree in; the host's own time does not count."""
    ours, theirs = asdict(first), asdict(second)
    facts = [each.pop("facts") for each in (ours, theirs)]
    found = [name for name in ours if ours[name] != theirs[name]]
    return found + [
        f"facts.{name}"
        for name in sorted(facts[0].keys() | facts[1].keys())
        if name not in OF_THE_HOST and facts[0].get(name) != facts[1].get(name)
    ]


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
        self.cells: dict[Key, Cell] = {}
        self.damaged = 0
        self._ends_whole = True
        if path.exists():
            self._read(path.read_bytes())

    def _read(self, content: bytes) -> None:
        self._ends_whole = not content or content.endswith(b"\n")
        for line in content.splitlines():
            try:
                made = from_line(line)
            except (ValueError, TypeError, AttributeError):
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

    def of_other_work(self, work: Mapping[str, int]) -> list[Key]:
        """Cells of workloads with more or less to do than `work` says, by workload.

        They are not to be compared with cells of this work.
        """
        return [
            key
            for key, cell in self.cells.items()
            if key.workload in work
            and cell.facts.get("work", work[key.workload]) != work[key.workload]
        ]

    def missing(self, wanted: Iterable[Key], *, again: bool) -> list[Key]:
        """Cells that are still to run; with `again` those that failed, too."""
        return [
            key
            for key in wanted
            if key not in self.cells or (again and self.cells[key].seconds is None)
        ]
