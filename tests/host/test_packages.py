# SPDX-License-Identifier: Apache-2.0
"""The packages in a bare system (debootstrap, chroot): install, run, build the module, purge."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernels import OLD, RELEASES, required
from systemd_image import ROOT, Bare, built_packages

from tierd.core.errors import ExitCode

NEWEST = RELEASES[0]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap and chroot need root")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    """A bare system with both packages, and the headers of the newest kernel."""
    folder = tmp_path_factory.mktemp("packages")
    with Bare(folder / "machine") as system:
        system.bring_headers(required(NEWEST).version)
        for package in built_packages():
            system.put(package, f"root/{package.name}", mode=0o644)
        yield system


def test_the_service_package_installs_and_works_from_its_own_files(bare: Bare) -> None:
    assert bare.run("sh", "-c", "dpkg -i /root/tierd_*.deb").returncode == 0
    assert bare.run("tierd", "--version").stdout.startswith("tierd ")
    assert "/etc/tierd/tierd.toml" in bare.run("tierd", "config", "check").stdout
    # Every setting is commented out, so that the profile counts.
    assert bare.run("tierd", "config", "diff").stdout == ""
    conf = bare.root / "etc/tierd/tierd.toml"
    conf.write_text(conf.read_text().replace('#profile = "balanced"', 'profile = "cautious"'))
    assert 'rate_limit = "50MB/s"' in bare.run("tierd", "config", "show").stdout
    assert bare.run("getent", "group", "tierd").returncode == 0
    assert "complete" in (bare.root / "usr/share/bash-completion/completions/tierd").read_text()
    for page in ("man1/tierd.1", "man5/tierd.toml.5", "man8/tierd.8"):
        assert (bare.root / f"usr/share/man/{page}.gz").stat().st_size > 500


def test_the_callers_python_settings_do_not_count(bare: Bare) -> None:
    """A root service must not be led astray by an environment."""
    evil = bare.root / "tmp/evil"
    evil.mkdir()
    (evil / "tierd.py").write_text("raise SystemExit(99)")
    (evil / "numpy.py").write_text("raise SystemExit(99)")
    shell = "cd /tmp/evil && PYTHONPATH=/tmp/evil PYTHONSTARTUP=/tmp/evil/tierd.py tierd --version"
    assert bare.run("sh", "-c", shell).stdout.startswith("tierd ")


def test_a_wrong_key_ends_with_the_configurations_exit_code(bare: Bare) -> None:
    drop_in = bare.root / "etc/tierd/conf.d/1.toml"
    drop_in.write_text("[loop]\ninterva = 1\n")
    try:
        assert bare.run("tierd", "run").returncode == ExitCode.CONFIG
    finally:
        drop_in.unlink()


def test_systemd_finds_nothing_to_complain_of(bare: Bare) -> None:
    unit = "/usr/lib/systemd/system/tierd.service"
    done = bare.run("systemd-analyze", "verify", "--man=no", unit)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_exposure_level_is_the_documented_one(bare: Bare) -> None:
    unit = "/usr/lib/systemd/system/tierd.service"
    told = bare.run("systemd-analyze", "security", "--offline=true", "--no-pager", unit).stdout
    level = told.rpartition("tierd.service: ")[2].split()[0]
    assert float(level) < 4
    assert f"exposure level {level}" in (ROOT / "docs/operate/README.md").read_text()


@pytest.fixture(scope="module")
def dkms(bare: Bare) -> Bare:
    """With the module's package, which builds for each kernel with headers as it is installed."""
    done = bare.run("sh", "-c", "dpkg -i /root/tierd-dkms_*.deb")
    log = bare.root / "var/lib/dkms/tierd/0.1.0/build/make.log"
    assert done.returncode == 0, log.read_text() if log.exists() else done.stdout + done.stderr
    return bare


@pytest.mark.parametrize("release", [NEWEST, pytest.param(OLD, marks=pytest.mark.soak)])
def test_dkms_builds_the_modules(dkms: Bare, release: str) -> None:
    """`test_kernels` compiles the same sources for both kernels in `make test`."""
    version = required(release).version
    if release != NEWEST:  # the package of a kernel that comes later asks for this
        dkms.bring_headers(version)
    done = dkms.run("dkms", "install", "-m", "tierd", "-v", "0.1.0", "-k", version)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{version}, x86_64: installed" in dkms.run("dkms", "status", "-m", "tierd").stdout
    built = sorted((dkms.root / f"lib/modules/{version}").rglob("tierd*.ko*"))
    # The driver of simulated cards is for tests, and not among them.
    assert [each.name.partition(".")[0] for each in built] == ["tierd", "tierd_neoprof"]
    magic = ["modinfo", "--field", "vermagic", *map(str, built)]
    told = subprocess.run(magic, check=True, capture_output=True, text=True).stdout
    assert [line.split()[0] for line in told.splitlines()] == 2 * [version]
    assert (dkms.root / "usr/lib/modules-load.d/tierd.conf").exists()


def test_dkms_is_told_to_build_for_the_oldest_kernel_and_the_newest(dkms: Bare) -> None:
    text = (dkms.root / "usr/src/tierd-0.1.0/dkms.conf").read_text()
    pattern = re.search(r'^BUILD_EXCLUSIVE_KERNEL="(.+)"', text, re.M)
    assert pattern is not None
    for release in RELEASES:
        assert re.search(pattern[1], required(release).version)


def test_purge_leaves_nothing_behind(bare: Bare) -> None:
    assert bare.run("dpkg", "--purge", "tierd", "tierd-dkms").returncode == 0
    left = ("usr/bin/tierd", "usr/lib/tierd", "var/lib/tierd", "etc/tierd/tierd.toml", "usr/src")
    found = [path for path in left if Path(bare.root / path).exists()]
    assert found in ([], ["usr/src"])
    assert not list((bare.root / "usr/src").glob("tierd-*"))
    assert not list((bare.root / "lib/modules").rglob("tierd*.ko*"))
