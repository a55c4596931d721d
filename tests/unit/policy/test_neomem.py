# SPDX-License-Identifier: Apache-2.0
"""NeoMem's algorithm: what p and the threshold become, with every brake."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.config.model import Config
from tierd.policy.neomem import (
    CardProfile,
    CardState,
    Moved,
    NeoMemSettings,
    decide,
    first_state,
    quantiles,
)
from tierd.sources.kmod.neoprof import histogram_edges

EDGES = histogram_edges()
WIDTH = 524_288
SETTINGS = replace(NeoMemSettings.of(Config()), least_count=0)
NOTHING = Moved(promoted_pages=0, ping_pong_pages=0, promoted_bytes=0, seconds=1.0)


def histogram(*groups: tuple[int, int]) -> np.ndarray:
    """(value, counters) groups; what is left of the width is zero."""
    counts = np.zeros(64, np.int64)
    for value, count in groups:
        counts[np.searchsorted(EDGES, value, side="right") - 1] += count
    counts[0] += WIDTH - counts.sum()
    return counts


def profile(*groups: tuple[int, int], **more: int) -> CardProfile:
    known = {
        "error_bound": 0,
        "busy": 0,
        "capacity": 1000,
        "reports": 10,
        "refused": 0,
        "threshold_max": 65535,
    }
    return CardProfile(histogram=histogram(*groups), edges=EDGES, **{**known, **more})


def test_the_threshold_is_the_quantile_of_the_hot_share() -> None:
    # p = 0.1 % of 512 K counters are 524; 1000 counters stand at 7.
    decision = decide(first_state(SETTINGS, 1), profile((7, 1000), (2, 5000)), NOTHING, SETTINGS)
    assert decision.quantile == decision.state.threshold == 7
    assert decision.state.p == SETTINGS.p_init
    assert not (decision.over_quota or decision.under_error)


def test_pages_that_cannot_be_promoted_do_not_use_up_the_hot_share() -> None:
    """600 hot pages of the kernel's at 300, and a thousand to promote at 7."""
    kernels = profile((300, 600), (7, 1000))
    assert decide(first_state(SETTINGS, 1), kernels, NOTHING, SETTINGS).state.threshold > 200
    told = replace(kernels, unmovable=600)
    assert decide(first_state(SETTINGS, 1), told, NOTHING, SETTINGS).state.threshold == 7


def test_pages_that_have_moved_do_not_use_up_the_hot_share() -> None:
    """Their counters stay until the next epoch; more hot pages wait below them."""
    ramped = replace(first_state(SETTINGS, 1), p=SETTINGS.p_max)
    crowd = profile((90, 20_000), (40, 20_000), (2, 100_000))
    assert decide(ramped, crowd, NOTHING, SETTINGS).state.threshold >= 88
    told = replace(crowd, moved=20_000)
    assert 40 <= decide(ramped, told, NOTHING, SETTINGS).state.threshold < 44


def test_busy_memory_raises_the_hot_share() -> None:
    busy = profile((7, 1000), busy=500)
    assert decide(first_state(SETTINGS, 1), busy, NOTHING, SETTINGS).state.p == pytest.approx(
        SETTINGS.p_init * 1.5
    )
    twice = replace(SETTINGS, alpha=2.0)
    assert decide(first_state(twice, 1), busy, NOTHING, twice).state.p == pytest.approx(
        SETTINGS.p_init * 2.25
    )


def test_ping_pong_lowers_the_hot_share() -> None:
    moved = Moved(promoted_pages=1000, ping_pong_pages=500, promoted_bytes=0, seconds=1.0)
    decision = decide(first_state(SETTINGS, 1), profile((7, 1000)), moved, SETTINGS)
    assert decision.state.p == pytest.approx(SETTINGS.p_init / 1.5**2)


