# SPDX-License-Identifier: Apache-2.0
"""PMU events that report data addresses, by CPU model, from `ebpf/events/*.toml`.

Owns: reading and checking the tables, and finding this host's CPU in them.
Must not touch: opening events.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tierd.ebpf import files
from tierd.ebpf.attr import EventAttr, Sample
from tierd.errors import ConfigError, UnavailableError

ROLES: Final = ("l3-miss", "load-latency", "stores", "cxl", "ops")
PMU_FOLDER: Final = Path("/sys/bus/event_source/devices")
CPUINFO: Final = Path("/proc/cpuinfo")
LATENCY_CYCLES: Final = (3, 0xFFFF)
"""What MSR_PEBS_LD_LAT_THRESHOLD takes (Intel SDM volume 3, load latency facility)."""
_MODEL_KEYS: Final = {"name", "vendor", "family", "models", "pmu", "document", "event"}
_EVENT_KEYS: Final = {
    "role",
    "name",
    "event",
    "umask",
    "config",
    "precise",
    "threshold",
    "latency",
    "needs",
    "period",
    "step",
    "data_source",
    "user_only",
}


@dataclass(frozen=True, slots=True)
class Cpu:
    """A CPU as /proc/cpuinfo tells of it."""

    vendor: str
    family: int
    model: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class PmuEvent:
    """One table entry.

    Attributes:
        role: what it is for, one of `ROLES`.
        name: as the vendor writes it.
        config: the event's encoding.
        precise: 0 to 3.
        threshold: True when config1 takes a latency in cycles.
        latency: least and most of it.
        needs: format file that must exist, or an empty string.
        period: to begin with; a multiple of `step`.
        data_source: ask for each raw sample's data source (tells loads from stores).
        user_only: leave kernel mode out (not every PMU can).
    """

    role: str
    name: str
    config: int
    precise: int = 0
    threshold: bool = False
    latency: tuple[int, int] = LATENCY_CYCLES
    needs: str = ""
    period: int = 10007
    step: int = 1
    data_source: bool = False
    user_only: bool = True

    @property
    def writes(self) -> bool | None:
        """True for stores, False for loads, None where a sample's data source says."""
        return None if self.data_source else self.role == "stores"

    def attr(self, pmu: int, *, latency_cycles: int, physical: bool = False) -> EventAttr:
        """The event for the kernel; `latency_cycles` counts where there is a threshold.

        Raises:
            UnavailableError: this event cannot have that threshold.
        """
        least, most = self.latency
        if self.threshold and not least <= latency_cycles <= most:
            raise UnavailableError(
                f"{self.name} takes a latency of {least} to {most} cycles, not {latency_cycles}",
                hint="change latency_cycles in [sources.pmu]",
            )
        sample = Sample.TID | Sample.TIME | Sample.ADDR
        if physical:
            sample |= Sample.PHYS_ADDR
        return EventAttr(
            type=pmu,
            config=self.config,
            config1=latency_cycles if self.threshold else 0,
            period=self.period,
            sample=sample | Sample.DATA_SRC if self.data_source else sample,
            precise=self.precise,
            exclude_kernel=self.user_only,
        )


@dataclass(frozen=True, slots=True)
class CpuModel:
    """One CPU model's table: its events and the document they were compared with."""

    name: str
    vendor: str
    family: int
    models: frozenset[int]
    pmu: str
    document: str
    events: tuple[PmuEvent, ...]

    def matches(self, cpu: Cpu) -> bool:
        """Whether the table is for this CPU."""
        return cpu.vendor == self.vendor and cpu.family == self.family and cpu.model in self.models


