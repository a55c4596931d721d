# SPDX-License-Identifier: Apache-2.0
"""What tells programs that use other memory from chance, played as the module counts."""

from __future__ import annotations

import numpy as np
import pytest

from tierd.sources.scan_controller import ScanPhaseDetector
from tierd.sources.scan_records import ScanSummary

PAGES = 50_000


def found(looks: np.ndarray) -> ScanSummary:
    """What the last of nine looks found, bool[pages, 9], the oldest first (kmod/classes.h)."""
    seen, before = looks[:, 1:].sum(axis=1), looks[:, :8].sum(axis=1)
    became = looks[:, 8] & (seen >= 2) & (before < 2)
    newcomers = became & looks[:, 7] & (seen == 2)
    steady = looks[:, 5:8].all(axis=1)
    newly_idle = steady & ~looks[:, 8]

    def share(part: np.ndarray, whole: np.ndarray) -> float:
        return float(part.sum() / max(1, whole.sum()))

    return ScanSummary(
        int(looks[:, 8].sum()), int(newcomers.sum()), share(newcomers, became),
        int(newly_idle.sum()), share(newly_idle, steady),
    )  # fmt: skip


def is_phase_change(turnover: ScanSummary) -> bool:
    return ScanPhaseDetector(10).is_phase_change(turnover, PAGES, 10)


@pytest.mark.parametrize("chance", [0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.34, 0.5, 0.9])
def test_what_looks_find_by_chance_is_no_news(chance: float) -> None:
    looks = np.random.default_rng(3).random((PAGES, 9)) < chance
    assert not is_phase_change(found(looks))


@pytest.mark.parametrize("chance", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("hot", [0.63, 0.9, 1.0])
def test_a_hot_set_that_moves_is_seen_by_the_first_look_at_it(chance: float, hot: float) -> None:
    """A page just worth its moves is found by 0.63 of all looks."""
    rng = np.random.default_rng(5)
    looks = rng.random((PAGES, 9)) < chance
    often = rng.random((PAGES // 10, 9)) < hot
    looks[: len(often), :8] = often[:, :8]
    assert not is_phase_change(found(np.roll(looks, 1, axis=1)))  # it has not moved yet
    looks[len(often) : 2 * len(often), 8] = often[:, 8]
    turnover = found(looks)
    assert is_phase_change(turnover)
    assert turnover.newly_hot_fraction < 0.5  # which takes two


def test_newcomers_are_seen_by_the_second_look_where_nothing_falls_silent() -> None:
    rng = np.random.default_rng(5)
    looks = rng.random((PAGES, 9)) < 0.05
    looks[: PAGES // 20] = True
    assert not is_phase_change(found(looks))
    looks[PAGES // 2 : PAGES // 2 + PAGES // 10, 7:] = True
    assert is_phase_change(found(looks))
