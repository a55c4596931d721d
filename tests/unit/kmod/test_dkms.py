# SPDX-License-Identifier: Apache-2.0
"""The copy of the sources that DKMS builds from is complete without the rest of the tree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

KMOD = Path(__file__).resolve().parents[3] / "kmod"


def test_the_copy_for_dkms_has_every_source_and_every_header(tmp_path: Path) -> None:
    copy = tmp_path / "tierd"
    subprocess.run(["make", "-s", "-C", str(KMOD), "source", f"SOURCE={copy}"], check=True)
    assert 'PACKAGE_NAME="tierd"' in (copy / "dkms.conf").read_text()
    lines = re.findall(r"^tierd-y .=(.+)", (copy / "Kbuild").read_text(), re.M)
    sources = {copy / f"{name}.c" for name in re.findall(r"(\w+)\.o\b", " ".join(lines))}
    assert {path for path in sources if not path.is_file()} == set()
    assert sources == set(copy.glob("*.c"))
    for path in copy.rglob("*.[ch]"):
        for name in re.findall(r'^#include "(.+)"', path.read_text(), re.M):
            assert (path.parent / name).is_file(), f"{path.name} includes {name}"
