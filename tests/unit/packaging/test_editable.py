# SPDX-License-Identifier: Apache-2.0
"""The packages beside the service are installed by a path, not by code that each Python runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"


@pytest.mark.parametrize("folder", ["tests/lab", "fpga/python"])
def test_an_editable_installation_is_one_path(folder: str, tmp_path: Path) -> None:
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    shutil.copytree(
        ROOT / folder, source, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
    )
    wheels.mkdir()
    subprocess.run(
        [sys.executable, "-c", BUILD, str(wheels)], cwd=source, check=True, capture_output=True
    )
    (made,) = wheels.glob("*.whl")
    with zipfile.ZipFile(made) as wheel:
        (path,) = (name for name in wheel.namelist() if ".dist-info/" not in name)
        assert path.endswith(".pth")
        assert wheel.read(path).decode().split() == [str(source)]
