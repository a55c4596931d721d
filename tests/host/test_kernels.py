# SPDX-License-Identifier: Apache-2.0
"""The module is built for every kernel that it claims, by the project and by DKMS."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from kernels import OLD, RELEASES, required
from module_build import build_module

ROOT = Path(__file__).resolve().parents[2]
KMOD = ROOT / "kmod"
NEWEST = RELEASES[0]


def undefined(module: Path) -> set[str]:
    """What a module asks of the kernel by name."""
    command = ["nm", "--undefined-only", "--format=posix", str(module)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line.split()[0] for line in told.splitlines()}


@pytest.mark.parametrize("release", RELEASES)
def test_the_module_builds_without_a_warning(release: str) -> None:
    kernel = required(release)
    assert "__flush_tlb_all" in undefined(build_module(kernel.version))


@pytest.mark.parametrize("release", [NEWEST, pytest.param(OLD, marks=pytest.mark.soak)])
def test_the_flush_of_later_kernels_asks_for_nothing_that_they_keep_to_themselves(
    release: str,
) -> None:
    built = build_module(required(release).version, "TIERD_FLUSH_BY_INVPCID")
    assert "__flush_tlb_all" not in undefined(built)


def test_nobody_has_the_module_loaded_by_asking_for_its_netlink_family() -> None:
    built = build_module(required(NEWEST).version)
    command = ["modinfo", "--field", "alias", str(built)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "net-pf-16" not in told


def test_a_warning_ends_the_projects_own_build_and_not_one_by_dkms(tmp_path: Path) -> None:
    kernel = required(NEWEST)
    copy = tmp_path / "tierd"
    subprocess.run(["make", "-s", "-C", str(KMOD), "source", f"SOURCE={copy}"], check=True)
    with (copy / "nodes.c").open("a") as source:
        source.write('#warning "what a newer compiler might say"\n')
    build = ["make", "-s", "-C", f"/lib/modules/{kernel.version}/build", f"M={copy}"]

    def ends(*options: str) -> bool:
        command = [*build, *options, "nodes.o"]
        return subprocess.run(command, check=False, capture_output=True).returncode != 0

    assert not ends()
    (copy / "nodes.o").unlink()
    assert ends("TIERD_WERROR=1")


@pytest.mark.soak
def test_functions_and_structures_are_documented_as_the_kernel_has_it() -> None:
    (script,) = (ROOT / "build/lab-kernels").glob("linux-*/scripts/kernel-doc")
    files = sorted(map(str, (*KMOD.glob("*.c"), *KMOD.glob("*.h"))))
    done = subprocess.run(
        ["perl", str(script), "-none", "-Wall", *files], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")
    function = r"^(?!static )[a-z][^\n;={}#]*?\b((?:tierd|neoprof)_\w+)\([^;{}]*\)\n\{"
    told = r"^ \* (?:struct )?(\w+)(?:\(\))? - "
    without: set[str] = set()
    for path in map(Path, files):
        text = path.read_text()
        for each in (function, r"^struct (\w+) \{"):
            without |= set(re.findall(each, text, re.M)) - set(re.findall(told, text, re.M))
    assert without == set()


@pytest.mark.soak
def test_sources_are_in_the_kernels_own_style() -> None:
    """By the checkpatch of the source that `make lab-kernels` unpacks."""
    (script,) = (ROOT / "build/lab-kernels").glob("linux-*/scripts/checkpatch.pl")
    # For one tree that builds on many kernels; and two that it takes for what they are not.
    passed = "LINUX_VERSION_CODE,CONSTANT_COMPARISON,MACRO_ARG_UNUSED"
    passed += ",EMBEDDED_FILENAME,EXPORT_SYMBOL"
    command = ["perl", str(script), "--no-tree", "--terse", "--no-summary", "--ignore", passed]
    files = sorted(map(str, (*KMOD.rglob("*.c"), *KMOD.rglob("*.h"))))
    done = subprocess.run([*command, "-f", *files], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.soak
def test_the_module_builds_for_the_newest_kernel_of_every_suite() -> None:
    told = subprocess.run(
        [str(KMOD / "kernels.sh")], check=True, capture_output=True, text=True
    ).stdout
    releases = [line.split()[1] for line in told.splitlines()]
    assert len(releases) >= 6
    pattern = re.search(r'^BUILD_EXCLUSIVE_KERNEL="(.+)"', (KMOD / "dkms.conf").read_text(), re.M)
    assert pattern is not None
    # One that is newer than what DKMS builds for: it compiles, so raise the maximum.
    assert [each for each in releases if not re.search(pattern[1], each)] == []
