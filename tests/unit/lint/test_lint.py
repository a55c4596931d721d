# SPDX-License-Identifier: Apache-2.0
"""The project's own lint finds what it is there to find."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

LINT = Path(__file__).resolve().parents[2] / "lint"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, LINT / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        (
            "tierd/policy/x.py",
            "from tierd.engine.loop import Service\n",
            "policy may not import engine",
        ),
        ("tierd/core/x.py", "from tierd import config\n", "core may not import config"),
        (
            "tierd/hotness/x.py",
            "if TYPE_CHECKING:\n    import tierd.policy.cost\n",
            "may not import",
        ),
        ("tierd/engine/x.py", "import tierd_gpu.nvml\n", "inside a function"),
        ("tierd/engine/x.py", "def f():\n    import tierd_gpu.nvml\n", ""),
        ("tierd/engine/x.py", "from tierd.policy import cost\nimport numpy\n", ""),
    ],
)
def test_an_import_that_points_up_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, found: str
) -> None:
    layers = load("layers")
    monkeypatch.setattr(layers, "DAEMON", tmp_path)
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert [found in line for line in layers.wrong(path)] == ([True] if found else [])


def test_a_constant_a_private_word_and_a_long_function_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = load("house")
    daemon = tmp_path / "daemon/tierd"
    (daemon / "policy").mkdir(parents=True)
    (daemon / "core").mkdir()
    branches = "".join(f"    if a == {n}:\n        a += 1\n" for n in range(40))
    (daemon / "policy/x.py").write_text(f"LEAST = 4\n\ndef look(a):\n{branches}")
    (daemon / "core/tuning.py").write_text("LEAST = 4\n")
    for name, value in (("ROOT", tmp_path), ("DAEMON", daemon), ("NATIVE", tmp_path / "native")):
        monkeypatch.setattr(house, name, value)
    counts = {name: len(places) for name, places in house.figures().items()}
    assert counts == {
        "python_lines": 84,
        "python_modules": 2,
        "native_lines": 0,
        "loose_constants": 1,
        "private_words": 1,
        "branchy_functions": 1,
        "long_functions": 1,
    }
