# SPDX-License-Identifier: Apache-2.0
"""Links and paths in documents lead to files that are there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LINK = re.compile(r"\]\(([^)\s]+)\)")
MENTION = re.compile(r"\bdocs/[\w./-]*\.md\b")
BUILT = {"build", ".venv", ".git", "node_modules"}


def files(*suffixes: str) -> Iterator[Path]:
    """Files of the tree that nobody builds."""
    for folder, inner, names in os.walk(ROOT):
        inner[:] = sorted(set(inner) - BUILT)
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(suffixes))


def anchors(path: Path) -> set[str]:
    """The names of a document's headings, as they are linked to."""
    found = set()
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            plain = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            found.add(plain.replace(" ", "-"))
    return found


@pytest.mark.parametrize("path", list(files(".md")), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    for link in LINK.findall(path.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


def test_every_document_that_is_named_is_there() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files(".md", ".py", ".c", ".h", ".cc", ".toml", ".sh", ".service", ".rdl")
        for name in MENTION.findall(path.read_text(errors="replace"))
        if not (ROOT / name).exists()
    ]
    assert wrong == []
