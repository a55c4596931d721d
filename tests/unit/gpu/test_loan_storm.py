# SPDX-License-Identifier: Apache-2.0
"""Revocations of loans under random load: bounds, lenders and bytes hold.

    TIERD_GPU_REVOCATIONS=10000 pytest -s tests/unit/gpu/test_loan_storm.py

prints what happened (docs/operate/gpu.md has it); `make soak` makes so many, too.
"""

from __future__ import annotations

import os
import random

import pytest
from loans import MANNERS, Loaned, Seen
from standin import CHUNK

from tierd_gpu.settings import HarvestSettings

REVOCATIONS = int(os.environ.get("TIERD_GPU_REVOCATIONS", "400"))
EPOCH = 20_000
"""Turns until all starts anew."""
SETTINGS = HarvestSettings(
    floor_bytes=4 * CHUNK,
    refill_bytes=8 * CHUNK,
    context_bytes=0,
    observe_ns=0,
    own_margin=0.0,
)


@pytest.mark.parametrize("revocations", [REVOCATIONS, pytest.param(10_000, marks=pytest.mark.soak)])
def test_whoever_obeys_is_in_time_and_whoever_does_not_costs_the_lender_nothing(
    revocations: int,
) -> None:
    rng, seen = random.Random(36), Seen()
    while seen.revocations["obeys"] < revocations:
        run = Loaned(rng, SETTINGS, seen)
        try:
            for _ in range(EPOCH):
                run.turn()
                if seen.revocations["obeys"] >= revocations:
                    break
            run.finish()
        finally:
            run.close()
    print(seen)
    assert seen.obeyed["obeys"] >= revocations - 2 * len(MANNERS)
    assert seen.late["obeys"] == 0
    assert seen.longest_ns <= SETTINGS.revoke_bound_ns
    assert seen.late["late"] > 0
    assert seen.revocations["never"] > 0 == seen.obeyed["never"] + seen.late["never"]
    assert seen.lenders > revocations // 10
    assert seen.refused == 0
    assert seen.evicted > 0
    assert seen.checked > revocations
    assert seen.wrong == 0
    assert seen.over == 0
