# SPDX-License-Identifier: Apache-2.0
"""Which node memory is asked from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tierd.core import process as mempolicy
from tierd.core.process import preferring, roomiest_node


def host(root: Path, *free_kib: int | None) -> Path:
    """A host whose nodes have so much free memory; None: the node does not tell."""
    for node, kib in enumerate(free_kib):
        folder = root / mempolicy.NODES / f"node{node}"
        folder.mkdir(parents=True)
        told = "" if kib is None else f"Node {node} MemFree:{kib:>16} kB\n"
        (folder / "meminfo").write_text(f"Node {node} MemTotal:   99999999 kB\n{told}")
    return root


@pytest.mark.parametrize(
    ("free", "node"),
    [
        ((100, 2000), 1),
        ((2000, 100), 0),
        ((7, 7), 0),
        ((5, None, 9, 8), 2),
        ((100,), None),
        ((), None),
    ],
)
def test_the_node_with_the_most_free_memory(
    tmp_path: Path, free: tuple[int | None, ...], node: int | None
) -> None:
    assert roomiest_node(host(tmp_path, *free)) == node


@pytest.mark.parametrize("node", [None, -1, 1024, 1023])
def test_without_such_a_node_nothing_changes(node: int | None) -> None:
    with preferring(node) as prefers:
        assert not prefers


def test_a_policy_that_cannot_come_back_is_told_and_the_kernels_own_holds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    restored: list[int] = []

    class Lib:
        @staticmethod
        def tierd_mempolicy_prefer(node: int, before: Any) -> int:
            before.mode = 2
            return 0

        @staticmethod
        def tierd_mempolicy_restore(before: Any) -> int:
            restored.append(before.mode)
            return -22 if before.mode else 0

    monkeypatch.setattr(mempolicy, "lib", Lib)
    with preferring(0) as prefers:
        assert prefers
    assert restored == [2, 0]
    assert "event=mempolicy_lost" in caplog.text
