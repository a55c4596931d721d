# SPDX-License-Identifier: Apache-2.0
"""Keeps the house small: house.py [--json], exit status 1 if a bound of `BOUNDS` is passed.

The bounds are what the tree has reached. A change that lowers a figure lowers its bound as well; a
change that raises one removes something else first.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DAEMON = ROOT / "daemon/tierd"
NATIVE = ROOT / "daemon/native"
DECIDING = ("engine", "policy", "sources", "hotness", "migration", "workloads")
"""Packages whose tuning constants belong to core/tuning, their bounds to core/bounds.py, and the
kernel's numbers to core/linux.py."""
BOUNDS = {
    "python_lines": 44635,
    "python_modules": 235,
    "native_lines": 7780,
    "loose_constants": 0,
    "private_words": 0,
    "branchy_functions": 0,
    "long_functions": 0,
}
MOST_BRANCHES = 15
MOST_LINES = 60
PRIVATE = frozenset(
    [
        "look",
        "looks",
        "looking",
        "exposure",
        "exposing",
        "stillness",
        "sudden",
        "leap",
        "beyond",
        "surroundings",
        "briefing",
        "companion",
        "rooms",
        "room",
        "news",
        "newcomers",
        "payback",
        "bounce",
        "bounced",
        "startle",
        "haste",
        "wary",
        "refuge",
        "stirred",
        "climb",
        "slices",
        "told",
        "tells",
    ]
)
"""Words that no kernel document, specification or paper has for what they meant here."""
BRANCHES = (
    ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.With, ast.Assert,
    ast.comprehension, ast.BoolOp,
)  # fmt: skip


def lines(path: Path) -> int:
    """Lines of a file."""
    return len(path.read_text().splitlines())


def words(name: str) -> set[str]:
    """The words of an identifier, in lower case."""
    return set(re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()))


def loose_constants(path: Path, tree: ast.Module) -> Iterator[str]:
    """Numeric module-level constants of a deciding package outside core/tuning."""
    where = path.relative_to(DAEMON)
    if where.parts[0] not in DECIDING:
        return
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target: ast.expr = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        else:
            continue
        if not isinstance(target, ast.Name) or not target.id.isupper() or node.value is None:
            continue
        numbers = (
            isinstance(part, ast.Constant) and type(part.value) in (int, float)
            for part in ast.walk(node.value)
        )
        if any(numbers):
            yield f"{path.relative_to(ROOT)}:{node.lineno} {target.id}"


def figures() -> dict[str, list[str]]:
    """Each figure's places; a figure is their number."""
    found: dict[str, list[str]] = {name: [] for name in BOUNDS}
    modules = sorted(DAEMON.rglob("*.py"))
    for path in modules:
        tree, where = ast.parse(path.read_text()), path.relative_to(ROOT)
        found["python_modules"].append(str(where))
        found["python_lines"] += [str(where)] * lines(path)
        found["loose_constants"] += loose_constants(path, tree)
        found["private_words"] += [f"{where} {word}" for word in words(path.stem) & PRIVATE]
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                place = f"{where}:{node.lineno} {node.name}"
                found["private_words"] += [place for _ in words(node.name) & PRIVATE]
            if isinstance(node, ast.FunctionDef):
                if 1 + sum(isinstance(part, BRANCHES) for part in ast.walk(node)) > MOST_BRANCHES:
                    found["branchy_functions"].append(place)
                if (node.end_lineno or node.lineno) - node.lineno > MOST_LINES:
                    found["long_functions"].append(place)
    for path in sorted(NATIVE.rglob("*.[ch]")):
        if "gpu" not in path.parts and not path.name.startswith("_native"):
            found["native_lines"] += [str(path.relative_to(ROOT))] * lines(path)
    return found


def main() -> int:
    """0 if every figure is within its bound."""
    found = figures()
    passed = [name for name, bound in BOUNDS.items() if len(found[name]) > bound]
    if "--json" in sys.argv[1:]:
        print(json.dumps({name: len(places) for name, places in found.items()}))
    for name in passed:
        print(f"house: {name} is {len(found[name])}, more than {BOUNDS[name]}", file=sys.stderr)
        if not name.endswith("_lines"):
            print(*(f"  {place}" for place in found[name][-20:]), sep="\n", file=sys.stderr)
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main())
