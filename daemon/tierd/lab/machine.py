# SPDX-License-Identifier: Apache-2.0
"""`Machine`: a virtual tiered machine as its TOML file describes it.

Owns: the words of a machine file, their validation, and finding the files.
Must not touch: QEMU, kernels, or anything else of the host.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from tierd.errors import ConfigError
from tierd.lab._fields import Table, parse_cpus
from tierd.lab.cards import CacheSpec, CardSpec, parse_cache, parse_cards
from tierd.tiermap import MemoryKind

MIB: Final = 2**20
LOCAL_DISTANCE: Final = 10
"""SLIT distance of a node to itself (ACPI 6.5, section 5.2.17)."""
DEFAULT_DISTANCE: Final = 20
UNREACHABLE_DISTANCE: Final = 255
MAX_LATENCY_NS: Final = 60_000
MAX_ICOUNT: Final = 10
"""QEMU's largest -icount shift."""
MIN_BOOT_NODE_BYTES: Final = 384 * MIB
"""A stock kernel, its initramfs and a shell do not fit in less."""
MACHINES_VARIABLE: Final = "TIERD_MACHINES"
"""Environment variable: a folder of machine files that is looked in first."""


@dataclass(frozen=True, slots=True)
class Node:
    """One NUMA node of a virtual machine.

    Attributes:
        kind: what the memory stands for.
        size_bytes: memory of the node.
        cpus: its CPUs; empty for a memory-only node.
        initiator: node whose CPUs are nearest (itself when it has CPUs).
        latency_ns: by initiator node, what the HMAT says; empty: no HMAT.
        bandwidth_bytes_per_s: by initiator node, the same.
    """

    kind: MemoryKind
    size_bytes: int
    cpus: tuple[int, ...]
    initiator: int
    latency_ns: Mapping[int, int] = field(default_factory=dict)
    bandwidth_bytes_per_s: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Machine:
    """A virtual machine: its nodes and how QEMU and the kernel are started.

    Attributes:
        name: file name without its suffix.
        description: one line for people.
        nodes: by node number.
        distances: `distances[a][b]` is the SLIT distance between two nodes.
        cpu: QEMU CPU model under TCG.
        kernel_args: further kernel arguments.
        qemu_args: further QEMU arguments (devices, plugins).
        coldplug: True to let udev load a driver for every device (slow).
        file: where it was read from.
        icount: None, or the guest's clock counts instructions, 2**icount ns each.
        cache: the cache through which memory traffic is watched; None: the default one if
            there are cards, else nothing is watched.
        cards: simulated NeoProf cards.
    """

    name: str
    description: str
    nodes: tuple[Node, ...]
    distances: tuple[tuple[int, ...], ...]
    cpu: str = "max,la57=off"
    kernel_args: tuple[str, ...] = ()
    qemu_args: tuple[str, ...] = ()
    coldplug: bool = False
    file: Path | None = None
    icount: int | None = None
    cache: CacheSpec | None = None
    cards: tuple[CardSpec, ...] = ()

    @property
    def memory_bytes(self) -> int:
        """Memory of all nodes together."""
        return sum(node.size_bytes for node in self.nodes)

    @property
    def cpu_count(self) -> int:
        """CPUs of all nodes together."""
        return sum(len(node.cpus) for node in self.nodes)

    @property
    def has_hmat(self) -> bool:
        """True if the machine tells its latencies and bandwidths."""
        return any(node.latency_ns for node in self.nodes)

    @property
    def needs_tcg(self) -> str:
        """Why the machine cannot run under KVM; empty if it can."""
        if self.icount is not None:
            return "its clock counts instructions"
        return "its memory traffic is watched" if self.cards or self.cache else ""

    @classmethod
    def load(cls, name: str | Path) -> Machine:
        """The machine called `name`, or the one in the file `name`.

        A text with a slash or the suffix ".toml" is a file; anything else is looked up
        in `machine_folders()`.

        Raises:
            ConfigError: no such machine, or a mistake in its file.
        """
        path = find_machine(name)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("", f"cannot be read: {error}", file=str(path)) from error
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError("", f"is not TOML: {error}", file=str(path)) from error
        return parse_machine(data, name=path.stem, file=path)


