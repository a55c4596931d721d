# SPDX-License-Identifier: Apache-2.0
"""The copy of the sources that DKMS builds from is complete without the rest of the tree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

KMOD = Path(__file__).resolve().parents[3] / "kmod"
RELEASES = {
    "5.10.0-30-amd64": False,
    "6.0.12-amd64": False,
    "6.1.0-56-amd64": True,
    "6.6.87": True,
    "6.12.95+deb12-amd64": True,
    "6.18.5": True,
    "7.2.13+deb14-amd64": True,
    "7.3.4+deb13-amd64": True,
    "7.4.0-amd64": False,
    "8.1.2": False,
    "61.3.0": False,
}
"""Whether DKMS builds the module for it."""


def conf() -> dict[str, str]:
    """The settings of dkms.conf."""
    return dict(re.findall(r'^(\w+)="(.*)"$', (KMOD / "dkms.conf").read_text(), re.M))


@pytest.mark.parametrize(("release", "builds"), RELEASES.items())
def test_dkms_builds_for_the_kernels_that_were_compiled_and_for_no_other(
    release: str, builds: bool
) -> None:
    given = conf()
    pattern = re.search(given["BUILD_EXCLUSIVE_KERNEL"], release) is not None
    number = tuple(map(int, re.findall(r"\d+", release.partition("-")[0])[:3]))
    least, most = (
        tuple(map(int, given[f"BUILD_EXCLUSIVE_KERNEL_{end}"].split("."))) for end in ("MIN", "MAX")
    )
    assert (pattern, least <= number <= most) == (builds, builds)


def test_dkms_builds_for_the_tried_architecture_only() -> None:
    pattern = conf()["BUILD_EXCLUSIVE_ARCH"]
    machines = ("x86_64", "aarch64", "i686", "ppc64le", "riscv64")
    assert [each for each in machines if re.search(pattern, each)] == ["x86_64"]


def test_the_copy_for_dkms_has_every_source_and_every_header(tmp_path: Path) -> None:
    copy = tmp_path / "tierd"
    subprocess.run(["make", "-s", "-C", str(KMOD), "source", f"SOURCE={copy}"], check=True)
    assert 'PACKAGE_NAME="tierd"' in (copy / "dkms.conf").read_text()
    lines = re.findall(r"^tierd(?:_neoprof)?-y .=(.+)", (copy / "Kbuild").read_text(), re.M)
    sources = {copy / f"{name}.c" for name in re.findall(r"(\w+)\.o\b", " ".join(lines))}
    assert {path for path in sources if not path.is_file()} == set()
    # What is for tests only, such as the driver of simulated cards, is not there.
    assert sources == set(copy.glob("*.c"))
    for path in copy.rglob("*.[ch]"):
        for name in re.findall(r'^#include "(.+)"', path.read_text(), re.M):
            assert (path.parent / name).is_file(), f"{path.name} includes {name}"
