# SPDX-License-Identifier: Apache-2.0
"""The text against golden files, the JSON against its documented keys.

A golden file is changed by hand, or written anew with TIERD_GOLDEN=write and looked at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tierd import topology
from tierd.cli import main
from tierd.topology.render import as_json, as_text, format_list

Tree = Callable[..., Path]
FIXTURES = Path(__file__).parents[2] / "fixtures" / "sysfs"
GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in FIXTURES.glob("*.txt"))


@pytest.mark.parametrize("name", NAMES)
def test_text_is_as_in_the_golden_file(tree: Tree, name: str) -> None:
    text = as_text(topology.read(tree(name)))
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("TIERD_GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert golden.read_text() == text


def test_json_has_the_documented_keys(tree: Tree) -> None:
    shown = json.loads(json.dumps(as_json(topology.read(tree("lab-dram-cxl")))))
    assert sorted(shown) == ["differences", "excluded", "nodes", "notes", "schema", "tiers"]
    assert shown["schema"] == 1
    assert shown["tiers"][1] == {
        "rank": 1,
        "name": "cxl",
        "kind": "cxl",
        "nodes": [1],
        "capacity_bytes": 1957472 * 1024,
        "latency_ns": {"value": 430.0, "provenance": "hmat"},
        "bandwidth_bytes_per_s": {"value": 16384e6, "provenance": "hmat"},
        "promotes_to": "dram",
        "demotes_to": None,
        "kernel_tiers": [117],
    }
    assert shown["nodes"][1] == {
        "node": 1,
        "tier": "cxl",
        "kind": "cxl",
        "size_bytes": 1957472 * 1024,
        "cpus": [],
        "initiators": [0],
        "latency_ns": {"value": 430.0, "provenance": "hmat"},
        "bandwidth_bytes_per_s": {"value": 16384e6, "provenance": "hmat"},
        "write_latency_ns": {"value": 430.0, "provenance": "hmat"},
        "write_bandwidth_bytes_per_s": {"value": 16384e6, "provenance": "hmat"},
        "distances": {"0": 20, "1": 10},
        "kernel_tier": 117,
        "devices": [],
    }


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2], "0-2"), ([8, 0, 1, 3], "0-1,3,8")]
)
def test_lists_are_written_as_the_kernel_does(numbers: list[int], text: str) -> None:
    assert format_list(numbers) == text


def test_the_command_reads_a_captured_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "--json", "--root", str(FIXTURES / "xeon-max-flat.txt")]) == 0
    assert [t["name"] for t in json.loads(capsys.readouterr().out)["tiers"]] == ["dram", "hbm"]


def test_a_root_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "--root", "/nonexistent/place"]) == 5
    assert capsys.readouterr().err.startswith("tierd topology: there is no /nonexistent/place\n")
