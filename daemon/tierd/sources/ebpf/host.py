# SPDX-License-Identifier: Apache-2.0
"""What the kernel shows of this host: its CPUs, its PMUs, and its tracepoints.

A tracepoint has a number, places of its fields in a record, and names of fields' values.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd.core.errors import UnavailableError
from tierd.topology.sysfs import parse_list

CPU_FOLDER: Final = Path("/sys/devices/system/cpu")
PMU_FOLDER: Final = Path("/sys/bus/event_source/devices")
CPUINFO: Final = Path("/proc/cpuinfo")
ROOTS: Final = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
_FIELD: Final = re.compile(r"field:[^;]*?(\w+)(?:\[\d*\])?;\s*offset:(\d+);\s*size:(\d+);")
_PAIR: Final = re.compile(r'\{\s*(\d+),\s*"([^"]*)"\s*\}')


def online_cpus(folder: Path = CPU_FOLDER) -> list[int]:
    """CPUs that run now."""
    try:
        return sorted(parse_list((folder / "online").read_text()))
    except (OSError, ValueError):
        return list(range(os.cpu_count() or 1))


def running_cpus(folder: Path = CPU_FOLDER) -> dict[int, int]:
    """CPUs that run now, with a number that is another one when a CPU went and came back.

    The kernel makes a CPU's topology folder anew then; without the folder it is zero.
    """
    marks = {}
    for cpu in online_cpus(folder):
        try:
            marks[cpu] = (folder / f"cpu{cpu}" / "topology").stat().st_ino
        except OSError:
            marks[cpu] = 0
    return marks


def possible_cpus(folder: Path = CPU_FOLDER) -> int:
    """One more than the highest number that a CPU can ever have here."""
    try:
        return max(parse_list((folder / "possible").read_text())) + 1
    except (OSError, ValueError):
        return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Cpu:
    """A CPU as /proc/cpuinfo tells of it."""

    vendor: str
    family: int
    model: int
    name: str = ""


def read_cpu(file: Path = CPUINFO) -> Cpu:
    """This host's CPU.

    Raises:
        UnavailableError: /proc/cpuinfo does not say (not an x86).
    """
    fields: dict[str, str] = {}
    try:
        for line in file.read_text(errors="replace").splitlines():
            name, colon, value = line.partition(":")
            if not colon:
                if fields:
                    break
                continue
            fields[name.strip()] = value.strip()
        return Cpu(
            fields["vendor_id"],
            int(fields["cpu family"]),
            int(fields["model"]),
            fields.get("model name", ""),
        )
    except (OSError, KeyError, ValueError) as error:
        raise UnavailableError(
            "/proc/cpuinfo tells no vendor, family and model: there are event tables for "
            "Intel and AMD only"
        ) from error


@dataclass(frozen=True, slots=True)
class Pmu:
    """A PMU of this host: its number and its folder in sysfs."""

    type: int
    folder: Path

    def has_format(self, name: str) -> bool:
        """Whether the kernel takes a format field of this name."""
        return (self.folder / "format" / name).exists()


def find_pmu(name: str, root: Path = PMU_FOLDER) -> Pmu:
    """A PMU by name.

    Raises:
        UnavailableError: the kernel has no such PMU.
    """
    try:
        return Pmu(int((root / name / "type").read_text()), root / name)
    except (OSError, ValueError) as error:
        found = ", ".join(sorted(p.name for p in root.glob("*"))) if root.is_dir() else "none"
        raise UnavailableError(
            f"the kernel shows no PMU {name} (it has: {found})",
            hint="a virtual machine needs a virtual PMU with PEBS or IBS; most have none",
        ) from error


@dataclass(frozen=True, slots=True)
class Tracepoint:
    """One tracepoint.

    Attributes:
        id: its number, the `config` of a perf event.
        fields: (offset, size) in bytes by name.
        format: the text of its print format.
    """

    id: int
    fields: dict[str, tuple[int, int]]
    format: str

    def symbols(self, field: str) -> dict[int, str]:
        """The names of a field's values, as `__print_symbolic` has them."""
        start = self.format.find(f"__print_symbolic(REC->{field},")
        if start < 0:
            return {}
        end = self.format.find(")", start)
        return {int(n): text for n, text in _PAIR.findall(self.format[start:end])}


def parse_format(text: str) -> Tracepoint:
    """A tracepoint from the text of its `format` file."""
    found = re.search(r"^ID:\s*(\d+)", text, re.MULTILINE)
    fields = {name: (int(offset), int(size)) for name, offset, size in _FIELD.findall(text)}
    _, _, print_format = text.partition("print fmt:")
    return Tracepoint(int(found[1]) if found else -1, fields, print_format)


def find_tracepoint(name: str) -> Tracepoint:
    """The tracepoint `subsystem:event`.

    Raises:
        UnavailableError: tracefs is not mounted or not readable, or has no such event.
    """
    place = name.replace(":", "/")
    for root in ROOTS:
        try:
            return parse_format((root / "events" / place / "format").read_text())
        except FileNotFoundError:
            continue
        except PermissionError as error:
            raise UnavailableError(
                f"tracefs ({root}) cannot be read", hint="run tierd as root"
            ) from error
    if not any((root / "events").is_dir() for root in ROOTS):
        raise UnavailableError(
            "tracefs is not mounted", hint="mount -t tracefs tracefs /sys/kernel/tracing"
        )
    raise UnavailableError(f"this kernel has no tracepoint {name}")
