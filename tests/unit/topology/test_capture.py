# SPDX-License-Identifier: Apache-2.0
"""Capturing a tree and unpacking it gives the same topology."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tierd import topology
from tierd.core.errors import UnavailableError
from tierd.topology.render import capture, unpack

Tree = Callable[..., Path]
FIXTURES = Path(__file__).parents[2] / "fixtures" / "sysfs"


@pytest.mark.parametrize("name", ["lab-dram-cxl", "two-socket-cxl", "xeon-max-flat"])
def test_a_captured_tree_reads_the_same(tree: Tree, tmp_path: Path, name: str) -> None:
    root = tree(name)
    again = unpack(capture(root), tmp_path / "again")
    assert topology.read(again) == topology.read(root)


def test_content_survives_tabs_newlines_and_backslashes(tmp_path: Path) -> None:
    root = unpack("a/b\tone\\ttwo\\nthree \\\\n\n# remark\nempty/\n", tmp_path)
    assert (root / "a/b").read_text() == "one\ttwo\nthree \\n\n"
    assert (root / "empty").is_dir()


@pytest.mark.parametrize(
    "line", ["/etc/passwd\tx", "../x\ty", "a/../../x\ty", "no tab here", "a\t-> ../../../etc"]
)
def test_a_line_that_leads_out_or_is_malformed_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(UnavailableError, match="line 1"):
        unpack(line, tmp_path / "root")
