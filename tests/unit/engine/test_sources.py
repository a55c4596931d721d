# SPDX-License-Identifier: Apache-2.0
"""Every name that the configuration allows makes a source of that name."""

from __future__ import annotations

import pytest

from tierd.config.watching import EVENT_ROLES, SOURCES
from tierd.config.whole import loads
from tierd.sources.ebpf.events import ROLES
from tierd.sources.hmu_devices import TRACKS
from tierd.sources.neoprof import NeoProfSource
from tierd.sources.selection import make_source


@pytest.mark.parametrize("name", SOURCES)
def test_every_name_makes_its_source(name: str) -> None:
    assert make_source(name, loads("").sources).name == name


def test_settings_reach_the_source() -> None:
    text = (
        '[sources.scan]\ninterval = "2s"\ncpu_limit = "9%"\n'
        '[sources.damon]\nsampling_interval = "7ms"\n'
    )
    config = loads(text).sources
    scan, damon = make_source("scan", config), make_source("damon", config)
    assert (scan._settings.interval_ns, scan._settings.cpu_limit) == (2_000_000_000, 0.09)
    assert damon._settings.sampling_interval_ns == 7_000_000


@pytest.mark.parametrize(
    ("lines", "text", "visits"),
    [
        (False, "", 1 / 8),
        (True, "", 1.0),
        (False, "[sources.neoprof]\nlines_per_access = 2\n", 1 / 2),
        (True, "[sources.neoprof]\nlines_per_access = 2\n", 1 / 2),
    ],
)
def test_what_a_request_is_worth_depends_on_what_the_policy_weighs(
    lines: bool, text: str, visits: float
) -> None:
    source = make_source("neoprof", loads(text).sources, lines=lines)
    assert isinstance(source, NeoProfSource)
    assert source.visits == visits


@pytest.mark.parametrize(
    ("lines", "text", "track", "coalesce"),
    [
        (False, "", "reads", True),
        (True, "", "both", False),
        (True, "merge_requests = true\n", "both", False),
        (False, "merge_requests = false\n", "reads", False),
        (False, 'access_type = "both"\n', "both", True),
        (True, 'access_type = "reads"\n', "reads", False),
    ],
)
def test_what_cards_count_depends_on_what_the_policy_weighs(
    lines: bool, text: str, track: str, coalesce: bool
) -> None:
    source = make_source("neoprof", loads(f"[sources.neoprof]\n{text}").sources, lines=lines)
    assert isinstance(source, NeoProfSource)
    assert TRACKS[source.settings.access_type] is TRACKS[track]
    assert source.settings.merge_requests is coalesce


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="'tea-leaves'"):
        make_source("tea-leaves", loads("").sources)


def test_event_roles_are_those_of_the_event_tables() -> None:
    assert set(EVENT_ROLES) == set(ROLES)
