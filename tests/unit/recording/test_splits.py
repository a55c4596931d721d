# SPDX-License-Identifier: Apache-2.0
"""Splits of folios in recordings: they come back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tierd.core.migration import MigrationPlan, MigrationResult, SplitFate
from tierd.core.tiermap import TierMap
from tierd.hotness.pattern import Patterns
from tierd.observe.recording import RecordingError
from tierd.observe.recording.records import RecordedTick, plan_difference
from tierd.observe.recording.schema import decode_tick, encode_tick
from tierd.policy.inputs import Traffic
from tierd.policy.limits import Budget

TIERS = TierMap((), {})
SPLIT = np.array([512, (3 << 48) + 1024], np.uint64)
FATE = np.array([SplitFate.DONE, SplitFate.REFUSED], np.uint8)


def tick(split: np.ndarray, pages: tuple[float, float], *, own: bool = False) -> RecordedTick:
    one = np.ones(2)
    patterns = Patterns(np.array([1, 9], np.uint64), one, one, one, one, np.array(pages))
    plan = replace(MigrationPlan.empty({"no room": 3}), split=split)
    told = replace(plan, notes={}) if own else plan
    report = replace(MigrationResult.not_tried(told), split_fate=FATE[: len(split)])
    return RecordedTick(
        number=1,
        time_ns=2,
        end_ns=3,
        source="",
        located=0,
        walked=0,
        targets=0,
        ops=(),
        config="",
        tiers=TIERS,
        usage={},
        budget=Budget(5),
        plan=plan,
        report=report,
        moved=True,
        ms={},
        traffic=Traffic(7, 5.0, patterns=patterns),
    )


@pytest.mark.parametrize("own", [False, True])
def test_splits_and_their_fates_come_back(own: bool) -> None:
    found = decode_tick(encode_tick(tick(SPLIT, (16.5, np.nan), own=own)), "", TIERS)
    assert found.report is not None and found.traffic is not None
    assert found.plan.split.tolist() == found.report.plan.split.tolist() == SPLIT.tolist()
    assert (found.report.plan is found.plan) == (not own)
    assert found.report.split_fate.tolist() == FATE.tolist()
    assert np.array_equal(found.traffic.patterns.pages, [16.5, np.nan], equal_nan=True)
    assert found.plan.notes == {"no room": 3}


def test_a_tick_without_splits_comes_back_without_any() -> None:
    found = decode_tick(encode_tick(tick(SPLIT[:0], (np.nan, np.nan))), "", TIERS)
    assert found.traffic is not None
    assert np.isnan(found.traffic.patterns.pages).all()
    assert not len(found.plan.split)


def test_plans_that_split_others_differ() -> None:
    one, other = (replace(MigrationPlan.empty(), split=split) for split in (SPLIT, SPLIT[:1]))
    assert plan_difference(one, one) == ""
    assert "split" in plan_difference(one, other)


@pytest.mark.parametrize("pages", [0.5, 513.0, np.inf, -np.inf])
def test_pages_beyond_a_region_are_refused(pages: float) -> None:
    with pytest.raises(RecordingError, match="pages"):
        decode_tick(encode_tick(tick(SPLIT, (pages, 1.0))), "", TIERS)


def test_an_unknown_fate_is_refused() -> None:
    wrong = tick(SPLIT, (1.0, 1.0))
    assert wrong.report is not None
    report = replace(wrong.report, split_fate=np.full(2, 99, np.uint8))
    with pytest.raises(RecordingError, match="fate"):
        decode_tick(encode_tick(replace(wrong, report=report)), "", TIERS)
