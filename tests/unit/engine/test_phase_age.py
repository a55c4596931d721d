# SPDX-License-Identifier: Apache-2.0
"""For how long the hot set has stood still: one rule a test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tierd.core.access import AccessBatch
from tierd.engine.phase import PhaseAge

S = 10**9


def batches() -> list[AccessBatch]:
    page = np.array([1], np.uint64)
    return [AccessBatch(page, np.ones(1, np.float32), S, "scan")]


def changes(last_ns: int) -> Any:
    return SimpleNamespace(last_ns=last_ns)


def test_before_anything_was_seen_it_has_not_stood() -> None:
    still = PhaseAge()
    still.see(None, [], 5 * S)
    assert (still.begun_ns, still.seconds(None, 9 * S)) == (0, 0.0)


def test_it_stands_since_the_first_samples_or_the_last_sign_of_a_change() -> None:
    still = PhaseAge()
    still.see(0, batches(), 10 * S)
    still.see(0, batches(), 12 * S)
    assert still.seconds(None, 15 * S) == 5.0
    assert still.seconds(changes(13 * S), 15 * S) == 2.0
    still.see(14 * S, batches(), 15 * S)
    assert still.seconds(changes(13 * S), 15 * S) == 1.0
    # Another source has heard of nothing; what is known is known.
    still.see(0, batches(), 16 * S)
    still.see(None, [], 16 * S)
    assert still.seconds(None, 16 * S) == 2.0


def test_news_are_counted_once() -> None:
    still = PhaseAge()
    for phase_change_ns in (0, 7, 7, 9, 9):
        still.see(phase_change_ns, [], 10)
    assert still.scan_changes == 2
