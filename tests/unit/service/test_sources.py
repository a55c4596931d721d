# SPDX-License-Identifier: Apache-2.0
"""Every name that the configuration allows makes a source of that name."""

from __future__ import annotations

import pytest

from tierd.config import loads
from tierd.config.watching import EVENT_ROLES, SOURCES
from tierd.ebpf.events import ROLES
from tierd.service.sources import make_source


@pytest.mark.parametrize("name", SOURCES)
def test_every_name_makes_its_source(name: str) -> None:
    assert make_source(name, loads("").sources).name == name


def test_settings_reach_the_source() -> None:
    text = '[sources.scan]\nperiod = "2s"\ncpu = "9%"\n[sources.damon]\nsample = "7ms"\n'
    config = loads(text).sources
    scan, damon = make_source("scan", config), make_source("damon", config)
    assert (scan._settings.period_us, scan._settings.cpu_share) == (2_000_000, 0.09)
    assert damon._settings.sample_us == 7000


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="'tea-leaves'"):
        make_source("tea-leaves", loads("").sources)


def test_event_roles_are_those_of_the_event_tables() -> None:
    assert set(EVENT_ROLES) == set(ROLES)
