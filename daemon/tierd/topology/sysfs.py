# SPDX-License-Identifier: Apache-2.0
"""NUMA nodes as sysfs shows them: their memory, their CPUs, their distances.

`SysTree` reads small kernel text files below a root, so that captured trees work too.
Sources: /sys/devices/system/node/{online,possible,has_memory} and
nodeN/{meminfo,cpulist,distance} (Documentation/ABI/stable/sysfs-devices-node).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tierd.core.errors import UnavailableError
from tierd.core.linux import NODES

LOCAL_DISTANCE: Final = 10
"""SLIT distance of a node to itself (ACPI 6.5, section 5.2.17)."""

_MEM_TOTAL: Final = re.compile(r"MemTotal:\s+([0-9]+) kB")
_NODE_NAME: Final = re.compile(r"node([0-9]+)")
_MEMORY_BLOCK: Final = re.compile(r"memory([0-9]+)")


def parse_list(text: str) -> frozenset[int]:
    """Numbers in the kernel's list format, for example "0-3,8" (bitmap_print_to_pagebuf).

    Raises:
        ValueError: something else stands there.
    """
    numbers: set[int] = set()
    for part in text.strip().split(","):
        if not part:
            continue
        first, dash, last = part.partition("-")
        low, high = int(first), int(last) if dash else int(first)
        if low < 0 or high < low or high - low > 1 << 20:
            raise ValueError(f"{part!r} is not a range")
        numbers.update(range(low, high + 1))
    return frozenset(numbers)


def mem_total(text: str | None) -> int | None:
    """MemTotal of a meminfo file in bytes; None if it is not there."""
    match = _MEM_TOTAL.search(text or "")
    return None if match is None else int(match[1]) * 1024


class SysTree:
    """The files of one host below `root` ("/" for the running one)."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def path(self, relative: str) -> Path:
        """The place of `relative` (given without the leading slash)."""
        return self.root / relative

    def text(self, relative: str) -> str | None:
        """The file's text without white space around it, or None if it cannot be read."""
        try:
            raw = self.path(relative).read_bytes()
        except OSError:
            return None
        return raw.decode("utf-8", "replace").strip()

    def integer(self, relative: str, base: int = 10) -> int | None:
        """The number in a file, or None if there is no file or no number in it."""
        text = self.text(relative)
        try:
            return None if text is None else int(text, base)
        except ValueError:
            return None

    def numbers(self, relative: str) -> frozenset[int] | None:
        """The list in a file, or None if there is no file or no list in it."""
        text = self.text(relative)
        try:
            return None if text is None else parse_list(text)
        except ValueError:
            return None

    def names(self, relative: str) -> list[str]:
        """Names in a folder, sorted; empty if there is no such folder."""
        try:
            return sorted(entry.name for entry in self.path(relative).iterdir())
        except OSError:
            return []

    def exists(self, relative: str) -> bool:
        """Whether the file or folder is there and reachable."""
        try:
            return self.path(relative).exists()
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class RawNode:
    """One node as the kernel shows it.

    Attributes:
        number: the kernel's node number.
        size_bytes: MemTotal of its meminfo.
        cpus: CPUs whose local node it is.
        distances: SLIT distance to every online node.
    """

    number: int
    size_bytes: int
    cpus: frozenset[int] = frozenset()
    distances: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RawNodes:
    """All nodes.

    Attributes:
        memory: nodes with memory, by number.
        cpu_only: online nodes with CPUs and no memory, by number.
        possible: every number that the kernel can use here.
        notes: what was missing or odd.
    """

    memory: dict[int, RawNode]
    cpu_only: dict[int, RawNode]
    possible: frozenset[int]
    notes: tuple[str, ...]


def read_nodes(tree: SysTree) -> RawNodes:
    """Read all nodes below `tree`.

    Raises:
        UnavailableError: neither NUMA nodes nor /proc/meminfo can be read.
    """
    present = frozenset(
        int(match[1]) for name in tree.names(NODES) if (match := _NODE_NAME.fullmatch(name))
    )
    if not present:
        return _without_numa(tree)
    notes: list[str] = []
    online = tree.numbers(f"{NODES}/online")
    if not online or not online & present:
        notes.append(f"/{NODES}/online is missing or unreadable: took the node folders instead")
        online = present
    possible = (tree.numbers(f"{NODES}/possible") or online) | online
    memory, cpu_only = _read_online(tree, online, present, notes)
    notes.extend(f"node {number}: offline" for number in sorted(present - online))
    if not memory:
        raise UnavailableError(
            f"read the nodes in {tree.path(NODES)}: none of them has memory",
            hint="is this a complete sysfs?",
        )
    return RawNodes(memory, cpu_only, possible, tuple(notes))