def machine_folders() -> list[Path]:
    """Folders with machine files, first match wins.

    `$TIERD_MACHINES`, then the administrator's, then the ones that came with tierd:
    in the source tree beside the package, or under the installation's `share`.
    """
    folders = [Path(os.environ[MACHINES_VARIABLE])] if os.environ.get(MACHINES_VARIABLE) else []
    folders += [
        Path("/etc/tierd/machines"),
        Path(__file__).resolve().parents[3] / "config" / "machines",
        Path(sys.prefix) / "share" / "tierd" / "machines",
        Path("/usr/share/tierd/machines"),
    ]
    return [folder for folder in folders if folder.is_dir()]


def machine_files() -> dict[str, Path]:
    """Every machine that can be named, and its file."""
    found: dict[str, Path] = {}
    for folder in machine_folders():
        for path in sorted(folder.glob("*.toml")):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def find_machine(name: str | Path) -> Path:
    """The file of the machine `name` (a name, or a path).

    Raises:
        ConfigError: there is none; the message names the nearest.
    """
    text = str(name)
    if isinstance(name, Path) or "/" in text or text.endswith(".toml"):
        return Path(name)
    known = machine_files()
    if text in known:
        return known[text]
    near = get_close_matches(text, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else ""
    if not hint:
        hint = f"known: {', '.join(known)}" if known else f"set {MACHINES_VARIABLE} to their folder"
    raise ConfigError("", f"there is no machine {text!r}", hint=hint)


def parse_machine(data: dict[str, Any], *, name: str, file: Path | None = None) -> Machine:
    """The machine that the parsed TOML `data` describes.

    Raises:
        ConfigError: a mistake, with the key's path.
    """
    top = Table(data, "", str(file or ""))
    description = top.text("description", "")
    cpu = top.text("cpu", "max,la57=off")
    kernel_args = top.texts("kernel_args")
    qemu_args = top.texts("qemu_args")
    coldplug = top.flag("coldplug", False)
    icount = top.number("icount", None)
    cache = parse_cache(top)
    tables, card_tables = top.tables("node"), top.tables("card")
    top.finish()
    if not tables:
        raise top.error("node", "missing: a machine has at least one [[node]]")
    heads = [_parse_head(table) for table in tables]
    _check_cpus(tables, [cpus for _, _, cpus in heads])
    distances = _parse_distances(tables)
    with_cpus = [number for number, (_, _, cpus) in enumerate(heads) if cpus]
    nodes = tuple(
        _parse_node(number, table, head, with_cpus, distances)
        for number, (table, head) in enumerate(zip(tables, heads, strict=True))
    )
    with_figures = [bool(node.latency_ns) for node in nodes]
    if any(with_figures) and not all(with_figures):
        number = with_figures.index(False)
        raise tables[number].error(
            "latency", "missing: other nodes have one, and an HMAT tells all nodes or none"
        )
    cards = parse_cards(card_tables, tables, [node.size_bytes for node in nodes])
    for table in tables:
        table.finish()
    check_icount(
        icount, sum(len(node.cpus) for node in nodes), lambda why: top.error("icount", why)
    )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise ConfigError("", f"{name!r} is not a machine's name", file=str(file or ""))
    return Machine(
        name,
        description,
        nodes,
        distances,
        cpu,
        kernel_args,
        qemu_args,
        coldplug,
        file,
        icount,
        cache,
        cards,
    )


def check_icount(icount: int | None, cpus: int, error: Callable[[str], ConfigError]) -> None:
    """Refuse instruction counting that QEMU cannot do, or with which no run repeats.

    Raises:
        ConfigError: what `error` makes of the reason.
    """
    if icount is not None and not 0 <= icount <= MAX_ICOUNT:
        raise error(f"must be between 0 and {MAX_ICOUNT} (2**icount ns an instruction)")
    if icount is not None and cpus != 1:
        raise error(f"needs a machine with one CPU, and this one has {cpus}")


_Head = tuple[MemoryKind, int, tuple[int, ...]]


def _parse_head(table: Table) -> _Head:
    """Kind, size and CPUs: what other nodes' fields are checked against."""
    kind = MemoryKind(table.choice("kind", [kind.value for kind in MemoryKind]))
    size = table.size("size")
    if size <= 0 or size % MIB:
        raise table.error("size", "must be a whole number of MiB, at least one")
    text = table.text("cpus", "")
    try:
        cpus = parse_cpus(text)
    except ValueError as error:
        raise table.error("cpus", str(error)) from error
    return kind, size, cpus


def _check_cpus(tables: list[Table], cpus: list[tuple[int, ...]]) -> None:
    owner: dict[int, int] = {}
    for number, (table, own) in enumerate(zip(tables, cpus, strict=True)):
        for cpu in own:
            if cpu in owner:
                raise table.error("cpus", f"CPU {cpu} is already in node[{owner[cpu]}]")
            owner[cpu] = number
    if not owner:
        raise tables[0].error("cpus", "missing: at least one node must have CPUs")
    for cpu in range(len(owner)):
        if cpu not in owner:
            raise tables[owner[max(owner)]].error(
                "cpus", f"CPU {cpu} is in no node; number the CPUs from 0 without a gap"
            )
    boot = owner[0]
    size = tables[boot].size("size")
    if size < MIN_BOOT_NODE_BYTES:
        raise tables[boot].error(
            "size", f"the node of CPU 0 needs at least {MIN_BOOT_NODE_BYTES // MIB}MiB to boot"
        )


def _parse_distances(tables: list[Table]) -> tuple[tuple[int, ...], ...]:
    count = len(tables)
    matrix = [[DEFAULT_DISTANCE] * count for _ in range(count)]
    given: dict[tuple[int, int], int] = {}
    for number in range(count):
        matrix[number][number] = LOCAL_DISTANCE
    for number, table in enumerate(tables):
        for other, value in table.by_node("distance", count).items():
            path = f"distance.{other}"
            if isinstance(value, bool) or not isinstance(value, int):
                raise table.error(path, f"must be a whole number, not {value!r}")
            if other == number:
                raise table.error(path, "is the node itself, whose distance is always 10")
            if not LOCAL_DISTANCE < value < UNREACHABLE_DISTANCE:
                raise table.error(path, f"{value} is not between 11 and 254")
            if given.get((other, number), value) != value:
                raise table.error(
                    path,
                    f"{value} contradicts node[{other}].distance.{number}, "
                    f"which is {given[other, number]}",
                )
            given[number, other] = value
            matrix[number][other] = matrix[other][number] = value
    return tuple(tuple(row) for row in matrix)


def _parse_node(
    number: int,
    table: Table,
    head: _Head,
    with_cpus: list[int],
    distances: tuple[tuple[int, ...], ...],
) -> Node:
    kind, size, cpus = head
    initiator = table.number("initiator", number if cpus else None)
    if cpus and initiator not in (None, number):
        raise table.error("initiator", "a node with CPUs is its own initiator; leave it out")
    if initiator is not None and initiator not in with_cpus:
        raise table.error("initiator", f"node {initiator} has no CPUs or does not exist")
    has_latency, has_bandwidth = table.has("latency"), table.has("bandwidth")
    if has_latency != has_bandwidth:
        missing, present = ("bandwidth", "latency") if has_latency else ("latency", "bandwidth")
        raise table.error(missing, f"missing: {present} is given, and an HMAT needs both")
    if initiator is None:
        if has_latency:
            raise table.error(
                "initiator", "missing: a node without CPUs names the node whose CPUs are nearest"
            )
        initiator = min(with_cpus, key=lambda other: distances[other][number])
    if not has_latency:
        for key in ("latency_from", "bandwidth_from"):
            if table.has(key):
                raise table.error(key, "needs latency and bandwidth")
        return Node(kind, size, cpus, initiator)
    latency = {initiator: _checked_latency(table, "latency", table.duration_ns("latency"))}
    bandwidth = {initiator: _checked_bandwidth(table, "bandwidth", table.rate("bandwidth"))}
    for other in with_cpus:
        # What the file does not say grows with the distance from that initiator.
        stretch = distances[other][number] / distances[initiator][number]
        latency.setdefault(other, round(latency[initiator] * stretch))
        bandwidth.setdefault(other, round(bandwidth[initiator] / stretch))
    for key, values, read, check in (
        ("latency_from", latency, table.duration_ns, _checked_latency),
        ("bandwidth_from", bandwidth, table.rate, _checked_bandwidth),
    ):
        for other in table.by_node(key, len(distances)):
            path = f"{key}.{other}"
            if other not in with_cpus:
                raise table.error(path, f"node {other} has no CPUs")
            if other == initiator:
                raise table.error(path, f"is the node's own initiator: write {key[:-5]}")
            values[other] = check(table, path, read(path))
    return Node(kind, size, cpus, initiator, latency, bandwidth)


def _checked_latency(table: Table, path: str, value: int) -> int:
    if not 1 <= value <= MAX_LATENCY_NS:
        raise table.error(path, f"must be between 1ns and {MAX_LATENCY_NS // 1000}us")
    return value


def _checked_bandwidth(table: Table, path: str, value: int) -> int:
    if value < MIB:
        raise table.error(path, "must be at least 1MiB/s")
    return value
