# SPDX-License-Identifier: Apache-2.0
"""What the lab needs from this host: QEMU, kernels, virtme-ng, busybox."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd.core.errors import UnavailableError

QEMU: Final = "qemu-system-x86_64"
SETUP_HINT: Final = "config/setup.sh installs everything the lab needs"
_BOOT: Final = Path("/boot")
_MODULES: Final = Path("/lib/modules")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that can be booted.

    Attributes:
        version: its release, as `uname -r` says.
        image: the bootable file.
        headers: True if modules and BPF programs can be built for it here.
    """

    version: str
    image: Path
    headers: bool


def find_program(name: str, package: str) -> Path:
    """The program `name`.

    Raises:
        UnavailableError: it is not installed; the message names `package`.
    """
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin")
    if found is None:
        raise UnavailableError(
            f"{name} is not installed", hint=f"apt install {package}; {SETUP_HINT}"
        )
    return Path(found)


def find_qemu() -> Path:
    """QEMU's system emulator.

    Raises:
        UnavailableError: it is not installed.
    """
    return find_program(QEMU, "qemu-system-x86")


def qemu_version(qemu: Path) -> str:
    """Version of QEMU, such as "10.0.2".

    Raises:
        UnavailableError: the program does not say its version.
    """
    try:
        text = subprocess.run(
            [qemu, "--version"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(
            f"{qemu} does not run: {error}", hint="apt install --reinstall qemu-system-x86"
        ) from error
    match = re.search(r"version (\S+)", text)
    return match[1] if match else "unknown"


def find_virtme_run() -> Path:
    """virtme-ng's `virtme-run`: beside this Python, else in PATH.

    Raises:
        UnavailableError: virtme-ng is not installed.
    """
    sibling = Path(sys.executable).parent / "virtme-run"
    if os.access(sibling, os.X_OK):
        return sibling
    found = shutil.which("virtme-run")
    if found is None:
        raise UnavailableError(
            "virtme-ng is not installed beside this Python",
            hint=f"pip install virtme-ng; {SETUP_HINT}",
        )
    return Path(found)


def version_key(version: str) -> tuple[tuple[int, str], ...]:
    """Orders kernel releases: 6.1 before 6.12."""
    parts = re.findall(r"\d+|[^\d.]+", version)
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in parts)


def kernels(boot: Path = _BOOT, modules: Path = _MODULES) -> list[Kernel]:
    """Installed kernels that have their modules, newest first."""
    found = []
    for image in boot.glob("vmlinuz-*"):
        version = image.name.removeprefix("vmlinuz-")
        if (modules / version / "modules.dep").exists() and os.access(image, os.R_OK):
            found.append(Kernel(version, image, (modules / version / "build").exists()))
    return sorted(found, key=lambda kernel: version_key(kernel.version), reverse=True)


def find_kernel(wanted: str | Path | None = None) -> Kernel:
    """The kernel to boot: a file, a release or the start of one ("6.1"), or the newest.

    Raises:
        UnavailableError: there is none.
    """
    text = "" if wanted is None else str(wanted)
    if isinstance(wanted, Path) or "/" in text:
        return _kernel_file(Path(text))
    installed = kernels()
    for kernel in installed:
        rest = kernel.version.removeprefix(text)
        if not text or kernel.version == text or (rest != kernel.version and rest[0] in ".-+"):
            return kernel
    if not text:
        raise UnavailableError(
            "no kernel to boot: /boot has no readable vmlinuz with its modules",
            hint=f"apt install linux-image-amd64; {SETUP_HINT}",
        )
    known = ", ".join(kernel.version for kernel in installed) or "none"
    package = "config/setup.sh --with-6.1" if text.startswith("6.1") else "apt install linux-image-"
    package += text if package.endswith("-") else ""
    raise UnavailableError(
        f"no kernel {text} is installed (installed: {known})",
        hint=f"{package}; apt search --names-only linux-image lists what there is",
    )


def _kernel_file(image: Path) -> Kernel:
    if not os.access(image, os.R_OK) or not image.is_file():
        raise UnavailableError(
            f"the kernel {image} is no readable file", hint="tierd-lab kernels lists the installed"
        )
    version = image_version(image)
    if not (_MODULES / version / "modules.dep").exists():
        raise UnavailableError(
            f"the kernel {image} is release {version or 'unknown'}, "
            f"whose modules are not in {_MODULES}",
            hint="install its linux-image package, or run its make modules_install",
        )
    return Kernel(version, image.resolve(), (_MODULES / version / "build").exists())


def image_version(image: Path) -> str:
    """Release of a kernel image, from its boot header; empty if it has none.

    Source: Linux, Documentation/arch/x86/boot.rst (field kernel_version at 0x20e).
    """
    with image.open("rb") as file:
        head = file.read(0x8000)
    if head[0x202:0x206] != b"HdrS":
        return ""
    offset = int.from_bytes(head[0x20E:0x210], "little") + 0x200
    text = head[offset : offset + 128].split(b"\0")[0].decode("ascii", "replace")
    return text.split(" ")[0]


def require_headers(kernel: Kernel) -> None:
    """Check that modules and BPF programs can be built for `kernel`.

    Raises:
        UnavailableError: its headers are missing; the message names the package.
    """
    if not kernel.headers:
        raise UnavailableError(
            f"no headers for kernel {kernel.version}",
            hint=f"apt install linux-headers-{kernel.version}",
        )
