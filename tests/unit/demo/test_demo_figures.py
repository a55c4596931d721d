# SPDX-License-Identifier: Apache-2.0
"""The figures of a demo run, from reports as hotset prints them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[2] / "demo/figures.py"
SPEC = importlib.util.spec_from_file_location("demo_figures", FILE)
assert SPEC is not None
assert SPEC.loader is not None
figures = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(figures)

CLOCK = 100.0
"""The guest's clock when the workload's own time is 0."""


def report(t: float, share: float, event: str = "sample") -> dict[str, Any]:
    return {
        "event": event,
        "t": t,
        "clock": CLOCK + t,
        "fast_share": share,
        "hot_pages": 1000,
        "updates": int(t * 300_000),
    }


def run(*shares: float, moved_after: int | None = None) -> list[dict[str, Any]]:
    """A report a second; the hot set moves in the second of report `moved_after`."""
    lines = [report(0, 0.07, "start")]
    for second, share in enumerate(shares, 1):
        if second == moved_after:
            lines.append({"event": "hot_set_moved", "t": second})
        lines.append(report(second, share))
    return [*lines, {**report(len(shares) + 0.5, shares[-1], "end"), "checksum_ok": True}]


TOTALS = {"promoted_pages": 1200, "demoted_pages": 300, "ping_pong_pages": 4}


def test_times_count_from_the_handing_over() -> None:
    """0.90 and 95 % of the steady state are two different moments."""
    found = figures.run_figures(
        run(0.1, 0.5, 0.85, 0.91, 0.96, 0.97, 0.97, 0.97, 0.97, 0.97), TOTALS, CLOCK + 0.5
    )
    assert found["steady_share"] == 0.97
    assert found["seconds_to_90_percent"] == 3.5
    assert found["seconds_to_95_percent_of_steady"] == 4.5
    assert found["seconds_to_90_percent_after_move"] is None
    assert found["fast_share_after"] == 0.97
    assert found["moves_per_hot_page"] == 1.5
    assert found["ping_pong_pages"] == 4
    assert found["updates_per_second"] == 300_000


def test_a_share_that_is_never_reached_has_no_time() -> None:
    found = figures.run_figures(run(*[0.3] * 8), {**TOTALS, "promoted_pages": 0}, CLOCK)
    assert found["seconds_to_90_percent"] is None
    assert found["seconds_to_95_percent_of_steady"] == 1.0


def test_the_move_parts_the_run_in_two() -> None:
    """The way back counts from the move; moves are over the pages of both hot sets."""
    shares = [0.5, 0.95, 0.96, 0.96, 0.96, 0.10, 0.4, 0.92, 0.96]
    early = {"promoted_pages": 900, "demoted_pages": 0}
    found = figures.run_figures(run(*shares, moved_after=6), TOTALS, CLOCK, early)
    assert found["seconds_to_90_percent"] == 2.0
    assert found["steady_share"] == round((0.5 + 0.95 + 3 * 0.96) / 5, 4)
    assert found["fast_share_after_move_at_first"] == 0.10
    assert found["seconds_to_90_percent_after_move"] == 2.0
    assert found["moves_per_hot_page"] == 0.75
    assert found["moves_per_hot_page_before_move"] == 0.9
    assert found["checksum_ok"] is True


@pytest.mark.parametrize(
    ("sets", "room_pages", "least"), [(1, 1000, 1.0), (1, 600, 1.4), (2, 1200, 1.4), (2, 0, 2.0)]
)
def test_the_fewest_moves_are_those_in_and_out_beyond_the_room(
    sets: int, room_pages: int, least: float
) -> None:
    assert figures.least_moves(1000, 1.0, sets, room_pages * 4096) == least


def test_hot_pages_that_are_there_already_need_no_move() -> None:
    assert figures.least_moves(1000, 0.4, 1, 4096 * 400) == 0.4
