# SPDX-License-Identifier: Apache-2.0
"""Memory controllers' own counts of what nodes serve, through perf: `Uncore`.

A controller's PMU (uncore_imc_N for DRAM, uncore_hbm_N for HBM) tells its events in
/sys/bus/event_source/devices/NAME/events: an encoding, and beside it a scale and a unit, which
make a count MiB. Where there are cas_count_read and cas_count_write these are taken, else the
free-running data_read and data_write of client CPUs. `cpumask` names one CPU for each package
that has such a controller. What a package's controllers serve is its nodes' of that kind; of
several (sub-NUMA clusters), equal parts are taken, as they interleave no finer.

Source: Documentation/ABI/testing/sysfs-bus-event_source-devices-events, -format.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final

from tierd.core.linux import UNCORE_UNITS
from tierd.core.tiermap import MemoryKind, MemoryNode
from tierd.sources.ebpf.perf import EventAttr, Sample
from tierd.sources.ebpf.syscalls import perf_event_open
from tierd.topology.sysfs import parse_list

log = logging.getLogger(__name__)

DEVICES: Final = "sys/bus/event_source/devices"
PAIRS: Final = (("cas_count_read", "cas_count_write"), ("data_read", "data_write"))
KINDS: Final = {"imc": MemoryKind.DRAM, "hbm": MemoryKind.HBM}
_NAME: Final = re.compile(r"uncore_(imc|hbm)(_free_running)?(_\d+)?$")

Open = Callable[[EventAttr, int], int]
"""An event and a CPU to a descriptor."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of one controller's PMU.

    Attributes:
        kind: memory that the controller serves.
        cpus: one of each package.
        bytes_each: of a count.
    """

    pmu: str
    kind: MemoryKind
    cpus: tuple[int, ...]
    attr: EventAttr
    bytes_each: float


def events(root: Path = Path("/")) -> list[Event]:
    """What counts memory traffic on this host; PMUs that cannot be understood are left out."""
    found: dict[str, list[Event]] = {}
    for folder in sorted((root / DEVICES).glob("uncore_*")):
        match = _NAME.match(folder.name)
        if match is None:
            continue
        try:
            own = _events_of(folder, KINDS[match[1]])
        except (OSError, ValueError, KeyError) as error:
            log.info('event=uncore_left_out pmu=%s reason="%s"', folder.name, error)
            continue
        found.setdefault(match[1] + (match[2] or ""), []).extend(own)
    # Free-running counters are of the same controllers.
    return [
        each
        for family, own in found.items()
        for each in own
        if not (family.endswith("_free_running") and found.get(family.split("_")[0]))
    ]


def _events_of(folder: Path, kind: MemoryKind) -> list[Event]:
    number = int((folder / "type").read_text())
    cpus = tuple(sorted(parse_list((folder / "cpumask").read_text())))
    for names in PAIRS:
        if not all((folder / "events" / name).exists() for name in names):
            continue
        made = []
        for name in names:
            words = _encoding(folder, (folder / "events" / name).read_text())
            attr = EventAttr(number, words[0], 0, Sample(0), words[1], words[2])
            made.append(Event(folder.name, kind, cpus, attr, _bytes(folder / "events", name)))
        return made
    return []


def _encoding(folder: Path, text: str) -> tuple[int, int, int]:
    """config, config1 and config2 of "event=0x04,umask=0x03", by the PMU's format."""
    words = {"config": 0, "config1": 0, "config2": 0}
    for term in text.strip().split(","):
        name, _, value = term.partition("=")
        number = int(value, 0) if value else 1
        if name in words:
            words[name] |= number
            continue
        place, _, bits = (folder / "format" / name).read_text().strip().partition(":")
        at = sorted(parse_list(bits))
        if number >> len(at):
            raise ValueError(f"{term} does not fit {bits}")
        words[place] |= sum((number >> i & 1) << bit for i, bit in enumerate(at))
    return words["config"], words["config1"], words["config2"]


def _bytes(folder: Path, name: str) -> float:
    """Bytes of a count: scale times unit, or a line of 64 bytes where nothing is told."""
    scale, unit = folder / f"{name}.scale", folder / f"{name}.unit"
    if not scale.exists():
        return 64.0
    return (
        float(scale.read_text()) * UNCORE_UNITS[unit.read_text().strip() if unit.exists() else ""]
    )


def _count(attr: EventAttr, cpu: int) -> int:
    """Open a counter that counts from now on."""
    return perf_event_open(attr.encode(counting=True), -1, cpu)


class Uncore:
    """Reads all memory controllers of a host.

    Args:
        count: opens an event on a CPU; a descriptor of which 8 bytes are the count.
    """

    def __init__(
        self,
        nodes: Mapping[int, MemoryNode],
        *,
        root: Path = Path("/"),
        count: Open = _count,
    ) -> None:
        self._open: list[tuple[FileIO, float, Sequence[int]]] = []
        self._before: list[int] | None = None
        self.refused = 0
        """Counters that the kernel did not give."""
        package = {cpu: _package(root, cpu) for node in nodes.values() for cpu in node.cpus}
        for event in events(root):
            for cpu in event.cpus:
                own = _nodes_of(package.get(cpu), event.kind, nodes, package)
                if not own:
                    continue
                try:
                    file = FileIO(count(event.attr, cpu))
                    self._open.append((file, event.bytes_each, own))
                except OSError as error:
                    self.refused += 1
                    log.info('event=uncore_refused pmu=%s reason="%s"', event.pmu, error)
        if self.refused:  # part of the controllers would tell part of the load
            self.close()

    def __bool__(self) -> bool:
        return bool(self._open)

    def read(self, elapsed_s: float) -> dict[int, float]:
        """Bytes a second by node since the last time; none the first time, or on an error."""
        try:
            counts = [int.from_bytes(file.read(8) or b"", "little") for file, _, _ in self._open]
        except OSError as error:
            log.warning('event=uncore_lost reason="%s"', error)
            self.close()
            return {}
        before, self._before = self._before, counts
        if before is None or elapsed_s <= 0:
            return {}
        loads: dict[int, float] = {}
        for (_, each, nodes), was, now in zip(self._open, before, counts, strict=True):
            for node in nodes:
                grown = ((now - was) % (1 << 64)) * each / elapsed_s / len(nodes)
                loads[node] = loads.get(node, 0.0) + grown
        return loads

    def close(self) -> None:
        """Count no more."""
        for file, _, _ in self._open:
            file.close()
        self._open.clear()
        self._before = None


def _package(root: Path, cpu: int) -> int:
    file = root / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def _nodes_of(
    package: int | None,
    kind: MemoryKind,
    nodes: Mapping[int, MemoryNode],
    packages: Mapping[int, int],
) -> list[int]:
    """Nodes of a kind whose own CPUs, or nearest ones, are in a package."""
    near = {
        number
        for number, node in nodes.items()
        if any(packages[cpu] == package for cpu in node.cpus)
    }
    return [
        number
        for number, node in sorted(nodes.items())
        if node.kind is kind and (number in near or near & set(node.initiators))
    ]
