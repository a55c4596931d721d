# SPDX-License-Identifier: Apache-2.0
"""This host's CPU and its PMUs, as /proc/cpuinfo and sysfs tell of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd.core.errors import UnavailableError

PMU_FOLDER: Final = Path("/sys/bus/event_source/devices")
CPUINFO: Final = Path("/proc/cpuinfo")


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
