# SPDX-License-Identifier: Apache-2.0
"""A `TierMap` as text for people and as JSON for scripts; the files it is read from as one text.

docs/operate/topology.md describes the JSON. The text of the files is for bug reports, for tests and
for looking at elsewhere; files that identify a machine, such as serial numbers, are not in it. It
has a line for each file: its path without the leading slash, a tab, its content with backslash,
tab and newline escaped. "-> TARGET" as content is a symbolic link, a path that ends in "/" an empty
folder, a line that starts with "#" a remark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tierd.core.errors import UnavailableError
from tierd.core.tiermap import ExcludedNode, MemoryNode, Quantity, Tier, TierMap
from tierd.core.units import format_size
from tierd.topology.gpu_nodes import DRIVER_RAM, IOMEM, driver_blocks
from tierd.topology.sysfs import SysTree

SCHEMA_VERSION: Final = 1
"""Raised when a key of the JSON changes its meaning or goes; new keys do not raise it."""
PATTERNS: Final = (
    "sys/devices/system/node/online",
    "sys/devices/system/node/possible",
    "sys/devices/system/node/has_memory",
    "sys/devices/system/node/has_cpu",
    "sys/devices/system/node/has_generic_initiator",
    "sys/devices/system/node/node*/cpulist",
    "sys/devices/system/node/node*/distance",
    "sys/devices/system/node/node*/access[01]/initiators/*",
    "sys/devices/system/memory/block_size_bytes",
    "sys/devices/virtual/memory_tiering/memory_tier*/nodelist",
    "sys/bus/dax/devices/*",
    "sys/bus/cxl/devices/mem*",
    "sys/bus/cxl/devices/region*",
    "proc/driver/nvidia/gpus/*/numa_status",
)
"""What `tierd.topology.read` reads; devices behind the links are followed."""
DEVICE_FILES: Final = ("target_node", "size", "driver")

_ESCAPES: Final = {"\\\\": "\\", "\\n": "\n", "\\t": "\t"}
_LINK: Final = "-> "


def as_text(tiers: TierMap) -> str:
    """The map for people: the tiers, their nodes, the kernel's view, remarks."""
    count = len(tiers.tiers)
    parts = [f"{count} tier{'' if count == 1 else 's'}, nearest first\n", _tier_table(tiers)]
    parts += ["\nNodes\n", _node_table(tiers)]
    if tiers.excluded:
        parts += ["\nNodes in no tier: no page is moved to them or away from them\n"]
        parts += [_bullets([_excluded_words(each) for each in tiers.excluded])]
    if tiers.differences:
        parts += ["\nWhere the kernel's own tiers differ\n", _bullets(tiers.differences)]
    if tiers.notes:
        parts += ["\nNotes\n", _bullets(tiers.notes)]
    return "".join(parts)


def as_json(tiers: TierMap) -> dict[str, Any]:
    """The map for scripts, ready for json.dumps."""
    return {
        "schema": SCHEMA_VERSION,
        "tiers": [_tier_json(tiers, tier) for tier in tiers.tiers],
        "nodes": [_node_json(tiers, node) for _, node in sorted(tiers.nodes.items())],
        "excluded": [
            {**_memory_json(each.memory), "reason": each.reason} for each in tiers.excluded
        ],
        "differences": list(tiers.differences),
        "notes": list(tiers.notes),
    }


def _tier_table(tiers: TierMap) -> str:
    rows = [
        (
            "RANK",
            "NAME",
            "KIND",
            "NODES",
            "CAPACITY",
            "LATENCY",
            "BANDWIDTH",
            "PROMOTES TO",
            "DEMOTES TO",
            "KERNEL'S TIER",
        )
    ]
    for tier in tiers.tiers:
        rows.append(
            (
                str(tier.rank),
                tier.name,
                tier.kind.value,
                format_list(tier.nodes),
                format_size(tier.capacity_bytes),
                _latency(tier.latency_ns),
                _bandwidth(tier.bandwidth_bytes_per_s),
                _name(tiers.promotion_tier(tier.rank)),
                _name(tiers.demotion_tier(tier.rank)),
                _kernel_words(kernel_tiers(tiers, tier)),
            )
        )
    return table(rows)


def _node_table(tiers: TierMap) -> str:
    rows = [("NODE", "TIER", "SIZE", "CPUS", "NEAREST CPUS", "LATENCY", "BANDWIDTH", "DEVICES")]
    every = {**tiers.nodes, **{each.memory.node: each.memory for each in tiers.excluded}}
    for number, node in sorted(every.items()):
        rows.append(
            (
                str(number),
                tiers.tier_of(number).name if number in tiers.nodes else "-",
                format_size(node.size_bytes),
                format_list(node.cpus) or "-",
                "node " + format_list(node.initiators) if node.initiators else "-",
                _latency(node.latency_ns),
                _bandwidth(node.bandwidth_bytes_per_s),
                " ".join(node.devices) or "-",
            )
        )
    return table(rows)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in aligned columns, two spaces between, one line each."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "".join(f"  {line}\n" for line in lines)


def format_list(numbers: Iterable[int]) -> str:
    """Numbers in the kernel's list format: "0-3,8"."""
    parts: list[str] = []
    start = last = None
    for number in [*sorted(numbers), None]:
        if last is not None and number == last + 1:
            last = number
            continue
        if start is not None:
            parts.append(f"{start}" if start == last else f"{start}-{last}")
        start = last = number
    return ",".join(parts)


def kernel_tiers(tiers: TierMap, tier: Tier) -> list[int]:
    """Numbers N of the kernel's memory_tierN that the nodes of `tier` are in, ascending."""
    found = {tiers.nodes[node].kernel_tier for node in tier.nodes}
    return sorted(number for number in found if number is not None)


def _bullets(lines: Sequence[str]) -> str:
    return "".join(f"  - {line}\n" for line in lines)


def _name(tier: Tier | None) -> str:
    return "-" if tier is None else tier.name


def _kernel_words(numbers: Sequence[int]) -> str:
    return ", ".join(f"memory_tier{number}" for number in numbers) or "-"


def _latency(quantity: Quantity) -> str:
    return f"{quantity.value:.0f} ns ({quantity.provenance})"


def _bandwidth(quantity: Quantity) -> str:
    return f"{quantity.value / 1e9:.1f} GB/s ({quantity.provenance})"


def _tier_json(tiers: TierMap, tier: Tier) -> dict[str, Any]:
    up, down = tiers.promotion_tier(tier.rank), tiers.demotion_tier(tier.rank)
    return {
        **asdict(tier),
        "promotes_to": up.name if up else None,
        "demotes_to": down.name if down else None,
        "kernel_tiers": kernel_tiers(tiers, tier),
    }


def _excluded_words(excluded: ExcludedNode) -> str:
    node = excluded.memory
    size = format_size(node.size_bytes)
    return f"node {node.node} ({node.kind}, {size}): {excluded.reason}"


def _node_json(tiers: TierMap, node: MemoryNode) -> dict[str, Any]:
    return {**_memory_json(node), "tier": tiers.tier_of(node.node).name}


def _memory_json(node: MemoryNode) -> dict[str, Any]:
    return {
        **asdict(node),
        "cpus": sorted(node.cpus),
        "distances": dict(sorted(node.distances.items())),
    }


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
    for first, last in driver_blocks(SysTree(root)):
        for block in {first, last}:
            for node in root.glob("sys/devices/system/node/node*"):
                _add(lines, root, node / f"memory{block}")
    _add(lines, root, root / IOMEM, only=DRIVER_RAM)
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