def parse_tables(text: str, file: str) -> list[CpuModel]:
    """The models of one file.

    Raises:
        ConfigError: a mistake, with its place.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("", f"is no TOML: {error}", file=file) from error
    return [
        _model(entry, f"model[{number}]", file)
        for number, entry in enumerate(table.get("model", ()))
    ]


def _check_keys(entry: dict[str, Any], known: set[str], path: str, file: str) -> None:
    for key in entry:
        if key not in known:
            raise ConfigError(f"{path}.{key}", "is not known", file=file)


def _models(values: Iterable[int | str]) -> frozenset[int]:
    numbers: set[int] = set()
    for value in values:
        if isinstance(value, int):
            numbers.add(value)
        else:
            first, _, last = value.partition("-")
            numbers.update(range(int(first, 16), int(last, 16) + 1))
    return frozenset(numbers)


def _model(entry: dict[str, Any], path: str, file: str) -> CpuModel:
    _check_keys(entry, _MODEL_KEYS, path, file)
    try:
        return CpuModel(
            name=entry["name"],
            vendor=entry["vendor"],
            family=entry["family"],
            models=_models(entry["models"]),
            pmu=entry["pmu"],
            document=entry["document"],
            events=tuple(
                _event(each, f"{path}.event[{number}]", file)
                for number, each in enumerate(entry["event"])
            ),
        )
    except KeyError as error:
        raise ConfigError(f"{path}.{error.args[0]}", "is missing", file=file) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(path, str(error), file=file) from error


def _event(entry: dict[str, Any], path: str, file: str) -> PmuEvent:
    _check_keys(entry, _EVENT_KEYS, path, file)
    if entry["role"] not in ROLES:
        raise ConfigError(f"{path}.role", f"is none of {', '.join(ROLES)}", file=file)
    config = entry["config"] if "config" in entry else entry["event"] | entry["umask"] << 8
    event = PmuEvent(
        role=entry["role"],
        name=entry["name"],
        config=config,
        precise=entry.get("precise", 0),
        threshold=entry.get("threshold", False),
        latency=_latency(entry.get("latency", LATENCY_CYCLES), path, file),
        needs=entry.get("needs", "ldlat" if entry.get("threshold") else ""),
        period=entry["period"],
        step=entry.get("step", 1),
        data_source=entry.get("data_source", False),
        user_only=entry.get("user_only", True),
    )
    if event.period <= 0 or event.period % event.step:
        raise ConfigError(f"{path}.period", f"is no multiple of {event.step}", file=file)
    return event


def _latency(value: Any, path: str, file: str) -> tuple[int, int]:
    match value:
        case [int(least), int(most)] if 0 < least <= most:
            return least, most
        case _:
            raise ConfigError(f"{path}.latency", "is not [least, most] in cycles", file=file)


def load_tables() -> list[CpuModel]:
    """Every model of the installed tables.

    Raises:
        ConfigError: a mistake in a file.
    """
    return [
        model for file in files.event_files() for model in parse_tables(file.read_text(), str(file))
    ]


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


def find_model(cpu: Cpu, models: Iterable[CpuModel]) -> CpuModel:
    """The table of a CPU.

    Raises:
        UnavailableError: there is none.
    """
    for model in models:
        if model.matches(cpu):
            return model
    raise UnavailableError(
        f"no event table knows this CPU ({cpu.vendor} family {cpu.family:#x} "
        f"model {cpu.model:#x}{', ' + cpu.name if cpu.name else ''})",
        hint="tables are in ebpf/events: Intel Skylake to Granite Rapids, AMD Zen 2 on",
    )


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


def choose(
    model: CpuModel, pmu: Pmu, wanted: Iterable[str]
) -> tuple[list[PmuEvent], dict[str, str]]:
    """(events for the wanted roles, why others were left out), in the order of `wanted`.

    A core without an L3-miss filter falls back on all sampled ops where it has them.
    """
    chosen: list[PmuEvent] = []
    reasons: dict[str, str] = {}
    for role in wanted:
        own = [event for event in model.events if event.role == role]
        usable = [event for event in own if not event.needs or pmu.has_format(event.needs)]
        if usable:
            chosen.append(usable[0])
        elif own:
            reasons[role] = f"the kernel shows no format {own[0].needs} of {model.pmu}"
        else:
            reasons[role] = f"{model.name} has no such event"
    if not chosen:
        chosen = [
            event
            for event in model.events
            if event.role == "ops" and (not event.needs or pmu.has_format(event.needs))
        ][:1]
    return chosen, reasons
