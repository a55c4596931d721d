# SPDX-License-Identifier: Apache-2.0
"""PMU events that report data addresses, by CPU model, from `ebpf/events/*.toml`.

Every event names what its encoding was read from; a table without that is refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tierd.core.errors import ConfigError, UnavailableError
from tierd.core.linux import LATENCY_CYCLES
from tierd.sources.ebpf import files
from tierd.sources.ebpf.host import Cpu, Pmu
from tierd.sources.ebpf.perf import EventAttr, Sample

ROLES: Final = ("l3-miss", "load-latency", "stores", "cxl", "ops")
KINDS: Final = ("event list", "manual", "revision guide", "change to Linux")
"""What an encoding may be read from, always the vendor's own."""
_SOURCE_KEYS: Final = {"by", "kind", "title", "version"}
_MODEL_KEYS: Final = {"name", "vendor", "family", "models", "pmu", "source", "event"}
_EVENT_KEYS: Final = {"role", "source", "name", "event", "umask", "config", "precise"} | {
    *("threshold", "latency", "needs", "period", "step", "data_source", "user_only")
}


@dataclass(frozen=True, slots=True)
class Source:
    """What an encoding was read from.

    Attributes:
        kind: one of `KINDS`.
        title: of the document, or of the change.
        version: revision, page or commit that was read.
    """

    by: str
    kind: str
    title: str
    version: str


@dataclass(frozen=True, slots=True)
class PmuEvent:
    """One table entry.

    Attributes:
        role: what it is for, one of `ROLES`.
        threshold: True when config1 takes a latency in cycles.
        needs: format file that must exist, or an empty string.
        period: to begin with; a multiple of `step`.
        data_source: ask for each raw sample's data source (tells loads from stores).
        user_only: leave kernel mode out (not every PMU can).
    """

    role: str
    name: str
    config: int
    sources: tuple[Source, ...]
    precise: int
    threshold: bool
    latency: tuple[int, int]
    needs: str
    period: int
    step: int
    data_source: bool
    user_only: bool

    @property
    def writes(self) -> bool | None:
        """True for stores, False for loads, None where a sample's data source says."""
        return None if self.data_source else self.role == "stores"

    def attr(self, pmu: int, *, latency_cycles: int) -> EventAttr:
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
    """One CPU model's table: its events; `sources` say which CPUs these are."""

    name: str
    vendor: str
    family: int
    models: frozenset[int]
    pmu: str
    sources: tuple[Source, ...]
    events: tuple[PmuEvent, ...]

    def matches(self, cpu: Cpu) -> bool:
        """Whether the table is for this CPU."""
        return cpu.vendor == self.vendor and cpu.family == self.family and cpu.model in self.models


def parse_tables(text: str, file: str) -> list[CpuModel]:
    """The models of one file. Raises ConfigError: a mistake, with its place."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("", f"is no TOML: {error}", file=file) from error
    sources = {
        name: _source(entry, f"source.{name}", file)
        for name, entry in table.get("source", {}).items()
    }
    return [
        _model(entry, f"model[{number}]", file, sources)
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


def _source(entry: dict[str, Any], path: str, file: str) -> Source:
    _check_keys(entry, _SOURCE_KEYS, path, file)
    try:
        source = Source(entry["by"], entry["kind"], entry["title"], entry["version"])
    except KeyError as error:
        raise ConfigError(f"{path}.{error.args[0]}", "is missing", file=file) from error
    if source.kind not in KINDS:
        raise ConfigError(f"{path}.kind", f"is none of {', '.join(KINDS)}", file=file)
    return source


def _sources(
    entry: dict[str, Any], path: str, file: str, known: dict[str, Source]
) -> tuple[Source, ...]:
    names = entry["source"]
    if not names or not isinstance(names, list):
        raise ConfigError(f"{path}.source", "names no source", file=file)
    for name in names:
        if name not in known:
            raise ConfigError(f"{path}.source", f"there is no [source.{name}]", file=file)
    return tuple(known[name] for name in names)


def _model(entry: dict[str, Any], path: str, file: str, sources: dict[str, Source]) -> CpuModel:
    _check_keys(entry, _MODEL_KEYS, path, file)
    try:
        return CpuModel(
            name=entry["name"],
            vendor=entry["vendor"],
            family=entry["family"],
            models=_models(entry["models"]),
            pmu=entry["pmu"],
            sources=_sources(entry, path, file, sources),
            events=tuple(
                _event(each, f"{path}.event[{number}]", file, sources)
                for number, each in enumerate(entry["event"])
            ),
        )
    except KeyError as error:
        raise ConfigError(f"{path}.{error.args[0]}", "is missing", file=file) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(path, str(error), file=file) from error


def _event(entry: dict[str, Any], path: str, file: str, sources: dict[str, Source]) -> PmuEvent:
    _check_keys(entry, _EVENT_KEYS, path, file)
    if entry["role"] not in ROLES:
        raise ConfigError(f"{path}.role", f"is none of {', '.join(ROLES)}", file=file)
    config = entry["config"] if "config" in entry else entry["event"] | entry["umask"] << 8
    event = PmuEvent(
        role=entry["role"],
        name=entry["name"],
        config=config,
        sources=_sources(entry, path, file, sources),
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
    """Every model of the installed tables. Raises ConfigError: a mistake in a file."""
    return [
        model for file in files.event_files() for model in parse_tables(file.read_text(), str(file))
    ]


def find_model(cpu: Cpu, models: Iterable[CpuModel]) -> CpuModel:
    """The table of a CPU. Raises UnavailableError: there is none."""
    for model in models:
        if model.matches(cpu):
            return model
    raise UnavailableError(
        f"no event table knows this CPU ({cpu.vendor} family {cpu.family:#x} "
        f"model {cpu.model:#x}{', ' + cpu.name if cpu.name else ''})",
        hint="tables are in ebpf/events: Intel Skylake to Granite Rapids, AMD Zen 2 to Zen 5",
    )


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