def test_a_few_pages_that_come_back_lower_no_share_that_admits_many() -> None:
    """In a quiet period all that moves may be ping-pong, and say nothing of p."""
    few = Moved(promoted_pages=3, ping_pong_pages=3, promoted_bytes=0, seconds=1.0)
    seen = profile((7, 1000))
    admitted = SETTINGS.p_init * int(seen.histogram.sum())
    assert admitted > 500
    quiet = decide(first_state(SETTINGS, 1), seen, few, SETTINGS)
    assert quiet.state.p == pytest.approx(SETTINGS.p_init / (1 + 3 / admitted) ** 2)
    # More than the share admits count in full.
    many = Moved(promoted_pages=3, ping_pong_pages=600, promoted_bytes=0, seconds=1.0)
    busy = decide(first_state(SETTINGS, 1), seen, many, SETTINGS)
    assert busy.state.p == pytest.approx(SETTINGS.p_init / 4)


def test_ping_pong_without_a_promotion_is_of_what_the_share_admits() -> None:
    moved = Moved(promoted_pages=0, ping_pong_pages=5, promoted_bytes=0, seconds=1.0)
    assert moved.ping_pong(4.0) == 1.0
    assert moved.ping_pong(50.0) == pytest.approx(0.1)
    seen = profile((7, 1000), (2, 1000))
    assert seen.admitted(0.001) == pytest.approx(0.001 * WIDTH)
    assert seen.admitted(0.01) == 2000  # no more are in use


@pytest.mark.parametrize(("promoted", "halved"), [(255_999_999, False), (256_000_000, True)])
def test_from_the_quota_on_the_hot_share_is_halved(promoted: int, halved: bool) -> None:
    moved = Moved(promoted_pages=0, ping_pong_pages=0, promoted_bytes=promoted, seconds=1.0)
    decision = decide(first_state(SETTINGS, 1), profile((7, 1000), busy=999), moved, SETTINGS)
    assert decision.over_quota is halved
    expected = SETTINGS.p_init / 2 if halved else SETTINGS.p_init * 1.999
    assert decision.state.p == pytest.approx(expected)


def test_the_quota_is_of_the_period_whatever_its_length() -> None:
    moved = Moved(promoted_pages=0, ping_pong_pages=0, promoted_bytes=300_000_000, seconds=2.0)
    assert not decide(first_state(SETTINGS, 1), profile((7, 1)), moved, SETTINGS).over_quota


def test_a_quantile_below_the_error_bound_halves_the_hot_share_again() -> None:
    given_profile = profile((7, 1000), (50, 300), error_bound=20)
    decision = decide(first_state(SETTINGS, 1), given_profile, NOTHING, SETTINGS)
    assert decision.under_error
    assert decision.state.p == SETTINGS.p_init / 2
    # 0.05 % are 262 of the 300 counters in the bin from 48 on.
    assert 48 <= decision.state.threshold < 52


def test_the_hot_share_never_falls_below_its_least() -> None:
    moved = Moved(promoted_pages=10, ping_pong_pages=10, promoted_bytes=10**12, seconds=1.0)
    state = CardState(SETTINGS.p_min, 1)
    decision = decide(state, profile((7, 1000), error_bound=10**6), moved, SETTINGS)
    assert decision.state.p == SETTINGS.p_min


def test_the_hot_share_never_rises_above_its_most() -> None:
    decision = decide(CardState(SETTINGS.p_max, 1), profile((7, 10), busy=1000), NOTHING, SETTINGS)
    assert decision.state.p == SETTINGS.p_max


def test_an_idle_card_has_the_least_threshold() -> None:
    """All counters are zero: their quantile is zero, and the limit holds."""
    settings = replace(SETTINGS, least_count=6)
    decision = decide(first_state(settings, 100), profile(), NOTHING, settings)
    assert decision.quantile == 0
    assert decision.state.threshold == 6


def test_all_counters_in_the_last_bin_give_its_edge() -> None:
    decision = decide(first_state(SETTINGS, 1), profile((5000, WIDTH)), NOTHING, SETTINGS)
    assert decision.state.threshold == EDGES[-1] == 1912


