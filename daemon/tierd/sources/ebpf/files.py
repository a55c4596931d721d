# SPDX-License-Identifier: Apache-2.0
"""Where BPF sources, compiled objects, event tables and kernel headers are."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FOLDER_VARIABLE: Final = "TIERD_EBPF"
"""Environment variable: a folder like `ebpf/` that is looked in first."""
_DEBIAN_ARCHITECTURE: Final = {"x86_64": "amd64", "aarch64": "arm64", "riscv64": "riscv64"}
_KERNEL_ARCHITECTURE: Final = {"x86_64": "x86", "aarch64": "arm64", "riscv64": "riscv"}
_SYSTEM_PYTHON: Final = Path("/usr/bin/python3")


def folders() -> list[Path]:
    """Folders that may hold sources (*.bpf.c), objects/ and events/, best first."""
    found = []
    if os.environ.get(FOLDER_VARIABLE):
        found.append(Path(os.environ[FOLDER_VARIABLE]))
    here = Path(__file__).resolve()
    found += [
        here.parents[4] / "ebpf",
        Path(sys.prefix) / "share" / "tierd" / "ebpf",
        Path("/usr/share/tierd/ebpf"),
    ]
    return found


def find_source(program: str) -> Path | None:
    """The C source of a program."""
    return next((p for d in folders() if (p := d / f"{program}.bpf.c").is_file()), None)


def find_object(program: str) -> Path | None:
    """The compiled object of a program; made by `make -C ebpf`."""
    names = [d / "objects" / f"{program}.bpf.o" for d in folders()]
    return next((p for p in names if p.is_file()), None)


def event_files() -> list[Path]:
    """The event tables, from the first folder that has any."""
    for folder in folders():
        if found := sorted((folder / "events").glob("*.toml")):
            return found
    return []


@dataclass(frozen=True, slots=True)
class Headers:
    """Kernel headers that bcc can use.

    Attributes:
        native: True when they are the running kernel's.
        environment: what bcc must be told by environment variables.
    """

    release: str
    native: bool
    environment: dict[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


def find_headers(root: Path = Path("/"), release: str = "") -> Headers | None:
    """The running kernel's headers, or those of another installed kernel.

    tierd's programs use only the headers that the kernel promises to keep (UAPI), so
    another kernel's serve as well; bcc has to be told where they are.
    """
    release = release or platform.release()
    modules = root / "lib/modules" / release
    if (modules / "build/include/generated/autoconf.h").is_file():
        return Headers(release, True)
    if (root / "sys/kernel/kheaders.tar.xz").is_file():
        return Headers(release, True)
    machine = platform.machine()
    suffix = _DEBIAN_ARCHITECTURE.get(machine, machine)
    kernel = _KERNEL_ARCHITECTURE.get(machine, machine)
    for own in sorted((root / "usr/src").glob(f"linux-headers-*-{suffix}"), reverse=True):
        common = own.with_name(own.name.removesuffix(f"-{suffix}") + "-common")
        base = common if common.is_dir() else own
        if not (base / "include/linux/kconfig.h").is_file():
            continue
        generated = f"{own}/arch/{kernel}/include/generated"
        return Headers(
            own.name.removeprefix("linux-headers-"),
            False,
            {"BCC_KERNEL_SOURCE": str(base)},
            (
                f"-I{own}/include",
                f"-I{generated}",
                f"-I{generated}/uapi",
                f"-I{own}/include/generated/uapi",
            ),
        )
    return None


def find_bcc_python(system: Path = _SYSTEM_PYTHON) -> Path | None:
    """A Python that has bcc: this one, or the distribution's; nothing is imported.

    PyPI has an unrelated package of that name; only BPF's has a module `table`.
    """
    import importlib.util

    spec = importlib.util.find_spec("bcc")
    places = (spec.submodule_search_locations or []) if spec else []
    if any((Path(place) / "table.py").is_file() for place in places):
        return Path(sys.executable)
    if any(system.parent.parent.glob("lib/python3*/dist-packages/bcc/table.py")):
        return system
    return None
