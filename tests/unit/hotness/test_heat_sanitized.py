# SPDX-License-Identifier: Apache-2.0
"""The C code of heat under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[2] / "daemon" / "native"


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None, "building tierd needs a C compiler"
    program = tmp_path_factory.mktemp("heat_fuzz") / "heat_fuzz"
    sources = [HERE / "heat_fuzz.c", HERE / "heat_check.c", *sorted(NATIVE.glob("heat*.c"))]
    flags = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run(
        [compiler, *flags, *sanitize, f"-I{NATIVE}", "-o", program, *sources, "-lm"], check=True
    )
    return program


@pytest.mark.parametrize("capacity", [1, 7, 600, 5000, 40000])
def test_random_use_is_sound(fuzz: Path, capacity: int) -> None:
    done = subprocess.run(
        [fuzz, str(capacity), "300", str(capacity)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
