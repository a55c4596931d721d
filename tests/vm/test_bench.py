# SPDX-License-Identifier: Apache-2.0
"""Small cells of the benchmark: what is measured, that methods do something, and that a cell
repeats; and that every instruction is found in some function."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/bench/tiering"))

from hotspots import Function, by_function
from results import Cell, differences
from runner import Runner

from tierd_lab import Machine
from workloads import MIB, Workload

ROOT = Path(__file__).resolve().parents[2]
SMALL = Workload("updates", 400_000, "", size=32 * MIB, fast=11 * MIB)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the blocks of the last cell of `cells` are counted."""
    return tmp_path_factory.mktemp("blocks") / "blocks"


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    for folder, target in (("fpga", "lab"), ("tests/workloads", "all")):
        subprocess.run(["make", "-s", "-C", ROOT / folder, target], check=True)
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads/suite"], check=True)
    with Runner(Machine.load("bench")) as runner:
        yield runner


@pytest.fixture(scope="module")
def restless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library under which QEMU's main loop looks at the vCPU all the time."""
    library = tmp_path_factory.mktemp("restless") / "restless.so"
    source = ROOT / "tests/support/restless.c"
    subprocess.run(["cc", "-O2", "-Wall", "-shared", "-fPIC", source, "-o", library], check=True)
    return library


@pytest.fixture(scope="module")
def cells(runner: Runner, blocks: Path, restless: Path) -> dict[str, Cell]:
    """A cell in which nothing moves, one with a daemon that samples misses, and that again.

    Instructions of the latter two are counted by function as well. The last one's QEMU has a main
    loop that is awake when on a busy host it might be.
    """
    found = {"first-touch": runner.run(SMALL, "first-touch", pages=True)}
    runner.profile = blocks
    found["pebs-weak"] = runner.run(SMALL, "pebs-weak")
    runner.preloads = [restless]
    awake = restless.with_suffix(".awake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RESTLESS_FILE", str(awake))
        found["again"] = runner.run(SMALL, "pebs-weak")
    assert awake.exists()
    runner.profile, runner.preloads = None, []
    for cell in found.values():
        assert cell.seconds is not None, cell.why
    return found


def test_the_guests_clock_passes_with_modelled_time(cells: dict[str, Cell]) -> None:
    machine = Machine.load("bench")
    assert machine.time is not None
    scale = 1000 / machine.time.instruction_ps
    for cell in cells.values():
        assert cell.seconds is not None
        assert cell.facts["guest_s"] == pytest.approx(scale * cell.seconds, rel=0.02)


def test_the_same_cell_is_the_same_run(cells: dict[str, Cell]) -> None:
    first, again = cells["pebs-weak"], cells["again"]
    print(f"{first.seconds} s and {again.seconds} s")
    assert differences(first, again) == []
    assert first.facts["dump"]  # the requests of each page of the machine are among it


@pytest.mark.soak
def test_another_seed_is_another_run(runner: Runner, cells: dict[str, Cell]) -> None:
    other = runner.run(SMALL, "pebs-weak", seed=2)
    assert other.seconds is not None, other.why
    assert other.facts["dump"] != cells["pebs-weak"].facts["dump"]


@pytest.mark.soak
def test_the_oracle_serves_the_hot_tenth_fast(runner: Runner, cells: dict[str, Cell]) -> None:
    first, oracle = cells["first-touch"], runner.run(SMALL, "oracle")
    assert first.fast_share is not None
    assert oracle.fast_share is not None
    assert first.fast_share < 0.5
    assert oracle.fast_share > 0.85
    assert oracle.facts["method"]["placed"]["up"] > 0
    assert oracle.facts["moves"]["pgpromote_success"] == 0


def test_a_daemons_instructions_are_told_apart(cells: dict[str, Cell]) -> None:
    assert cells["first-touch"].instructions["daemon"] == 0
    sampled = cells["pebs-weak"]
    assert sampled.instructions["daemon"] > 0
    assert sampled.facts["method"]["samples"] > 0
    assert sampled.promoted > 0
    for cell in cells.values():
        # The same work, whoever runs beside it.
        assert cell.instructions["workload"] == pytest.approx(
            cells["first-touch"].instructions["workload"], rel=0.01
        )


def test_every_instruction_is_of_some_function(cells: dict[str, Cell], blocks: Path) -> None:
    cell = cells["again"]
    found = by_function(blocks.read_text(), blocks.with_suffix(".symbols").read_bytes())
    counted = {owner: sum(functions.values()) for owner, functions in found.items()}
    print(counted, cell.instructions)
    for owner, instructions in cell.instructions.items():
        # What a fault cuts off is counted by neither as it was; marks fall into a block.
        assert counted[owner] == pytest.approx(instructions, rel=0.001, abs=2000)
    daemon, kernel = found["daemon"], found["kernel"]
    interpreter = Path(sys.executable).resolve().name
    assert daemon[Function(interpreter, "_PyEval_EvalFrameDefault")] > counted["daemon"] / 20
    assert kernel[Function("kernel", "do_syscall_64")] > 0
    told = sum(n for function, n in daemon.items() if function.file == "?")
    assert told < counted["daemon"] / 100
