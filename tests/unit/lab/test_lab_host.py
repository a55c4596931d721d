# SPDX-License-Identifier: Apache-2.0
"""What the lab needs from the host: found, or one error that names the package."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tierd.core.errors import ConfigError, UnavailableError
from tierd_lab import accel, host
from tierd_lab.host import Kernel, find_kernel, image_version, kernels, version_key


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with kernels 6.1 and 6.12, of which 6.12 has headers, and 6.13 without modules."""
    boot, modules = tmp_path / "boot", tmp_path / "modules"
    boot.mkdir()
    for version in ("6.1.0-44-amd64", "6.12.9+deb12-amd64", "6.13.0-rc1"):
        (boot / f"vmlinuz-{version}").write_bytes(b"")
        if "rc" not in version:
            (modules / version).mkdir(parents=True)
            (modules / version / "modules.dep").write_text("")
    (modules / "6.12.9+deb12-amd64" / "build").mkdir()
    monkeypatch.setattr(host, "kernels", lambda: kernels(boot, modules))
    return tmp_path


def test_newest_kernel_with_modules_is_the_default(installed: Path) -> None:
    """6.12 is newer than 6.1; a kernel without modules cannot mount the root."""
    assert find_kernel().version == "6.12.9+deb12-amd64"
    assert find_kernel().headers


@pytest.mark.parametrize(
    ("wanted", "version"),
    [
        ("6.1", "6.1.0-44-amd64"),
        ("6.12", "6.12.9+deb12-amd64"),
        ("6.1.0-44-amd64", "6.1.0-44-amd64"),
        ("6", "6.12.9+deb12-amd64"),
    ],
)
def test_kernel_by_the_start_of_its_release(installed: Path, wanted: str, version: str) -> None:
    """6.1 is not the start of 6.12."""
    assert find_kernel(wanted).version == version


def test_missing_kernel_names_what_to_install(installed: Path) -> None:
    """And lists what is there."""
    with pytest.raises(UnavailableError) as caught:
        find_kernel("5.10")
    assert "installed: 6.12.9+deb12-amd64, 6.1.0-44-amd64" in caught.value.message
    assert "apt install linux-image-5.10" in caught.value.hint


def test_host_without_kernels_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container has none in /boot."""
    monkeypatch.setattr(host, "kernels", list)
    with pytest.raises(UnavailableError) as caught:
        find_kernel()
    assert "apt install linux-image-amd64" in caught.value.hint


def test_missing_headers_name_the_package() -> None:
    """The headers of that very release."""
    with pytest.raises(UnavailableError) as caught:
        host.require_headers(Kernel("6.12.9", Path("/boot/vmlinuz-6.12.9"), headers=False))
    assert caught.value.hint == "apt install linux-headers-6.12.9"


def test_missing_qemu_and_virtme_name_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error each."""
    monkeypatch.setattr(shutil, "which", lambda *_args, **_kwargs: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    with pytest.raises(UnavailableError) as caught:
        host.find_qemu()
    assert "apt install qemu-system-x86" in caught.value.hint
    with pytest.raises(UnavailableError) as caught:
        host.find_virtme_run()
    assert "pip install virtme-ng" in caught.value.hint


def test_releases_are_ordered_as_numbers() -> None:
    """6.1 before 6.9 before 6.12."""
    ordered = ["6.1.0-44-amd64", "6.9.1", "6.12.9+deb12-amd64", "6.12.10"]
    assert sorted(set(ordered), key=version_key) == ordered


def test_release_in_a_kernel_image(tmp_path: Path) -> None:
    """The boot header points to it; another file has none."""
    image = bytearray(0x8000)
    image[0x202:0x206] = b"HdrS"
    image[0x20E:0x210] = (0x3000).to_bytes(2, "little")
    image[0x3200:0x3220] = b"6.12.9+deb12-amd64 (someone) #1 "
    (tmp_path / "bzImage").write_bytes(image)
    assert image_version(tmp_path / "bzImage") == "6.12.9+deb12-amd64"
    (tmp_path / "text").write_text("no kernel")
    assert image_version(tmp_path / "text") == ""
    with pytest.raises(UnavailableError, match="whose modules are not in"):
        find_kernel(tmp_path / "bzImage")


def test_kvm_is_probed_once_per_host_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer for each QEMU and kernel is kept, with its reason, until the host boots again."""
    device = tmp_path / "kvm"
    device.touch()
    probes: list[str] = []

    def probe(_qemu: Path, kernel: Kernel) -> str:
        probes.append(kernel.version)
        return "it fell over"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(accel, "_DEVICE", device)
    monkeypatch.setattr(accel, "probe", probe)
    kernel = Kernel("6.12.9", Path("/boot/vmlinuz"), headers=True)
    for _ in range(2):
        chosen = accel.choose("auto", Path("qemu"), "10.0", kernel)
        assert (chosen.name, chosen.reason) == ("tcg", "KVM is not usable: it fell over")
    assert probes == ["6.12.9"]
    with pytest.raises(UnavailableError, match="it fell over"):
        accel.choose("kvm", Path("qemu"), "10.0", kernel)
    accel.choose("auto", Path("qemu"), "10.1", kernel)
    assert probes == ["6.12.9", "6.12.9"]
    other = replace(kernel, version="6.1.0")
    for _ in range(2):
        for each in (kernel, other):
            accel.choose("auto", Path("qemu"), "10.1", each)
    assert probes == ["6.12.9", "6.12.9", "6.1.0"]
    monkeypatch.setattr(accel, "_BOOT_ID", tmp_path / "boot_id")
    (tmp_path / "boot_id").write_text("of the next boot\n")
    accel.choose("auto", Path("qemu"), "10.1", other)
    assert probes == ["6.12.9", "6.12.9", "6.1.0", "6.1.0"]
    (tmp_path / "cache/tierd/kvm.json").write_text('{"boot": "of the next boot", "problems": 3}')
    accel.choose("auto", Path("qemu"), "10.1", other)
    assert probes == ["6.12.9", "6.12.9", "6.1.0", "6.1.0", "6.1.0"]


@pytest.mark.parametrize(
    "said",
    [
        "KVM internal error. Suberror: 1",
        "KVM: entry failed, hardware error 0x80000021",
        "error: kvm run failed Bad address",
    ],
)
def test_a_guest_that_kvm_cannot_go_on_with_is_not_waited_for(tmp_path: Path, said: str) -> None:
    """QEMU says so, and then stays. After a wait to the end the answer would name the seconds."""
    qemu = tmp_path / "qemu"
    qemu.write_text(f"#!/bin/sh\necho '{said}' >&2\nexec sleep 1000\n")
    qemu.chmod(0o755)
    kernel = Kernel("6.12.9", Path("/boot/vmlinuz"), headers=True)
    problem = accel.probe(qemu, kernel, timeout_s=30)
    assert problem == f"a guest did not boot ({said})"


def test_tcg_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for, it is taken; no KVM device, it is taken and the reason told."""
    kernel = Kernel("6.12.9", Path("/boot/vmlinuz"), headers=True)
    assert accel.choose("tcg", Path("qemu"), "10.0", kernel).name == "tcg"
    monkeypatch.setattr(accel, "_DEVICE", Path("/nonexistent/kvm"))
    chosen = accel.choose("auto", Path("qemu"), "10.0", kernel)
    assert (chosen.name, chosen.reason) == (
        "tcg",
        "KVM is not usable: there is no /nonexistent/kvm",
    )
    with pytest.raises(ConfigError, match="--accel"):
        accel.choose("hvf", Path("qemu"), "10.0", kernel)
