# SPDX-License-Identifier: Apache-2.0
"""The age of the phase: one rule a test."""

from __future__ import annotations

import numpy as np

from tierd.core.access import AccessBatch
from tierd.engine.phase import PhaseAge

S = 10**9


def batches() -> list[AccessBatch]:
    page = np.array([1], np.uint64)
    return [AccessBatch(page, np.ones(1, np.float32), S, "scan")]


def test_before_anything_was_seen_a_phase_has_no_age() -> None:
    phase = PhaseAge()
    assert not phase.see(None, [], 5 * S)
    assert (phase.begun_ns, phase.seconds(9 * S)) == (0, 0.0)


def test_a_phase_begins_with_the_first_samples_or_the_last_change() -> None:
    phase = PhaseAge()
    assert not phase.see(0, batches(), 10 * S)
    assert not phase.see(0, batches(), 12 * S)
    assert phase.seconds(15 * S) == 5.0
    phase.restart(13 * S)
    assert phase.seconds(15 * S) == 2.0
    assert phase.see(14 * S, batches(), 15 * S)
    assert phase.seconds(15 * S) == 1.0
    # Another source has heard of nothing; what is known is known.
    assert not phase.see(0, batches(), 16 * S)
    assert not phase.see(None, [], 16 * S)
    assert phase.seconds(16 * S) == 2.0
    # A scan's change that is older than a burst of misses begins no older phase.
    phase.restart(18 * S)
    assert phase.see(17 * S, [], 19 * S)
    assert phase.seconds(19 * S) == 1.0


def test_changes_that_scans_found_are_counted_once() -> None:
    phase = PhaseAge()
    for phase_change_ns in (0, 7, 7, 9, 9):
        phase.see(phase_change_ns, [], 10)
    assert phase.scan_changes == 2
