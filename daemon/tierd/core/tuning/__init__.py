# SPDX-License-Identifier: Apache-2.0
"""Every number that tunes decisions and no configuration key sets: its value, unit and evidence.

Each subsystem has one object here, whose fields are read where they are used. So `override` has
to be called before the components are made. docs/reference/tuning.md lists all fields.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tierd.core.errors import ConfigError, did_you_mean
from tierd.core.tuning.feedback import FEEDBACK, REGRESSION, TRIAL
from tierd.core.tuning.measured import MEASURED
from tierd.core.tuning.phase import PHASE
from tierd.core.tuning.policy import COST, VALUE, WATERMARK
from tierd.core.tuning.service import (
    ACCOUNT,
    BANDWIDTH,
    FAST_PATH,
    HEALTH,
    HOTNESS,
    MIGRATION,
    PACING,
    PAGE_OUT,
    PRESSURE,
    WORKLOADS,
)
from tierd.core.tuning.sources import DAMON, HMU, INTERVAL, SCAN

__all__ = [
    "ACCOUNT",
    "BANDWIDTH",
    "COST",
    "DAMON",
    "FAST_PATH",
    "FEEDBACK",
    "HEALTH",
    "HMU",
    "HOTNESS",
    "INTERVAL",
    "MIGRATION",
    "PACING",
    "PAGE_OUT",
    "PHASE",
    "PRESSURE",
    "REGRESSION",
    "SCAN",
    "SECTIONS",
    "TRIAL",
    "VALUE",
    "WATERMARK",
    "WORKLOADS",
    "Field",
    "fields",
    "overridden",
    "override",
    "parse_override",
]

SECTIONS: Final[Mapping[str, Any]] = {
    "scan": SCAN,
    "phase": PHASE,
    "interval": INTERVAL,
    "damon": DAMON,
    "hmu": HMU,
    "pacing": PACING,
    "pressure": PRESSURE,
    "fast_path": FAST_PATH,
    "migration": MIGRATION,
    "account": ACCOUNT,
    "bandwidth": BANDWIDTH,
    "hotness": HOTNESS,
    "value": VALUE,
    "watermark": WATERMARK,
    "cost": COST,
    "feedback": FEEDBACK,
    "trial": TRIAL,
    "regression": REGRESSION,
    "workloads": WORKLOADS,
    "health": HEALTH,
    "page_out": PAGE_OUT,
}
"""Name of a subsystem → its object."""
NOT_READ: Final = "not read in a replay"
"""Sensitivity of a constant that no golden recording says anything about."""


@dataclass(frozen=True, slots=True)
class Field:
    """A tuning constant.

    Attributes:
        name: "subsystem.field".
        sensitivity: what half and twice the value change in the golden recordings.
    """

    name: str
    value: Any
    default: Any
    unit: str
    meaning: str
    evidence: str
    sensitivity: str


def fields() -> list[Field]:
    """Every tuning constant, by subsystem."""
    return [
        Field(
            name=f"{section}.{each.name}",
            value=getattr(found, each.name),
            default=each.default,
            sensitivity=MEASURED.get(f"{section}.{each.name}", NOT_READ),
            **each.metadata,
        )
        for section, found in SECTIONS.items()
        for each in dataclasses.fields(found)
    ]


def parse_override(text: str) -> tuple[str, Any]:
    """The name and the value of "subsystem.field=VALUE"; values of a tuple are separated by commas.

    Raises:
        ConfigError: there is no such field, or the value is not of its type.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise ConfigError("", f"{text!r} is not NAME=VALUE", hint="for example scan.warmup_scans=8")
    known = {each.name: each.default for each in fields()}
    if name not in known:
        hint = did_you_mean(name, known) or "tierd config show --internal lists all"
        raise ConfigError(name, "there is no such tuning constant", hint=hint)
    default = known[name]
    if not isinstance(default, tuple):
        return name, _number(name, value, default)
    parts = [part for part in value.strip("()[] ").split(",") if part.strip()]
    if len(parts) != len(default) and not _any_length(name):
        raise ConfigError(name, f"{value!r} has {len(parts)} values, not {len(default)}")
    if not parts:
        raise ConfigError(name, "at least one value is needed")
    return name, tuple(_number(name, part, default[0]) for part in parts)


def override(settings: Sequence[str]) -> Callable[[], None]:
    """Put other values in force, for components that are made from now on.

    Returns:
        What puts the values of before in force again.

    Raises:
        ConfigError: one of them is wrong; none is in force then.
    """
    parsed = [parse_override(text) for text in settings]
    values = {each.name: each.value for each in fields()}
    before = [(name, values[name]) for name, _ in parsed]
    for name, value in parsed:
        _set(name, value)

    def restore() -> None:
        for name, value in reversed(before):
            _set(name, value)

    return restore


@contextlib.contextmanager
def overridden(settings: Sequence[str]) -> Iterator[None]:
    """Other values as long as the context lasts.

    Raises:
        ConfigError: one of them is wrong; none is in force then.
    """
    restore = override(settings)
    try:
        yield
    finally:
        restore()


def _set(name: str, value: Any) -> None:
    section, _, field = name.partition(".")
    setattr(SECTIONS[section], field, value)


def _any_length(name: str) -> bool:
    section, _, field = name.partition(".")
    kind = typing.get_type_hints(type(SECTIONS[section]))[field]
    return Ellipsis in typing.get_args(kind)


def _number(name: str, text: str, default: float) -> float:
    try:
        value: float = int(text, 0) if isinstance(default, int) else float(text)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise ConfigError(name, f"{text.strip()!r} is not {kind}") from None
    if not math.isfinite(value):
        raise ConfigError(name, f"{text.strip()!r} is not a finite number")
    if value < 0 <= default:
        raise ConfigError(name, f"{text.strip()} is negative")
    return value
