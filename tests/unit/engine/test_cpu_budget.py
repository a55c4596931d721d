# SPDX-License-Identifier: Apache-2.0
"""A share of one CPU, of which some is saved up."""

from __future__ import annotations

from tierd.core.cpu_budget import CpuBudget

MS = 10**6
HOUR = 3600 * 10**9


def test_an_idle_thread_saves_up_a_little() -> None:
    budget = CpuBudget(0, 0, 2000 * MS)
    assert budget.wait_ns(HOUR, 0, 0.05) == 0
    assert budget.wait_ns(HOUR, 100 * MS, 0.05) == 0
    assert budget.wait_ns(HOUR, 101 * MS, 0.05) == 20 * MS


def test_a_thread_that_begins_with_nothing_waits_and_one_with_all_does_not() -> None:
    for full, wait_ns in ((False, 1000 * MS), (True, 0)):
        budget = CpuBudget(5 * MS, 7 * MS, 60_000 * MS, full=full)
        assert budget.wait_ns(5 * MS, 8 * MS, 0.001) == wait_ns


def test_no_more_than_the_share_is_used_in_the_long_run() -> None:
    budget, now, used = CpuBudget(0, 0, 60 * 10**9, full=True), 0, 0
    while now < HOUR:
        used += 3 * MS
        now += max(1000 * MS, budget.wait_ns(now, used, 0.001))
    assert used <= 0.001 * (HOUR + 60 * 10**9) + 3 * MS
    assert used >= 0.99 * 0.001 * HOUR
