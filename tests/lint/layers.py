# SPDX-License-Identifier: Apache-2.0
"""Checks that imports point one way: layers.py, exit status 1 if one does not.

A package may import the packages that `BELOW` lists for it, and nothing else of tierd. Imports
under TYPE_CHECKING and inside functions count as well. docs/develop/layout.md shows the order.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

DAEMON = Path(__file__).resolve().parents[2] / "daemon"
BASE = {"core", "_native"}
STATE = BASE | {"config", "topology", "workloads", "hotness"}
DECIDE = STATE | {"sources", "policy", "migration"}
BELOW: dict[str, set[str]] = {
    "core": {"_native"},
    "config": BASE,
    "hotness": BASE,
    "topology": BASE,
    "workloads": BASE | {"config"},
    "sources": STATE,
    "policy": STATE,
    "migration": STATE,
    "doctor": DECIDE,
    "observe": DECIDE | {"doctor"},
    "engine": DECIDE | {"doctor", "observe"},
    "replay": DECIDE | {"observe", "engine"},
    "report": DECIDE | {"observe", "replay"},
    "control": DECIDE | {"doctor", "observe", "engine"},
    "cli": DECIDE | {"doctor", "observe", "engine", "replay", "report", "control"},
    "tierd_gpu": BASE | {"config"},
}
OPTIONAL = {
    ("engine", "replay"): "build has a recorder told of decisions where one was asked for",
    ("engine", "tierd_gpu"): "build starts GPU lending where it is configured",
    ("doctor", "tierd_gpu"): "doctor says whether NVML answers",
}
"""Imports of an optional part, which have to stand inside a function."""


def package(module: str) -> str:
    """The package of a dotted module: what stands after `tierd`, or the top-level package."""
    parts = module.split(".")
    return parts[1] if parts[0] == "tierd" and len(parts) > 1 else parts[0]


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Dotted names that a file imports, their lines, and whether each stands inside a function."""
    tree = ast.parse(path.read_text())
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for name in node.names:
                whole = node.module if node.module != "tierd" else f"tierd.{name.name}"
                yield whole, node.lineno, id(node) in inner
        elif isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node.lineno, id(node) in inner


def wrong(path: Path) -> Iterator[str]:
    """Imports of a file that point the wrong way."""
    own = package(".".join(path.relative_to(DAEMON).with_suffix("").parts))
    if own == "__init__":
        return
    for name, line, inside in imports(path):
        other = package(name)
        if name.split(".")[0] not in ("tierd", "tierd_gpu") or other in (own, "__version__"):
            continue
        if (own, other) in OPTIONAL:
            if not inside:
                yield f"{path}:{line}: {name} is optional: import it inside a function"
        elif other not in BELOW[own]:
            yield f"{path}:{line}: {own} may not import {other} ({name})"


def main() -> int:
    """0 if all imports point one way."""
    found = [
        text
        for folder in ("tierd", "tierd_gpu")
        for path in sorted((DAEMON / folder).rglob("*.py"))
        for text in wrong(path)
    ]
    for text in found:
        print(text, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
