# SPDX-License-Identifier: Apache-2.0
"""Adaptation: periods and ways of counting follow what was measured."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tierd.sources.ebpf.adapt import Interval, ModeControl, PeriodControl
from tierd.sources.ebpf.table import Mode


def control(**changes: float) -> PeriodControl:
    values = {"start": 1000, "least": 100, "most": 1 << 20, "samples_per_s": 1e4, "cpu_share": 0.03}
    return PeriodControl(**(values | changes))  # type: ignore[arg-type]


def run(made: PeriodControl, events_per_s: float, seconds: int, **rest: float) -> list[int]:
    periods = []
    for _ in range(seconds):
        samples = int(events_per_s / made.period)
        made.step(Interval(1.0, samples, runs=samples, **rest))  # type: ignore[arg-type]
        periods.append(made.period)
    return periods


def test_the_period_finds_the_wanted_rate():
    made = control()
    period = run(made, 1e9, 20)[-1]
    assert 0.75e4 <= 1e9 / period <= 1.25e4 * 1.01


def test_the_period_stays_where_the_rate_is_right():
    made = control(start=100_000)
    assert set(run(made, 1e9, 20)) == {100_000}


def test_an_idle_host_brings_the_least_period():
    made = control()
    assert run(made, 0, 20)[-1] == 100


def test_the_cpu_budget_binds_before_the_rate():
    """10,000 samples of 10 us each would be 10 % of a CPU; the budget is 3 %."""
    made = control()
    period = run(made, 1e9, 40, kernel_ns_per_run=10_000.0)[-1]
    share = 1e9 / period * 10_000 / 1e9
    assert share <= 0.03 * 1.26


def test_foreign_samples_cost_as_well():
    """A busy host's other processes run the program too; it counts for the budget."""
    made = control()
    assert made.step(Interval(1.0, 0, runs=100_000, kernel_ns_per_run=1000.0))
    assert made.period > 1000


def test_throttling_doubles_the_period_and_is_remembered():
    made = control()
    made.step(Interval(1.0, 10_000, throttled=3))
    assert made.period == 2000
    made.step(Interval(1.0, 100))
    assert made.period == 2000, "the period that was throttled is not tried again at once"
    for _ in range(40):
        made.step(Interval(1.0, 100))
    assert made.period < 2000


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 3), st.floats(0, 1e5)), max_size=50)
)
def test_the_period_stays_in_its_bounds(history):
    made = control()
    for samples, throttled, cost in history:
        made.step(Interval(1.0, samples, runs=samples, throttled=throttled, kernel_ns_per_run=cost))
        assert 100 <= made.period <= 1 << 20


def modes(**changes: float) -> ModeControl:
    values = {"scan_ns": 1e6, "sample_ns": 100.0, "ring_samples": 100_000}
    return ModeControl(**(values | changes))  # type: ignore[arg-type]


def test_few_samples_are_cheaper_raw():
    made = modes()
    for _ in range(ModeControl.PATIENCE):
        made.step(Interval(1.0, 50))
    assert made.mode == Mode.PASS


def test_many_samples_are_cheaper_in_the_table():
    made = modes(mode=Mode.PASS)
    for _ in range(ModeControl.PATIENCE):
        made.step(Interval(1.0, 90_000, user_ns=9e6))
    assert made.mode == Mode.COUNT


def test_measured_costs_replace_the_guesses():
    """Raw samples turn out dearer than thought: the table is taken."""
    made = modes(mode=Mode.PASS, scan_ns=1e5, sample_ns=10.0)
    switched = [made.step(Interval(1.0, 5000, user_ns=5000 * 400.0)) for _ in range(5)]
    assert switched.count(True) == 1
    assert made.sample_ns > 40


def test_one_odd_interval_changes_nothing():
    made = modes()
    made.step(Interval(1.0, 50))
    made.step(Interval(1.0, 90_000))
    made.step(Interval(1.0, 50))
    made.step(Interval(1.0, 50))
    assert made.mode == Mode.COUNT


def test_loss_in_the_table_leads_to_raw_samples_if_the_rings_hold_them():
    made = modes()
    assert made.step(Interval(1.0, 40_000, lost=5000))
    assert made.mode == Mode.PASS
    other = modes()
    assert not other.step(Interval(1.0, 80_000, lost=5000))
    assert other.mode == Mode.COUNT


def test_loss_in_the_rings_leads_to_the_table():
    made = modes(mode=Mode.PASS)
    assert made.step(Interval(1.0, 200_000, lost=90_000))
    assert made.mode == Mode.COUNT


def test_loss_on_both_sides_does_not_flap():
    made = modes()
    changes = sum(made.step(Interval(1.0, 40_000, lost=5000)) for _ in range(300))
    assert changes <= 5


def test_a_mode_that_was_asked_for_stays():
    made = modes(allowed=False)
    for samples in (10, 10, 10, 90_000, 90_000):
        assert not made.step(Interval(1.0, samples, lost=samples // 2))
