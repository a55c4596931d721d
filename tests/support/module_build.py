# SPDX-License-Identifier: Apache-2.0
"""The kernel module, built for a lab kernel."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build_module(release: str, *defined: str) -> Path:
    """Build tierd.ko for kernel `release`, as it is with extra warnings and sparse.

    Args:
        release: of the kernel.
        defined: macros that are defined, for a folder of its own.

    Returns:
        The file.

    Raises:
        subprocess.CalledProcessError: it does not build.
    """
    built = ROOT / "build/kmod" / "-".join([release, *defined]) / "tierd.ko"
    built.parent.mkdir(parents=True, exist_ok=True)
    with (built.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ["make", "-s", "-C", str(ROOT / "kmod"), f"KERNEL={release}"]
        command += [f"BUILD={built.parent}"]
        flags = " ".join(f"-D{name}" for name in defined)
        command += [f"KCFLAGS={flags}"] if defined else ["W=1", "C=1"]
        subprocess.run(command, check=True)
    return built


def build_test_modules(release: str) -> Path:
    """Build the modules of kmod/test for kernel `release`; the folder that they are in."""
    folder = ROOT / "build/kmod-test" / release
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for source in (ROOT / "kmod/test").iterdir():
            link = folder / source.name
            if not link.is_symlink():
                link.symlink_to(source)
        command = ["make", "-s", "-C", f"/lib/modules/{release}/build", f"M={folder}", "modules"]
        subprocess.run(command, check=True)
    return folder
