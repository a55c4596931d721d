# SPDX-License-Identifier: Apache-2.0
"""The benchmark's result file and tables."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/tiering"))

from figures import seconds_to_95, shares
from matrix import Matrix, run_matrix, seeds
from plan import LENGTH, METHODS, planned
from report import in_order, write_report
from results import FILE, Cell, Key, ResultFile, differences
from runner import CellError, NotReadyError, Runner
from samples import Samples
from table import best_of, details, gaps, times
from variants import VARIANTS

from tierd.config.whole import loads
from tierd.core import tuning
from tierd_lab import Machine
from workloads import WORKLOADS, Workload

WANTED = [Key("a", "x"), Key("a", "y"), Key("b", "x")]


@pytest.mark.parametrize(("folder", "cells"), [("", 130), ("short", 130), ("seeds", 37)])
def test_the_committed_results_can_be_read(folder: str, cells: int) -> None:
    file = ResultFile(
        Path(__file__).resolve().parents[3] / "docs/research/benchmarks" / folder / FILE
    )
    assert (len(file.cells), file.damaged) == (cells, 0)


def test_a_run_is_taken_up_where_it_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "deep/results.jsonl"
    file = ResultFile(path)
    assert file.missing(WANTED, again=False) == WANTED
    file.add(Cell("a", "x", 1.5, curve=[(0.0, 0.1)], instructions={"daemon": 1, "workload": 99}))
    file.add(Cell("a", "y", why="no module"))
    again = ResultFile(path)
    assert again.damaged == 0
    assert again.cells[Key("a", "x")].daemon_share == pytest.approx(0.01)
    assert again.missing(WANTED, again=False) == [Key("b", "x")]
    assert again.missing(WANTED, again=True) == [Key("a", "y"), Key("b", "x")]


def test_a_line_that_was_cut_costs_its_cell_only(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    ResultFile(path).add(Cell("a", "x", 1.5))
    ResultFile(path).add(Cell("a", "y", 2.5))
    path.write_bytes(path.read_bytes()[:-10])
    cut = ResultFile(path)
    assert cut.damaged == 1
    assert cut.missing(WANTED, again=False) == [Key("a", "y"), Key("b", "x")]
    cut.add(Cell("a", "y", 3.5))
    assert ResultFile(path).cells[Key("a", "y")].seconds == 3.5


def test_a_cell_that_ran_again_replaces_the_old_one(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "results.jsonl")
    file.add(Cell("a", "x", why="QEMU ended"))
    file.add(Cell("a", "x", 2.0))
    assert ResultFile(tmp_path / "results.jsonl").cells[Key("a", "x")].seconds == 2.0


def test_cells_with_another_amount_of_work_are_told_from_the_others(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "results.jsonl")
    file.add(Cell("a", "x", 2.0, facts={"work": 10}))
    file.add(Cell("a", "y", why="it failed before anything was known"))
    file.add(Cell("b", "x", 6.0, facts={"work": 60}))
    assert file.of_other_work({"a": 10, "b": 60}) == []
    assert file.of_other_work({"a": 10, "b": 20}) == [Key("b", "x")]
    assert file.of_other_work({"a": 30}) == [Key("a", "x")]


def test_nothing_is_run_into_a_folder_of_another_amount_of_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ResultFile(tmp_path / "results.jsonl")
    file.add(Cell("updates", "first-touch", 2.0, facts={"work": 10}))
    how: Any = {"again": False, "twice": False, "limit_s": 1.0, "until": float("inf")}
    wanted = [Key("updates", "first-touch"), Key("updates", "oracle")]
    assert not run_matrix(file, [WORKLOADS["updates"]], wanted, **how)
    assert "updates / first-touch, seed 1 is one" in capsys.readouterr().err
    assert list(file.cells) == [Key("updates", "first-touch")]


@pytest.mark.parametrize("times", [1, 3, 6])
def test_the_report_says_if_there_was_more_to_do_than_usual(tmp_path: Path, times: int) -> None:
    work = WORKLOADS["updates"].work * times
    cell = Cell("updates", "oracle", 9.0, facts={"work": work})
    write_report(tmp_path, {cell.key: cell}, [cell.key])
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


SAMPLES = Samples(CELLS.values())


def test_speed_ups_are_over_what_both_ran() -> None:
    ratio = SAMPLES.ratio("abc", "x", "base")
    assert ratio is not None
    assert (ratio.workloads, ratio.value) == (2, pytest.approx(18**0.5))
    assert SAMPLES.ratio("c", "x", "base") is None
    assert best_of(SAMPLES, "a", ["base", "x", "unknown"]) == "x"
    assert best_of(SAMPLES, "d", ["x"]) is None


def test_the_tables_have_every_cell_and_say_what_is_missing() -> None:
    table = times(SAMPLES, ["a", "b", "c"], ["base", "x", "y"], "base").splitlines()
    assert table[0] == "| modelled seconds | base | x | y |"
    assert table[2] == "| a | 4.000 | 2.000 | not run |"
    assert table[4] == "| c | failed | 5.000 | not run |"
    assert table[5].endswith("| 1.000 | 4.243 | - |")
    assert len({line.count("|") for line in table}) == 1
    assert "| x | 1 | 2.000 | 90.0% | - | 7 | 0 | - | 2.00% |" in details(SAMPLES, "a", ["x"])
    wanted = [Key("c", "base"), Key("c", "y", seed=2), Key("a", "x")]
    assert gaps(CELLS, wanted).splitlines() == [
        "- c / base, seed 1: the guest ran out of memory",
        "- c / y, seed 2: not run",
    ]
    assert gaps(CELLS, [Key("a", "x")]) == "Every cell ran."


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
    (tmp_path / "reading.md").write_text("It loses on bfs.\n")
    curve = [(1.0, 0.1), (2.0, 0.5)]
    cells = {
        cell.key: cell
        for cell in (
            Cell("updates", "tierd-scan", 1.0, facts={"qemu": "10.0"}),
            Cell("updates", "first-touch", 4.0, curve=curve),
            Cell("bfs", "first-touch", 9.0),
        )
    }
    write_report(tmp_path, cells, [*cells, Key("bfs", "tierd-scan")])
    page = (tmp_path / "tiering.md").read_text()
    assert "3 of 4 cells ran." in page
    assert "| tierd-scan | 4.000 (1) | 4.000 |" in page
    assert "It loses on bfs." in page
    assert "- bfs / tierd-scan, seed 1: not run" in page
    assert "- qemu: 10.0" in page
    assert "## Pairs" not in page
    assert (tmp_path / "convergence.svg").exists()


def test_the_report_pairs_variants_with_the_defaults(tmp_path: Path) -> None:
    cells = {
        cell.key: cell
        for seed in (1, 2, 3)
        for cell in (
            Cell("updates", "tierd-neoprof", 5.0 + seed, seed=seed),
            Cell("updates", "tierd-neoprof", 4.0 + seed, variant="fast-path-off", seed=seed),
        )
    }
    write_report(tmp_path, cells, list(cells)[:1])
    page = (tmp_path / "tiering.md").read_text()
    assert "6 of 6 cells ran." in page
    assert "### tierd-neoprof/fast-path-off against tierd-neoprof" in page
    assert "| updates | 3 | 7.000 ± 2.484 | 6.000 ± 2.484 | 1.170 |" in page
    assert VARIANTS["fast-path-off"].what in page


def test_cells_of_a_variant_that_is_no_more_are_shown_last(tmp_path: Path) -> None:
    keys = [Key("updates", "old", "gone", 2), Key("gone", "tierd-scan"), Key("bfs", "tierd-scan")]
    cells = {key: Cell(*key[:2], 3.0, variant=key.variant, seed=key.seed) for key in keys}
    assert in_order(keys) == keys[::-1]
    write_report(tmp_path, cells, [])
    page = (tmp_path / "tiering.md").read_text()
    assert "3 of 3 cells ran." in page
    assert "| old/gone | 1 | 3.000 |" in page


WHY = "NotReadyError: too little is free"


@pytest.mark.parametrize("times", [1, 2])
def test_a_cell_that_was_not_begun_is_tried_with_another_seed_and_one_that_was_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], times: int
) -> None:
    tried: list[int] = []

    def run(self: Runner, workload: Workload, cell: Cell, *rest: Any) -> Cell:
        tried.append(rest[-1])
        if len(tried) <= times and cell.method == "first-touch":
            raise NotReadyError("too little is free")
        if cell.method == "oracle":
            raise CellError("no end")
        return replace(cell, seconds=1.0)

    monkeypatch.setattr(Runner, "_run", run)
    with Runner(cast(Machine, None)) as runner:
        runner._image_hash = "built"
        cell = runner.run(WORKLOADS["updates"], "first-touch", seed=3)
        assert cell.why == ("" if times == 1 else WHY)
        assert cell.seed == 3
        assert tried == [3, 1003]
        assert "once more, with seed 1003" in capsys.readouterr().err
        assert runner.run(WORKLOADS["updates"], "oracle").why == "CellError: no end"
        assert len(tried) == 3


def test_cells_run_wave_by_wave_with_a_cells_variants_together() -> None:
    methods = ("tierd-neoprof", "tierd-scan", "first-touch")
    keys = planned(["updates", "bfs"], methods, ["defaults", "fast-path-off"], [1, 2])
    assert keys[:3] == [
        Key("updates", "first-touch"),
        Key("updates", "tierd-neoprof"),
        Key("updates", "tierd-neoprof", "fast-path-off"),
    ]
    assert [key.seed for key in keys] == [1] * 6 + [2] * 6 + [1] * 2 + [2] * 2
    # Neither the kernel's methods nor accessed bits have that path.
    assert {key.method for key in keys if key.variant == "fast-path-off"} == {"tierd-neoprof"}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_settings_that_the_service_takes(name: str) -> None:
    variant = VARIANTS[name]
    changed = [tuning.parse_override(each) for each in variant.internal]
    assert (loads(variant.toml) == loads("") and not changed) == (name == "defaults")
    assert set(variant.methods) <= {each for each in METHODS if each.startswith("tierd-")}


def test_seeds_are_numbers_with_commas() -> None:
    assert seeds("3,1,3") == [3, 1]
    for wrong in ("", "1,", "0", "1000", "a"):
        with pytest.raises(ValueError):
            seeds(wrong)


def ran(seed: int, seconds: float, **facts: Any) -> Cell:
    facts = {"seed": seed, "host_s": {"done": seconds * 9}, **facts}
    return Cell("a", "x", seconds, facts=facts, seed=seed)


def test_two_runs_are_compared_in_all_but_the_hosts_time() -> None:
    first = ran(1, 2.0, dump="ab")
    assert differences(first, ran(1, 2.0, dump="ab", host_s={"done": 1})) == []
    assert differences(first, ran(1, 2.0, dump="cd")) == ["facts.dump"]
    assert differences(first, ran(1, 2.0)) == ["facts.dump"]
    assert differences(ran(1, 2.0), ran(1, 2.000000001)) == ["seconds"]


@pytest.mark.parametrize("second", [2.0, 2.5])
def test_a_cell_that_runs_twice_has_to_be_the_same_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], second: float
) -> None:
    class Runs:
        counted: ClassVar[dict[Any, bytes]] = {}
        left: ClassVar[list[float]] = [2.0, second]

        def run(self, workload: Workload, method: str, **how: Any) -> Cell:
            assert (how["variant"], how["seed"]) == ("change-off", 2)
            return Cell(workload.name, method, self.left.pop(0), variant="change-off", seed=2)

    file = ResultFile(tmp_path / "results.jsonl")
    matrix = Matrix(cast(Runner, Runs()), file, {}, twice=True)
    key = Key("updates", "tierd-scan", "change-off", 2)
    assert matrix.run(WORKLOADS["updates"], key).seconds == 2.0
    assert matrix.different == ([] if second == 2.0 else [key])
    said = "are the same" if second == 2.0 else "differ in seconds"
    assert f"updates / tierd-scan/change-off, seed 2: two runs {said}" in capsys.readouterr().err
    assert file.cells[key].seconds == 2.0


def test_the_oracle_gets_the_counts_of_its_own_seed(tmp_path: Path) -> None:
    asked: list[tuple[str, int, bool]] = []

    class Runs:
        counted: ClassVar[dict[Any, bytes]] = {(WORKLOADS["updates"], 1): b""}

        def run(self, workload: Workload, method: str, **how: Any) -> Cell:
            asked.append((method, how["seed"], how["pages"]))
            return Cell(workload.name, method, 1.0, seed=how["seed"])

    matrix = Matrix(cast(Runner, Runs()), ResultFile(tmp_path / "f"), {}, twice=False)
    for seed in (1, 2):
        matrix.run(WORKLOADS["updates"], Key("updates", "oracle", seed=seed))
    assert asked == [("oracle", 1, False), ("first-touch", 2, True), ("oracle", 2, False)]


def test_lines_from_before_there_were_seeds_are_read(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    lines: list[dict[str, Any]] = [
        {"workload": "a", "method": "x", "seconds": 1.0, "facts": {"seed": 1}},
        {"workload": "a", "method": "x", "seconds": 2.0, "facts": {"seed": 1003}},
        {"workload": "b", "method": "x", "seconds": 3.0, "facts": {}},
        {"workload": "c", "method": "x", "seconds": None, "why": "QEMU ended"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    file = ResultFile(path)
    assert file.damaged == 0
    assert [*file.cells] == [
        Key("a", "x"),
        Key("a", "x", seed=3),  # it could not be begun with seed 3
        Key("b", "x"),
        Key("c", "x"),
    ]
    assert {cell.variant for cell in file.cells.values()} == {"defaults"}