def _read_online(
    tree: SysTree, online: frozenset[int], present: frozenset[int], notes: list[str]
) -> tuple[dict[int, RawNode], dict[int, RawNode]]:
    """The online nodes with memory, and those with CPUs alone."""
    has_memory = tree.numbers(f"{NODES}/has_memory")
    if not has_memory or not has_memory & present:
        has_memory = None  # before Linux 3.8, or unreadable: MemTotal tells
    memory: dict[int, RawNode] = {}
    cpu_only: dict[int, RawNode] = {}
    for number in sorted(online):
        if number not in present:
            notes.append(f"node {number}: online, but it has no folder in /{NODES}; left out")
            continue
        size = _size_bytes(tree, number, notes)
        node = RawNode(
            number, size, _cpus(tree, number, notes), _distances(tree, number, online, notes)
        )
        if size > 0 and (has_memory is None or number in has_memory):
            memory[number] = node
        elif size > 0:
            notes.append(f"node {number}: MemTotal is {size} but has_memory lacks it; left out")
        elif node.cpus:
            cpu_only[number] = node
            notes.append(f"node {number}: CPUs and no memory")
        else:
            notes.append(f"node {number}: online, no memory and no CPUs; left out")
    return memory, cpu_only


def _without_numa(tree: SysTree) -> RawNodes:
    """One node made from /proc/meminfo, for kernels without CONFIG_NUMA."""
    size = mem_total(tree.text("proc/meminfo"))
    if size is None:
        raise UnavailableError(
            f"tried to read NUMA nodes in {tree.path(NODES)}: there are none, "
            "and proc/meminfo cannot be read either",
            hint="mount sysfs and proc, or give --root a captured tree",
        )
    cpus = tree.numbers("sys/devices/system/cpu/online") or frozenset({0})
    node = RawNode(0, size, cpus, {0: LOCAL_DISTANCE})
    note = f"no nodes in /{NODES}: the kernel has no NUMA; all memory taken for node 0"
    return RawNodes({0: node}, {}, frozenset({0}), (note,))


def _size_bytes(tree: SysTree, number: int, notes: list[str]) -> int:
    told = mem_total(tree.text(f"{NODES}/node{number}/meminfo"))
    if told is not None:
        return told
    size = _size_of_blocks(tree, number)
    if size:
        notes.append(f"node {number}: meminfo is unreadable; size counted from its memory blocks")
    else:
        notes.append(f"node {number}: meminfo is unreadable and it has no memory blocks")
    return size


def _size_of_blocks(tree: SysTree, number: int) -> int:
    """Memory blocks of the node that are online, times the block size (hexadecimal in sysfs)."""
    block = tree.integer("sys/devices/system/memory/block_size_bytes", base=16) or 0
    names = [n for n in tree.names(f"{NODES}/node{number}") if _MEMORY_BLOCK.fullmatch(n)]
    states = (tree.text(f"{NODES}/node{number}/{name}/state") for name in names)
    return block * sum(1 for state in states if state != "offline")


def _cpus(tree: SysTree, number: int, notes: list[str]) -> frozenset[int]:
    cpus = tree.numbers(f"{NODES}/node{number}/cpulist")
    if cpus is None:
        notes.append(f"node {number}: cpulist is missing or unreadable; taken for memory-only")
        return frozenset()
    return cpus


def _distances(
    tree: SysTree, number: int, online: frozenset[int], notes: list[str]
) -> dict[int, int]:
    """The row of `number`; the kernel prints one column for each online node, ascending."""
    text = tree.text(f"{NODES}/node{number}/distance") or ""
    try:
        row = [int(word) for word in text.split()]
    except ValueError:
        row = []
    columns = sorted(online)
    if len(row) != len(columns) or any(not LOCAL_DISTANCE <= value <= 255 for value in row):
        notes.append(f"node {number}: distances are missing or not plausible ({text[:40]!r})")
        return {}
    return dict(zip(columns, row, strict=True))
