# SPDX-License-Identifier: Apache-2.0
"""The benchmark's workloads: right answers, the same each time, and a lost page is noticed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

BUILT = Path(__file__).resolve().parents[2] / "build/workloads"
WORK = {
    "updates": 100_000,
    "moving": 100_000,
    "pagerank": 2,
    "bfs": 2,
    "lookup": 20_000,
    "btree": 50_000,
    "oltp": 5_000,
    "stencil": 3,
    "chase": 50_000,
    "stream": 3,
    "mixed": 6,
    "spots": 20,
    "streams": 6,
    "tenants": 6,
    "analytics": 6,
    "restless": 300,
    "sqlite": 5_000,
    "redis": 5_000,
}


def run(name: str, *options: str) -> tuple[int, dict[str, Any]]:
    command = [BUILT / name, "--size", "8M", "--work", str(WORK[name]), *options]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=300, check=False
    )
    told = {line["event"]: line for line in map(json.loads, done.stdout.splitlines())}
    ready, end = told["ready"], told["end"]
    assert ready["workload"] == end["workload"] == name
    return done.returncode, end


@pytest.mark.parametrize("name", WORK)
def test_a_workload_checks_its_answer_and_another_seed_gives_another(name: str) -> None:
    status, end = run(name)
    assert status == 0
    assert end["ok"] is True
    assert 4 << 20 <= end["bytes"] <= 10 << 20
    assert end["operations"] >= WORK[name]
    if name != "oltp":  # its threads race for records
        assert run(name)[1]["answer"] == end["answer"]
    assert run(name, "--seed", "2")[1]["answer"] != end["answer"]


@pytest.mark.parametrize("name", WORK)
def test_a_page_that_lost_its_content_is_noticed(name: str) -> None:
    status, end = run(name, "--spoil")
    assert status == 1
    assert end["ok"] is False


def test_the_measured_region_begins_when_the_launcher_says_so() -> None:
    command = [BUILT / "stencil", "--size", "1M", "--work", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["pid"] == process.pid
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["ok"] is True


@pytest.mark.parametrize("options", [["--size", "1K"], ["--size", "x"], ["--work", "0"], ["extra"]])
def test_a_wrong_option_is_one_message(options: list[str]) -> None:
    done = subprocess.run(
        [BUILT / "btree", *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout
