# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs under the shim, and the run for real GPUs, on the stand-in driver.

TIERD_GPU_MOVES=1000000 makes the programs go on until so many commands were carried out.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests/fakegpu"), str(TOP / "tests/bench/gpu")]

import standin  # noqa: E402
from gpu_lines import Report  # noqa: E402

from tierd_gpu import programs, wire  # noqa: E402
from tierd_gpu.harvest import Harvester  # noqa: E402
from tierd_gpu.links import Gpu, GpuTopology  # noqa: E402
from tierd_gpu.session import tenants  # noqa: E402
from tierd_gpu.tenant import TenantSpec  # noqa: E402

SOME = 50
MOVES = int(os.environ.get("TIERD_GPU_MOVES", SOME))
PROGRAM = TOP / "tests/workloads/gpu/program.py"
TRACES = TOP / "tests/workloads/gpu/traces"
REAL_RUN = TOP / "tests/bench/gpu"
WAIT_S = 600.0


def environment(folder: Path, gpu_mib: int) -> dict[str, str]:
    standin.build()
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(standin.FAKE),
        "FAKEGPU_WORLD": str(folder / "world"),
        "FAKEGPU_TOPOLOGY": "v100x4",
        "FAKEGPU_GPU_BYTES": str(gpu_mib << 20),
        "FAKEGPU_PAYLOAD": "64",
        "FAKEGPU_BATCH": "1",
        "FAKEGPU_CONTEXT_BYTES": str(16 << 20),
    }


