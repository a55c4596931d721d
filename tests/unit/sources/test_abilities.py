# SPDX-License-Identifier: Apache-2.0
"""Abilities of sources are declared: a misspelt one is not silently the default's."""

from __future__ import annotations

import pytest

from tierd.core.access import AccessSource, Availability, EventDrivenSource
from tierd.sources.damon import DamonSource
from tierd.sources.faults import FaultSource
from tierd.sources.idlepage.source import IdlePageSource
from tierd.sources.neoprof import NeoProfSource
from tierd.sources.pmu import PmuSource
from tierd.sources.scan import ScanSource

SAMPLED = {"first_period", "make_sampler", "mode", "probe", "ready", "started"}
SCANS = {"decide_with", "progress", "pace", "state", "taught_s", "wake"}
OWN: dict[type[AccessSource], set[str]] = {
    DamonSource: set(),
    FaultSource: SAMPLED | {"counters"},
    PmuSource: SAMPLED | {"plans"},
    ScanSource: SCANS,
    IdlePageSource: SCANS,
    NeoProfSource: {
        *("cards", "clear", "copy_requests", "demoted", "epochs", "knows_cold"),
        *("profiles", "program", "promoted", "rate_cap", "requests", "taught_s", "visits"),
    },
}
"""Public names that are no ability: asked for by those who know this very source."""


def declared(source: type[AccessSource]) -> set[str]:
    """Names that the base classes in `core.access` declare."""
    found = {"name"}
    for base in source.__mro__:
        if base.__module__ == AccessSource.__module__:
            found |= vars(base).keys()
    return found


def undeclared(source: type[AccessSource]) -> set[str]:
    """Public names of a source that no base class in `core.access` declares."""
    own = [base for base in source.__mro__ if base.__module__.startswith("tierd.sources")]
    names = {name for base in own for name in vars(base) if not name.startswith("_")}
    return names - declared(source)


@pytest.mark.parametrize("source", OWN)
def test_what_a_source_can_is_declared(source: type[AccessSource]) -> None:
    assert undeclared(source) == OWN[source]


def test_a_misspelt_ability_is_found() -> None:
    misspelt = type("Misspelt", (DamonSource,), {"__module__": "tierd.sources.it", "reports_ns": 1})
    assert undeclared(misspelt) == {"reports_ns"}


def test_a_source_that_wakes_the_loop_cannot_leave_an_ability_out() -> None:
    class Misspelt(EventDrivenSource):
        name = "misspelt"
        backlog = 0.0
        learning_ns = phase_change_ns = phase_change_fds = 0

        def available(self) -> Availability:
            raise NotImplementedError

        def phase_changed(self) -> bool:
            raise NotImplementedError

        watch = poll = close = available  # type: ignore[assignment]

    with pytest.raises(TypeError, match="phase_change_fd"):
        Misspelt()  # type: ignore[abstract]
