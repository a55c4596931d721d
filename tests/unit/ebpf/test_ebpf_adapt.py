# SPDX-License-Identifier: Apache-2.0
"""Adaptation: periods and ways of counting follow what was measured."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tierd.sources.ebpf.source import Interval, PeriodControl


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
