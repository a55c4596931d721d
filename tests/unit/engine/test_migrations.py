# SPDX-License-Identifier: Apache-2.0
"""Counting what moves pages: who did, what bounced, and what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tierd.config.whole import loads
from tierd.core.access import Availability
from tierd.core.errors import UnavailableError
from tierd.core.migration import MigrationPlan
from tierd.core.pagekey import make_keys
from tierd.core.tiermap import TierMap
from tierd.core.tuning import PACING
from tierd.engine.build import make_companions
from tierd.engine.migration_counter import MigrationCounter, Recent
from tierd.observe.tick_record import TickRecord
from tierd.observe.totals import MigrationTotals, Totals
from tierd.sources.migrations import Layout, Migrations, Moved

SECOND = 10**9


def tick(end_ns: int) -> TickRecord:
    return TickRecord(
        number=1, time_ns=end_ns, end_ns=end_ns, source="", batches=(), located=0, walked=0,
        targets=0, tiers=TierMap((), {}), usage={}, budget=None, plan=MigrationPlan.empty(),
        report=None, ms={},
    )  # fmt: skip


def found(reasons: Mapping[str, Moved], pages: Mapping[int, int], **more: Any) -> Migrations:
    """A poll's answer; `pages` is times moved by virtual page number."""
    figures = {"demoted_from": {}, "tasks_moved": 0, "lost": 0, "unseen": 0} | more
    return Migrations(
        by_reason=reasons,
        page=make_keys(Layout.NO_TARGET, np.array(list(pages), np.uint64)),
        moves=np.array(list(pages.values()), np.uint32),
        **figures,
    )


class Watch:
    """Tells what it was given, poll by poll."""

    def __init__(self, *answers: Migrations | UnavailableError | None) -> None:
        self.answers = list(answers)
        self.state = Availability(True, "as the test says")
        self.polls = 0
        self.started = self.closed = False

    def available(self) -> Availability:
        return self.state

    def start(self) -> None:
        self.started = True

    def poll(self) -> Migrations | None:
        self.polls += 1
        answer = self.answers.pop(0)
        if isinstance(answer, UnavailableError):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def counted(
    *answers: Migrations | UnavailableError | None, apart_ns: int = PACING.upkeep_interval_ns
) -> MigrationTotals:
    counter = MigrationCounter(Watch(*answers))
    counter.start()
    for number in range(len(answers)):
        counter.on_tick(tick(number * apart_ns))
    return counter.totals


def test_moves_are_told_by_who_made_them(caplog: pytest.LogCaptureFixture) -> None:
    reasons = {
        "demotion": Moved(100, 2),
        "numa_misplaced": Moved(30),
        "syscall_or_cpuset": Moved(50, 1, own=40),
        "damon": Moved(7),
    }
    with caplog.at_level("WARNING", "tierd"):
        totals = counted(
            found(reasons, {1: 1}, demoted_from={0: 60, 2: 40}, tasks_moved=3, lost=4, unseen=5),
            found(reasons, {2: 1}),
        )
    assert totals.watched
    assert (totals.by_kernel, totals.demoted_by_kernel) == (260, 100)
    assert (totals.by_tierd, totals.by_others) == (80, 2 * (10 + 7))
    assert (totals.failed, totals.tasks_moved, totals.lost, totals.unseen) == (6, 3, 4, 5)
    # Said once, not at every poll.
    assert len([r for r in caplog.records if "kernel_moves_pages_too" in r.message]) == 1


def test_a_page_that_moves_again_within_the_window_has_bounced() -> None:
    up = {"numa_misplaced": Moved(2)}
    down = {"syscall_or_cpuset": Moved(2, own=2)}
    assert counted(found(up, {1: 1, 2: 1}), found(down, {2: 1, 3: 1})).ping_pong == 1
    assert counted(found(up, {1: 2, 2: 1})).ping_pong == 1
    assert counted(found(up, {1: 1}), found(down, {1: 1}), apart_ns=61 * SECOND).ping_pong == 0


def test_whose_a_page_is_does_not_matter_for_a_bounce() -> None:
    """The kernel knows the owner when it balances, and not when tierd moves."""
    recent = Recent()
    one = np.ones(1, np.uint32)
    assert recent.add(make_keys(3, np.array([77], np.uint64)), one, 0) == (0, 0)
    assert recent.add(make_keys(Layout.NO_TARGET, np.array([77], np.uint64)), one, SECOND) == (1, 0)


def test_moves_within_a_node_are_no_bounces_and_are_said_to_be_unclear() -> None:
    mixed = {"compaction": Moved(5), "demotion": Moved(1)}
    totals = counted(found({"demotion": Moved(1)}, {1: 1}), found(mixed, {1: 1, 2: 5}))
    assert (totals.ping_pong, totals.unclear, totals.within_node) == (0, 2, 5)
    assert (totals.by_kernel, totals.by_others) == (2, 0)


def test_memory_of_moved_pages_is_bounded_and_what_it_forgets_is_counted() -> None:
    recent = Recent(window_ns=100, most=10)
    keys = make_keys(1, np.arange(15, dtype=np.uint64))
    assert recent.add(keys, np.ones(15, np.uint32), 0) == (0, 5)
    assert recent.add(keys, np.ones(15, np.uint32), 1) == (10, 5)
    # The older half is dropped when the next one begins.
    assert recent.add(keys[:1], np.ones(1, np.uint32), 60) == (1, 0)
    assert recent.add(keys[1:2], np.ones(1, np.uint32), 110) == (0, 0)
    assert recent.add(keys[:2], np.ones(2, np.uint32), 111) == (2, 0)
    assert recent.add(keys[:2], np.ones(2, np.uint32), 1000) == (0, 0)


def test_it_is_polled_once_a_second_and_not_before_the_program_is_there() -> None:
    watch = Watch(None, found({}, {}))
    counter = MigrationCounter(watch)
    counter.on_tick(tick(0))
    assert watch.polls == 0
    counter.start()
    for now in (
        0,
        PACING.upkeep_interval_ns // 2,
        PACING.upkeep_interval_ns - 1,
        PACING.upkeep_interval_ns,
    ):
        counter.on_tick(tick(now))
    assert watch.polls == 2
    assert counter.totals.watched


def test_where_it_cannot_be_had_the_reason_is_given_and_nothing_is_counted() -> None:
    watch = Watch()
    watch.state = Availability(False, "no bcc", "install it")
    counter = MigrationCounter(watch)
    with pytest.raises(UnavailableError, match="no bcc"):
        counter.start()
    counter.on_tick(tick(0))
    assert not watch.started
    assert Totals(migrations=counter.totals).as_json()["migrations"] is None


def test_a_watch_that_fails_later_is_closed_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = Watch(UnavailableError("every way failed"))
    counter = MigrationCounter(watch)
    counter.start()
    with caplog.at_level("WARNING", "tierd"):
        for now in (0, PACING.upkeep_interval_ns, 2 * PACING.upkeep_interval_ns):
            counter.on_tick(tick(now))
    assert watch.closed
    assert watch.polls == 1
    assert [r.levelname for r in caplog.records] == ["WARNING"]


def test_it_runs_only_where_it_is_configured() -> None:
    assert make_companions(loads(""), MigrationTotals()) == ([], [])
    totals = MigrationTotals()
    companions, observers = make_companions(loads("[migration_tracing]\nenabled = true"), totals)
    assert [c.name for c in companions] == ["migrations"]
    assert observers == companions
    assert companions[0].totals is totals  # type: ignore[attr-defined]
