# SPDX-License-Identifier: Apache-2.0
"""`Machine`: a virtual tiered machine as its TOML file describes it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from tierd.core.errors import ConfigError
from tierd_lab._fields import Table
from tierd_lab.cards import CacheSpec, CardSpec, parse_cache, parse_cards
from tierd_lab.nodes import Node, parse_nodes
from tierd_lab.timemodel import TimeSpec, parse_time

MAX_ICOUNT: Final = 10
"""QEMU's largest -icount shift."""
MACHINES_VARIABLE: Final = "TIERD_MACHINES"
"""Environment variable: a folder of machine files that is looked in first."""
TCG_CPU: Final = "max,la57=off,erms=off,fsrm=off"
"""All that QEMU emulates, except for page tables of five levels and fast strings of bytes (ERMS,
FSRM). Without those, kernels copy and clear pages by eight bytes a step, of which QEMU needs one
for each."""


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
        time: how misses and instructions become modelled time; None: they do not.
    """

    name: str
    description: str
    nodes: tuple[Node, ...]
    distances: tuple[tuple[int, ...], ...]
    cpu: str = TCG_CPU
    kernel_args: tuple[str, ...] = ()
    qemu_args: tuple[str, ...] = ()
    coldplug: bool = False
    file: Path | None = None
    icount: int | None = None
    cache: CacheSpec | None = None
    cards: tuple[CardSpec, ...] = ()
    time: TimeSpec | None = None

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
        watched = self.cards or self.cache or self.time
        return "its memory traffic is watched" if watched else ""

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

    `$TIERD_MACHINES`, then the administrator's, then the ones of this source tree.
    """
    folders = [Path(os.environ[MACHINES_VARIABLE])] if os.environ.get(MACHINES_VARIABLE) else []
    folders += [
        Path("/etc/tierd/machines"),
        Path(__file__).resolve().parents[3] / "config" / "machines",
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
    cpu = top.text("cpu", TCG_CPU)
    kernel_args = top.texts("kernel_args")
    qemu_args = top.texts("qemu_args")
    coldplug = top.flag("coldplug", False)
    icount = top.number("icount", None)
    cache, time = parse_cache(top), parse_time(top)
    tables, card_tables = top.tables("node"), top.tables("card")
    top.finish()
    if not tables:
        raise top.error("node", "missing: a machine has at least one [[node]]")
    nodes, distances = parse_nodes(tables)
    cards = parse_cards(card_tables, tables, [node.size_bytes for node in nodes])
    for table in tables:
        table.finish()
    if time is not None and (icount is None or not all(node.latency_ns for node in nodes)):
        raise top.error("time", "needs icount, and latency and bandwidth of every node")
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
        time,
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
