# SPDX-License-Identifier: Apache-2.0
"""The benchmark's result file and tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/tiering"))

from figures import seconds_to_95, shares
from matrix import run_matrix
from report import LENGTH, write_report
from results import Cell, ResultFile
from runner import CellError, NotReadyError, Runner
from table import best_of, details, gaps, geometric_mean, speed_ups, times

from tierd_lab import Machine
from workloads import WORKLOADS, Workload

WANTED = [("a", "x"), ("a", "y"), ("b", "x")]


def test_a_run_is_taken_up_where_it_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "deep/results.jsonl"
    file = ResultFile(path)
    assert file.missing(WANTED, again=False) == WANTED
    file.add(Cell("a", "x", 1.5, curve=[(0.0, 0.1)], instructions={"daemon": 1, "workload": 99}))
    file.add(Cell("a", "y", why="no module"))
    again = ResultFile(path)
    assert again.damaged == 0
    assert again.cells[("a", "x")].daemon_share == pytest.approx(0.01)
    assert again.missing(WANTED, again=False) == [("b", "x")]
    assert again.missing(WANTED, again=True) == [("a", "y"), ("b", "x")]


def test_a_line_that_was_cut_costs_its_cell_only(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    ResultFile(path).add(Cell("a", "x", 1.5))
    ResultFile(path).add(Cell("a", "y", 2.5))
    path.write_bytes(path.read_bytes()[:-10])
    cut = ResultFile(path)
    assert cut.damaged == 1
    assert cut.missing(WANTED, again=False) == [("a", "y"), ("b", "x")]
    cut.add(Cell("a", "y", 3.5))
    assert ResultFile(path).cells[("a", "y")].seconds == 3.5


def test_a_cell_that_ran_again_replaces_the_old_one(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "results.jsonl")
    file.add(Cell("a", "x", why="QEMU ended"))
    file.add(Cell("a", "x", 2.0))
    assert ResultFile(tmp_path / "results.jsonl").cells[("a", "x")].seconds == 2.0


def test_cells_with_another_amount_of_work_are_told_from_the_others(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "results.jsonl")
    file.add(Cell("a", "x", 2.0, facts={"work": 10}))
    file.add(Cell("a", "y", why="it failed before anything was known"))
    file.add(Cell("b", "x", 6.0, facts={"work": 60}))
    assert file.of_other_work({"a": 10, "b": 60}) == []
    assert file.of_other_work({"a": 10, "b": 20}) == [("b", "x")]
    assert file.of_other_work({"a": 30}) == [("a", "x")]


def test_nothing_is_run_into_a_folder_of_another_amount_of_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ResultFile(tmp_path / "results.jsonl")
    file.add(Cell("updates", "first-touch", 2.0, facts={"work": 10}))
    how: Any = {"again": False, "limit_s": 1.0, "until": float("inf"), "seed": 1}
    assert not run_matrix(file, [WORKLOADS["updates"]], ["first-touch", "oracle"], **how)
    assert "updates / first-touch is one" in capsys.readouterr().err
    assert list(file.cells) == [("updates", "first-touch")]


@pytest.mark.parametrize("times", [1, 3, 6])
def test_the_report_says_if_there_was_more_to_do_than_usual(tmp_path: Path, times: int) -> None:
    work = WORKLOADS["updates"].work * times
    cells = {("updates", "x"): Cell("updates", "x", 9.0, facts={"work": work})}
    write_report(tmp_path, cells, ["updates"], ["x"])
    page = (tmp_path / "tiering.md").read_text()
    assert ("Workloads have 2 times as much to do here" in page) == (times == 6)
    assert ("Workloads have 0.333 times as much to do here" in page) == (times == 1)
    assert ("times as much to do here" in page) == (times != LENGTH)


CELLS = {
    c.key: c
    for c in (
        Cell("a", "base", 4.0),
        Cell("a", "x", 2.0, fast_share=0.9, promoted=7, instructions={"daemon": 2, "kernel": 98}),
        Cell("b", "base", 9.0),
        Cell("b", "x", 1.0, seconds_to_95=0.25),
        Cell("c", "x", 5.0),
        Cell("c", "base", why="the guest ran out of memory"),
    )
}


def test_speed_ups_are_over_what_both_ran() -> None:
    assert speed_ups(CELLS, "abc", "x", "base") == [2.0, 9.0]
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4)
    assert geometric_mean([]) is None
    best = best_of(CELLS, "a", ["base", "x", "unknown"])
    assert best is not None
    assert best.method == "x"
    assert best_of(CELLS, "d", ["x"]) is None


def test_the_tables_have_every_cell_and_say_what_is_missing() -> None:
    table = times(CELLS, ["a", "b", "c"], ["base", "x", "y"], "base").splitlines()
    assert table[0] == "| modelled seconds | base | x | y |"
    assert table[2] == "| a | 4.000 | 2.000 | not run |"
    assert table[4] == "| c | failed | 5.000 | not run |"
    assert table[5].endswith("| 1.000 | 4.243 | - |")
    assert len({line.count("|") for line in table}) == 1
    assert "| x | 2.000 | 90.0% | - | 7 | 0 | - | 2.00% |" in details(CELLS, "a", ["base", "x"])
    assert gaps(CELLS, ["c"], ["base", "x", "y"]).splitlines() == [
        "- c / base: the guest ran out of memory",
        "- c / y: not run",
    ]
    assert gaps(CELLS, ["a"], ["x"]) == "Every cell ran."


def test_a_curve_is_the_share_of_each_interval_that_had_requests() -> None:
    requests = np.array([[1, 3, 0, 0], [0, 0, 0, 0], [2, 2, 0, 0]], np.uint64)
    assert shares(requests, 5e8) == [(0.5, 0.25), (1.5, 0.5)]
    assert shares(requests, 5e8, points=2) == [(1.0, 0.25), (2.0, 0.5)]


def test_convergence_is_over_when_the_share_stays_near_its_end() -> None:
    rises = [(float(i + 1), min(1.0, 0.1 * i)) for i in range(40)]
    assert seconds_to_95(rises) == 14.0  # the first mean of five above 0.95 ends at 13
    dips = [(t, 0.2 if t == 30.0 else share) for t, share in rises]
    assert seconds_to_95(dips) == 35.0
    assert seconds_to_95([(1.0, 0.5)] * 9) == 0.0
    assert seconds_to_95([]) is None


def test_the_report_says_what_ran_and_what_did_not(tmp_path: Path) -> None:
    (tmp_path / "reading.md").write_text("It loses on b.\n")
    cells = {**CELLS, ("a", "tierd-scan"): Cell("a", "tierd-scan", 1.0, facts={"qemu": "10.0"})}
    cells["a", "first-touch"] = Cell("a", "first-touch", 4.0, curve=[(1.0, 0.1), (2.0, 0.5)])
    write_report(tmp_path, cells, ["a", "b"], ["first-touch", "tierd-scan"])
    page = (tmp_path / "tiering.md").read_text()
    assert "| tierd-scan | 4.000 (1) | 4.000 |" in page
    assert "It loses on b." in page
    assert "- b / tierd-scan: not run" in page
    assert "- qemu: 10.0" in page


WHY = "NotReadyError: too little is free"


@pytest.mark.parametrize("times", [1, 2])
def test_a_cell_that_was_not_begun_is_tried_with_another_seed_and_one_that_was_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], times: int
) -> None:
    seeds: list[int] = []

    def run(self: Runner, workload: Workload, method: str, *rest: Any) -> Cell:
        seeds.append(rest[-1])
        if len(seeds) <= times and method == "first-touch":
            raise NotReadyError("too little is free")
        if method == "oracle":
            raise CellError("no end")
        return Cell(workload.name, method, seconds=1.0)

    monkeypatch.setattr(Runner, "_run", run)
    with Runner(cast(Machine, None), seed=3) as runner:
        runner._image_hash = "built"
        cell = runner.run(WORKLOADS["updates"], "first-touch")
        assert cell.why == ("" if times == 1 else WHY)
        assert seeds == [3, 1003]
        assert "once more, with seed 1003" in capsys.readouterr().err
        assert runner.run(WORKLOADS["updates"], "oracle").why == "CellError: no end"
        assert len(seeds) == 3