@contextlib.contextmanager
def served(folder: Path, around: dict[str, str], mib: int) -> Iterator[list[dict[str, Any]]]:
    """A daemon that thinks the GPU has `mib`; what its tenants did is there at the end."""
    lines: list[dict[str, Any]] = []
    daemon = subprocess.Popen(
        [sys.executable, str(REAL_RUN / "served.py"), str(folder / "gpu.sock"), str(mib)],
        env=around, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "ready\n"
        yield lines
        out, _ = daemon.communicate("")
        lines += [json.loads(line) for line in out.splitlines()]
    finally:
        daemon.kill()
        daemon.communicate()


class Program:
    """tests/workloads/gpu/program.py, which knows nothing of tierd."""

    def __init__(self, trace: str, around: dict[str, str], mode: str, socket: Path) -> None:
        shim = {"LD_PRELOAD": str(standin.SHIM), "TIERD_GPU": mode, "TIERD_GPU_SOCKET": str(socket)}
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(TRACES / f"{trace}.txt.gz")],
            env=around | shim, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._line() == "started"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def steps(self, count: int) -> tuple[int, int]:
        """So many more; steps made and blocks found wrong in all."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        made, wrong = self._line().split()
        return int(made), int(wrong)

    def end(self) -> int:
        """Its exit code."""
        self.process.communicate()
        return self.process.returncode


def shown(folder: Path, launches: int) -> dict[str, Any]:
    """The one program that the daemon serves, once it has told of so many launches."""
    end = time.monotonic() + WAIT_S
    while True:
        rows = programs.ask(folder / "gpu.sock")
        assert not isinstance(rows, str), rows
        if rows and int(rows[0]["launches"]) >= launches and rows[0]["chunks"]:
            return programs.as_json(rows[0])
        assert time.monotonic() < end, rows
        time.sleep(0.05)


@pytest.mark.parametrize(("trace", "mib"), [("torch-train", 2560), ("torch-infer", 640)])
def test_what_pytorch_launches_is_placed_and_moved_without_a_word_from_it(
    tmp_path: Path, trace: str, mib: int
) -> None:
    """More memory than the GPU is said to have: chunks go and come back, no byte is wrong."""
    around = environment(tmp_path, 8192)
    ordered = 0
    while ordered < MOVES:
        with served(tmp_path, around, mib) as lines:
            program = Program(trace, around, "borrow", tmp_path / "gpu.sock")
            end = time.monotonic() + WAIT_S
            one: dict[str, Any] = {"on_host_bytes": 0}
            # Once the right chunks are away, no more of them move.
            while not one["on_host_bytes"] or one["moves_ordered"] < SOME:
                assert program.steps(1)[1] == 0
                one = shown(tmp_path, 1)
                assert time.monotonic() < end, one
            assert program.steps(20)[1] == 0
            assert program.end() == 0
        # One line, but for a program that had no processor for so long that it connected again.
        ordered += sum(int(line["commands"]) for line in lines)
        predicted, not_predicted = (
            sum(line[key] for line in lines) for key in ("predicted", "not_predicted")
        )
        assert predicted > 4 * not_predicted


@pytest.mark.parametrize("mode", ["off", "lend"])
def test_a_program_that_does_not_borrow_is_left_alone(tmp_path: Path, mode: str) -> None:
    around = environment(tmp_path, 8192)
    with served(tmp_path, around, 2560) as lines:
        program = Program("torch-infer", around, mode, tmp_path / "gpu.sock")
        assert program.steps(2) == (2, 0)
        assert program.end() == 0
    assert not [line for line in lines if line["uses"] or line["commands"]]


def test_show_names_the_programs_and_what_keeps_one_from_being_served(tmp_path: Path) -> None:
    around = environment(tmp_path, 8192)
    assert "no daemon answers" in str(programs.ask(tmp_path / "gpu.sock"))
    with served(tmp_path, around, 2560):
        assert programs.as_text(list(programs.ask(tmp_path / "gpu.sock"))) == (
            "no program is served\n"
        )
        program = Program("torch-infer", around, "borrow", tmp_path / "gpu.sock")
        program.steps(3)
        one = shown(tmp_path, 3 * 85)
        assert one["note"] == ""
        assert one["uses"] > 0
        assert 0 < one["at_home_bytes"] <= one["memory_bytes"], "what is used has a place"
        assert program.end() == 0
        code = (
            "import ctypes, sys; cu = ctypes.CDLL('libcuda.so.1'); cu.cuInit(0)\n"
            "c = ctypes.c_void_p(); cu.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)\n"
            "cu.cuCtxPushCurrent_v2(c); at = ctypes.c_uint64()\n"
            "assert cu.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(64 << 20)) == 0\n"
            "sys.stdin.read()"
        )
        shim = {"LD_PRELOAD": str(standin.SHIM), "TIERD_GPU": "borrow",
                "TIERD_GPU_SOCKET": str(tmp_path / "gpu.sock")}  # fmt: skip
        idle = subprocess.Popen([sys.executable, "-c", code], env=around | shim,
                                stdin=subprocess.PIPE)  # fmt: skip
        assert "no launch of it was seen" in str(shown(tmp_path, 0)["note"])
        idle.communicate()


@pytest.mark.parametrize("count", [0, 1, wire.most(wire.Kind.TENANTS), 300])
def test_a_list_of_programs_ends_whatever_its_length(count: int) -> None:
    core = Harvester(GpuTopology((Gpu(0, bytes(16), "gpu", 1 << 30),), np.ones((2, 2)),
                                 np.zeros((1, 1), np.int64)))  # fmt: skip
    for session in range(count):
        core.join(TenantSpec(session, 0, 0, max_chunks=1))
    messages = [wire.decode(message)[1] for message in tenants(core)]
    assert sum(map(len, messages)) == count
    assert len(messages[-1]) < wire.most(wire.Kind.TENANTS)
    assert all(len(part) == wire.most(wire.Kind.TENANTS) for part in messages[:-1])


def real_run(around: dict[str, str], *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(REAL_RUN), *more], capture_output=True, text=True, check=False,
        env=around,
    )  # fmt: skip


def test_where_there_is_no_gpu_the_real_run_says_so() -> None:
    ran = real_run(dict(os.environ), "--driver", "no-such-driver.so")
    assert ran.returncode == 5
    assert "nothing was measured" in ran.stdout


def test_the_real_run_finds_every_rule_kept_by_the_stand_in(tmp_path: Path) -> None:
    out = tmp_path / "lines.jsonl"
    ran = real_run(environment(tmp_path, 1024), "--only", "driver,reclaim", "--mib", "64",
                   "--out", str(out))  # fmt: skip
    lines = {line["step"]: line for line in map(json.loads, out.read_text().splitlines())}
    assert lines.keys() >= {"machine", "retained", "rates", "cleared", "reclaim"}
    broken = {step for step, line in lines.items() if line.get("holds") is False}
    assert (ran.returncode, broken) == (0, set())
    assert "GPU" not in str(lines["machine"]["gpu"])


def test_the_real_run_keeps_what_was_printed_before_a_part_ended_badly(tmp_path: Path) -> None:
    report = Report(tmp_path / "lines.jsonl")
    code = 'print(\'{"step": "one"}\', flush=True); import time; time.sleep(600)'
    report.run("part", [sys.executable, "-c", code], 2)
    text = (tmp_path / "lines.jsonl").read_text()
    assert [json.loads(line)["step"] for line in text.splitlines()] == ["one", "ended"]
    assert report.broken == ["part: ended"]


def test_losses_that_differ_from_the_plain_runs_are_told(tmp_path: Path) -> None:
    report = Report(None)
    report.say("torch none", {"step": "train", "losses": ["0x1.0p+0", "0x1.8p-1"]})
    report.say("torch lend", {"step": "train", "losses": ["0x1.0p+0", "0x1.8p-1"]})
    assert not report.broken
    report.say("served", {"step": "train", "losses": ["0x1.0p+0", "0x1.9p-1"]})
    assert report.broken == ["served: train"]
