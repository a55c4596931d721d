# SPDX-License-Identifier: Apache-2.0
"""What the benchmark's cells run with."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tierd_lab import Machine
from tierd_lab.host import Kernel, find_qemu, qemu_version

ROOT = Path(__file__).resolve().parents[3]


def versions(machine: Machine, kernel: Kernel) -> dict[str, Any]:
    """What the cells run with."""
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    found: dict[str, Any] = {
        "kernel": kernel.version,
        "qemu": qemu_version(find_qemu()),
        "python": platform.python_version(),
        "host": f"{platform.machine()}, {os.cpu_count()} CPUs, {system}",
        "machine": machine.name,
    }
    for package in ("tierd", "damo", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    commit = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    found["source"] = commit.stdout.strip() or "unknown"
    return found
