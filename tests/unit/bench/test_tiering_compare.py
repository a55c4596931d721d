# SPDX-License-Identifier: Apache-2.0
"""The comparison of two folders of results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/tiering"))

from results import FILE, Cell, ResultFile

TIERING = Path(__file__).resolve().parents[2] / "bench/tiering"
OFF = "tierd-neoprof/fast-path-off"


def made(seconds: Mapping[str, Sequence[float | None]], **how: Any) -> list[Cell]:
    how = {"method": "tierd-neoprof", "facts": {"work": 10}, **how}
    return [
        Cell(workload, seconds=each, seed=seed, why="" if each else "QEMU ended", **how)
        for workload, times in seconds.items()
        for seed, each in enumerate(times, start=1)
    ]


BASE = {"updates": (5.0, 5.1, 5.2), "moving": (6.0, 7.0, 8.0)}


def folder(path: Path, cells: Sequence[Cell]) -> Path:
    file = ResultFile(path / FILE)
    for cell in cells:
        file.add(cell)
    return path


def told(*words: str | Path) -> tuple[int, str, str]:
    """Exit status, output and errors of compare.py."""
    done = subprocess.run(
        [sys.executable, TIERING / "compare.py", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def scaled(factors: Mapping[str, float]) -> dict[str, list[float | None]]:
    return {name: [factors[name] * each for each in times] for name, times in BASE.items()}


@pytest.mark.parametrize(
    ("factors", "options", "status"),
    [
        ({"updates": 1.0, "moving": 1.0}, [], 0),
        ({"updates": 0.9, "moving": 1.019}, [], 0),
        ({"updates": 0.9, "moving": 1.021}, [], 1),
        ({"updates": 0.9, "moving": 1.021}, ["--slower", "3"], 0),
        ({"updates": 1.0, "moving": 1.01}, [], 1),
        ({"updates": 1.0, "moving": 1.01}, ["--mean-slower", "1"], 0),
    ],
)
def test_slower_than_the_bounds_is_a_failure(
    tmp_path: Path, factors: dict[str, float], options: list[str], status: int
) -> None:
    base = folder(tmp_path / "base", made(BASE))
    new = folder(tmp_path / "new", made(scaled(factors)))
    assert told(base, new, *options)[0] == status


def test_what_is_slower_is_named(tmp_path: Path) -> None:
    base = folder(tmp_path / "base", made(BASE))
    new = folder(tmp_path / "new", made(scaled({"updates": 0.5, "moving": 1.1})))
    _, said, _ = told(base, new)
    assert "- moving: 10.0% slower, 2 % are allowed" in said
    assert "- updates" not in said
    assert "geometric mean of 2 | 3 |" in said


def test_a_cell_that_fails_now_is_a_failure_and_one_that_nobody_ran_is_told(tmp_path: Path) -> None:
    base = folder(tmp_path / "base", made(BASE))
    new = folder(tmp_path / "new", made({"updates": (5.0, None, 5.2), "moving": (6.0, 7.0)}))
    status, said, _ = told(base, new)
    assert status == 1
    assert "- updates / tierd-neoprof, seed 2: QEMU ended" in said
    assert "one of the two has not run: moving, seed 3." in said


def test_two_columns_of_one_folder_as_json(tmp_path: Path) -> None:
    cells = [*made(BASE), *made(scaled({"updates": 2, "moving": 2}), variant="fast-path-off")]
    both = folder(tmp_path / "both", cells)
    assert told(both, both)[0] == 0
    how = ["--base", "tierd-neoprof", "--new", OFF, "--json"]
    status, said, _ = told(both, both, *how)
    assert status == 1
    (found,) = json.loads(said)
    assert (found["base"], found["new"]) == ("tierd-neoprof", OFF)
    assert found["workloads"]["moving"]["base"]["mean_s"] == pytest.approx(7.0)
    assert found["workloads"]["moving"]["times_as_fast"] == pytest.approx(0.5)
    assert found["geometric_mean"]["seeds"] == 3
    assert found["geometric_mean"]["beyond_two_errors"] is True
    assert len(found["faults"]) == 3


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    base = folder(tmp_path / "base", made(BASE))
    other = folder(tmp_path / "other", made(BASE, facts={"work": 20}))
    status, _, said = told(base, other)
    assert (status, "updates has another amount of work" in said) == (2, True)
    scan = folder(tmp_path / "scan", made(BASE, method="tierd-scan"))
    status, _, said = told(base, scan)
    assert (status, "no cell in common" in said) == (2, True)
    status, _, said = told(base, tmp_path / "none")
    assert (status, "there are no results in" in said) == (2, True)
