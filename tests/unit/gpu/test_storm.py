# SPDX-License-Identifier: Apache-2.0
"""Random moves with everything that can go wrong: no wrong byte, and the bounds hold.

    TIERD_GPU_MOVES=1000000 pytest -s tests/unit/gpu/test_storm.py

goes on until so many moves were made, in each mode, and prints what happened. In one epoch, that
of `make test`, everything that can go wrong does; `make soak` makes fifteen. docs/operate/gpu.md
has the figures of a million.
"""

from __future__ import annotations

import os
import random
from dataclasses import asdict, replace

import pytest
from standin import CHUNK
from storm import FLOOR, Seen, Storm

from tierd_gpu.settings import HarvestSettings
from tierd_gpu.tuning import PLAN

EPOCH = 10_000
"""Moves until a lender is lost; then a new host is made."""
MOVES = int(os.environ.get("TIERD_GPU_MOVES", EPOCH))
SETTINGS = HarvestSettings(
    floor_bytes=FLOOR * CHUNK,
    refill_bytes=2 * FLOOR * CHUNK,
    context_bytes=2 * CHUNK,
    home_free_chunks=8,
    observe_ns=0,
    own_margin=0.0,
    prefetch_chunks=4,
)


@pytest.mark.parametrize("moves", [MOVES, pytest.param(150_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "bounded"])
def test_whatever_happens_no_byte_is_wrong_and_every_bound_holds(durable: bool, moves: int) -> None:
    settings = replace(SETTINGS, durable=durable, revoke_bound_ns=20_000_000)
    rng, seen = random.Random(23), Seen()
    while seen.moves < moves:
        Storm(rng, seen, settings).run(min(EPOCH, moves))
    print(durable, {name: value for name, value in asdict(seen).items() if name != "mishaps"},
          dict(seen.mishaps))  # fmt: skip
    assert seen.checked > moves // 10
    assert seen.wrong == 0
    assert seen.refused == 0
    assert seen.crossed == 0
    assert seen.bounce <= PLAN.bounces
    assert (seen.revocations > 0) is not durable
    assert seen.revoke_ns <= settings.revoke_bound_ns
    assert all(seen.mishaps[name] for name in ("link", "everything", "client", "daemon", "lost"))
    if durable:
        assert seen.lost == 0
        assert seen.unbacked == 0
