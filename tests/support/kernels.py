# SPDX-License-Identifier: Apache-2.0
"""Which installed kernels the module can be built for."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

import pytest

from tierd_lab.host import Kernel, kernels

OLD: Final = "6.1"
"""Debian 12's own release; no later Debian has it."""
RELEASES: Final = ("6.12", OLD)
"""What the module's checks run on."""


def buildable(start: str) -> Kernel | None:
    """The newest installed kernel of a release, if its headers are there."""
    for kernel in kernels():
        headers = Path("/lib/modules") / kernel.version / "build"
        if kernel.version.startswith(start + ".") and headers.is_dir():
            return kernel
    return None


def required(start: str) -> Kernel:
    """The kernel of a release that `make test` installs; skips where no package of it exists."""
    kernel = buildable(start)
    if kernel is None and start == OLD and not _is_debian_12():
        pytest.skip(f"only Debian 12 has packages of kernel {OLD}")
    assert kernel is not None, (
        f"no kernel {start} with headers: `config/setup.sh --yes --with-{OLD}`"
    )
    return kernel


def _is_debian_12() -> bool:
    release = platform.freedesktop_os_release()
    return (release.get("ID"), release.get("VERSION_ID")) == ("debian", "12")
