# SPDX-License-Identifier: Apache-2.0
"""Which installed kernels the module can be built for."""

from __future__ import annotations

from pathlib import Path

from tierd.lab.host import Kernel, kernels


def buildable(start: str) -> Kernel | None:
    """The newest installed kernel of a release, if its headers are there."""
    for kernel in kernels():
        headers = Path("/lib/modules") / kernel.version / "build"
        if kernel.version.startswith(start + ".") and headers.is_dir():
            return kernel
    return None
