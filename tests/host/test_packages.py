# SPDX-License-Identifier: Apache-2.0
"""The packages in a bare system (debootstrap, chroot): install, run, build the module, purge."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernels import RELEASES, required
from systemd_image import ROOT, Bare, built_packages

from tierd.core.errors import ExitCode

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap and chroot need root")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    """A bare system with both packages, and the headers of the oldest kernel and the newest."""
    folder = tmp_path_factory.mktemp("packages")
    with Bare(folder / "machine") as system:
        for release in RELEASES:
            system.bring_headers(required(release).version)
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


def test_dkms_builds_the_modules_for_the_oldest_kernel_and_the_newest(bare: Bare) -> None:
    done = bare.run("sh", "-c", "dpkg -i /root/tierd-dkms_*.deb")
    log = bare.root / "var/lib/dkms/tierd/0.1.0/build/make.log"
    assert done.returncode == 0, log.read_text() if log.exists() else done.stdout + done.stderr
    for release in RELEASES:
        version = required(release).version
        # Installing the package builds for the newest; for others the kernel's own package asks.
        done = bare.run("dkms", "install", "-m", "tierd", "-v", "0.1.0", "-k", version)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{version}, x86_64: installed" in bare.run("dkms", "status", "-m", "tierd").stdout
        built = sorted((bare.root / f"lib/modules/{version}").rglob("tierd*.ko*"))
        # The driver of simulated cards is for tests, and not among them.
        assert [each.name.partition(".")[0] for each in built] == ["tierd", "tierd_neoprof"]
        magic = ["modinfo", "--field", "vermagic", *map(str, built)]
        told = subprocess.run(magic, check=True, capture_output=True, text=True).stdout
        assert [line.split()[0] for line in told.splitlines()] == 2 * [version]
    assert (bare.root / "usr/lib/modules-load.d/tierd.conf").exists()


def test_purge_leaves_nothing_behind(bare: Bare) -> None:
    assert bare.run("dpkg", "--purge", "tierd", "tierd-dkms").returncode == 0
    left = ("usr/bin/tierd", "usr/lib/tierd", "var/lib/tierd", "etc/tierd/tierd.toml", "usr/src")
    found = [path for path in left if Path(bare.root / path).exists()]
    assert found in ([], ["usr/src"])
    assert not list((bare.root / "usr/src").glob("tierd-*"))
    assert not list((bare.root / "lib/modules").rglob("tierd*.ko*"))
