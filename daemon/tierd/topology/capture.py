# SPDX-License-Identifier: Apache-2.0
"""A host's topology as one text file: for bug reports, for tests, for looking at elsewhere."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Final

from tierd.core.errors import UnavailableError

PATTERNS: Final = (
    "sys/devices/system/node/online",
    "sys/devices/system/node/possible",
    "sys/devices/system/node/has_memory",
    "sys/devices/system/node/has_cpu",
    "sys/devices/system/node/node*/cpulist",
    "sys/devices/system/node/node*/distance",
    "sys/devices/system/node/node*/access[01]/initiators/*",
    "sys/devices/system/memory/block_size_bytes",
    "sys/devices/virtual/memory_tiering/memory_tier*/nodelist",
    "sys/bus/dax/devices/*",
    "sys/bus/cxl/devices/mem*",
    "sys/bus/cxl/devices/region*",
)
"""What `tierd.topology.read` reads; devices behind the links are followed."""
DEVICE_FILES: Final = ("target_node", "size", "driver")

_ESCAPES: Final = {"\\\\": "\\", "\\n": "\n", "\\t": "\t"}
_LINK: Final = "-> "


def capture(root: Path = Path("/")) -> str:
    """The text of everything that `tierd.topology.read` reads below `root`."""
    root = root.resolve()
    lines: dict[str, str] = {}
    devices: set[Path] = set()
    for pattern in PATTERNS:
        for path in root.glob(pattern):
            _add(lines, root, path)
            if path.is_symlink() and "bus" in path.relative_to(root).parts:
                devices.add(path.resolve())
    for device in devices:
        for path in (*(device / name for name in DEVICE_FILES), *device.glob("access[01]/*")):
            _add(lines, root, path)
    for path in root.glob("sys/devices/system/node/node*/meminfo"):
        _add(lines, root, path, only="MemTotal")
    _add(lines, root, root / "proc/cpuinfo", only="model name", first=True)
    head = "# a captured topology: path, tab, content\n"
    return head + "".join(f"{name}\t{content}\n" for name, content in sorted(lines.items()))


def _add(
    lines: dict[str, str], root: Path, path: Path, *, only: str = "", first: bool = False
) -> None:
    name = str(path.relative_to(root))
    try:
        if path.is_symlink():
            lines[name] = f"{_LINK}{path.readlink()}"
            return
        if not path.is_file():
            return
        text = path.read_text("utf-8", "replace")
    except OSError:  # write-only and failing attributes are as good as absent
        return
    if only:
        kept = [line for line in text.splitlines() if only in line]
        text = "\n".join(kept[:1] if first else kept)
    text = text.rstrip("\n")
    lines[name] = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def unpack(text: str, folder: Path) -> Path:
    """Make the tree of a captured text below `folder`; returns `folder`.

    Raises:
        UnavailableError: a line is not of the format, or leads out of `folder`.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        name, tab, content = line.partition("\t")
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts or not (tab or name.endswith("/")):
            raise UnavailableError(
                f"line {number} of the captured topology is {line[:60]!r}",
                hint="expected a relative path, a tab and the content",
            )
        path = folder / place
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith(_LINK):
            target = content.removeprefix(_LINK)
            if not (path.parent / target).resolve().is_relative_to(folder.resolve()):
                raise UnavailableError(
                    f"line {number} of the captured topology links to {target}, outside of it"
                )
            path.symlink_to(target)
        else:
            path.write_text(
                re.sub(r"\\[\\nt]", lambda match: _ESCAPES[match[0]], content) + "\n", "utf-8"
            )
    return folder