def test_the_threshold_is_never_more_than_the_card_takes() -> None:
    limited = profile((5000, WIDTH), threshold_max=255)
    decision = decide(first_state(SETTINGS, 1), limited, NOTHING, SETTINGS)
    assert decision.state.threshold == 255


def test_an_overflowing_list_raises_the_threshold_until_it_is_calm() -> None:
    state = first_state(SETTINGS, 1)
    seen = []
    for refused in (5, 5, 5, 0, 0, 0):
        decision = decide(state, profile((7, 1000), refused=refused), NOTHING, SETTINGS)
        state = decision.state
        seen.append(state.threshold)
    assert seen == [14, 28, 56, 28, 14, 7]


def test_the_boost_is_bounded() -> None:
    state = first_state(SETTINGS, 1)
    for _ in range(40):
        state = decide(state, profile((2040, 1000), refused=1), NOTHING, SETTINGS).state
    assert state.boost == 65535
    assert state.threshold == 65535


def test_without_a_histogram_the_threshold_follows_what_is_reported() -> None:
    blind = replace(profile(), histogram=np.zeros(64, np.int64))
    busy = decide(CardState(0.001, 40), replace(blind, refused=1), NOTHING, SETTINGS)
    assert (busy.quantile, busy.state.threshold) == (None, 80)
    steady = decide(CardState(0.001, 40), blind, NOTHING, SETTINGS)
    assert steady.state.threshold == 40
    silent = decide(CardState(0.001, 40), replace(blind, reports=0), NOTHING, SETTINGS)
    assert silent.state.threshold == 20


def test_a_card_that_tells_no_bandwidth_counts_as_idle() -> None:
    assert profile((7, 1), busy=100, capacity=0).bandwidth == 0.0


counts = st.lists(st.integers(0, 10**6), min_size=64, max_size=64).filter(any)


@given(counts, st.floats(0, 1))
def test_a_quantile_has_its_share_of_counters_below_it(values: list[int], q: float) -> None:
    table = np.array(values, np.int64)
    value = int(quantiles(table, EDGES, np.array([q]))[0])
    index = int(np.searchsorted(EDGES, value, side="right")) - 1
    assert table[index] > 0
    through = float(table[: index + 1].sum())
    assert through >= q * table.sum() * (1 - 1e-12)
    assert float(table[:index].sum()) <= q * table.sum() * (1 + 1e-12)


@given(counts, st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_quantiles_rise(values: list[int], q: list[float]) -> None:
    found = quantiles(np.array(values, np.int64), EDGES, np.sort(np.array(q)))
    assert (np.diff(found) >= 0).all()


@given(
    values=counts,
    p=st.floats(0.0001, 0.0156),
    told=st.tuples(st.integers(0, 2000), st.integers(0, 3000), st.integers(0, 1)),
    costs=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    boost=st.sampled_from([1.0, 4.0, 1000.0]),
)
def test_whatever_is_seen_shares_and_thresholds_stay_in_their_limits(
    values: list[int],
    p: float,
    told: tuple[int, int, int],
    costs: tuple[int, int],
    boost: float,
) -> None:
    settings = NeoMemSettings.of(Config())
    (busy, error, refused), (promoted, ping_pong) = told, costs
    seen = CardProfile(
        np.array(values, np.int64), EDGES, error, busy, 1000, 1, refused, threshold_max=1000
    )
    moved = Moved(promoted, ping_pong, promoted * 4096, 1.0)
    decision = decide(CardState(p, 5, boost), seen, moved, settings)
    assert settings.p_min <= decision.state.p <= settings.p_max
    assert settings.least_count <= decision.state.threshold <= 1000
    assert 1.0 <= decision.state.boost <= 1000
    if promoted * 4096 >= settings.quota_bytes_per_s:
        assert decision.over_quota
        assert decision.state.p <= max(settings.p_min, p / 2)
