# SPDX-License-Identifier: Apache-2.0
"""Who is watched, with which number, on a /proc of files."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_proc import PF_KTHREAD, FakeEvents, FakeProc

from tierd.config.model import TargetsConfig
from tierd.config.whole import loads
from tierd.core import bounds
from tierd.core.errors import UnavailableError
from tierd.workloads.events import ProcessEventSocket
from tierd.workloads.registry import TargetRegistry

OWN = 4000
SECOND = 10**9

Make = Callable[..., TargetRegistry]


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


@pytest.fixture
def make(proc: FakeProc) -> Iterator[Make]:
    made = []

    def _make(
        text: str = "",
        events: FakeEvents | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> TargetRegistry:
        registry = TargetRegistry(
            loads(f"[targets]\n{text}").targets,
            root=proc.root,
            own_pid=OWN,
            open_events=(lambda: events) if events is not None else None,
            pidfd_open=proc.pidfd_open,
            clock=clock,
        )
        made.append(registry)
        return registry

    yield _make
    for registry in made:
        registry.close()


def pids(registry: TargetRegistry) -> list[int]:
    return sorted(target.pid for target in registry.targets.values())


def test_matching_processes_start_once_and_end_when_they_exit(proc: FakeProc, make: Make) -> None:
    proc.add(10, comm=b"redis", cgroup="/a", uid=5)
    registry = make()
    (target,) = registry.refresh(0).started
    assert (target.number, target.pid, target.comm, target.cgroup, target.uid) == (
        0,
        10,
        "redis",
        "/a",
        5,
    )
    assert registry.refresh(SECOND).started == ()
    proc.end(10)
    changes = registry.refresh(2 * SECOND)
    assert [ended.number for ended in changes.ended] == [0]
    assert registry.targets == {}


def test_a_pidfd_that_is_ready_ends_the_target_even_when_the_number_lives_on(
    proc: FakeProc, make: Make
) -> None:
    proc.add(10)
    registry = make()
    registry.refresh(0)
    proc.end(10)
    proc.add(10, start_time=500)
    changes = registry.refresh(1)
    assert [target.start_time for target in changes.ended] == [100]
    assert [target.start_time for target in registry.refresh(2).started] == [500]


def test_a_recycled_pid_is_another_target(proc: FakeProc, make: Make) -> None:
    proc.add(10)
    registry = make()
    registry.refresh(0)
    proc.end(10, exited=False)
    proc.add(10, start_time=500)
    changes = registry.refresh(1)
    assert ([t.number for t in changes.ended], [t.number for t in changes.started]) == ([0], [1])


def test_a_process_replaced_while_it_is_opened_is_not_watched(proc: FakeProc, make: Make) -> None:
    proc.add(10)
    registry = make()
    real = proc.pidfd_open

    def replaced(pid: int) -> int:
        descriptor = real(pid)
        proc.add(pid, start_time=500, exe="/other")
        return descriptor

    registry._pidfd_open = replaced
    assert registry.refresh(0).started == ()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(proc.pidfds[10])


def test_numbers_are_recycled_only_after_release(proc: FakeProc, make: Make) -> None:
    registry = make()
    for pid in (10, 11):
        proc.add(pid)
        registry.refresh(0)
    proc.end(10)
    registry.refresh(1)
    proc.add(12)
    assert [t.number for t in registry.refresh(2).started] == [2]
    registry.release(0)
    proc.add(13)
    assert [t.number for t in registry.refresh(3).started] == [0]
    for wrong in (0, 1, 99):
        with pytest.raises(KeyError):
            registry.release(wrong)


def test_kernel_threads_itself_its_children_zombies_and_the_denied_are_left_alone(
    proc: FakeProc, make: Make
) -> None:
    proc.add(1)
    proc.add(2, flags=PF_KTHREAD)
    proc.add(OWN)
    proc.add(OWN + 1, ppid=OWN)
    proc.add(OWN + 2, ppid=OWN + 1)
    proc.add(20, state=b"Z")
    proc.add(21, exe="/usr/sbin/sshd")
    proc.add(22)
    registry = make('deny = [ { pid = 1 }, { exe = "sshd" } ]')
    registry.refresh(0)
    assert pids(registry) == [22]


def test_a_loop_of_parents_does_not_hang(proc: FakeProc, make: Make) -> None:
    proc.add(10, ppid=11)
    proc.add(11, ppid=10)
    registry = make()
    registry.refresh(0)
    assert pids(registry) == [10, 11]


def test_resident_memory_is_checked_at_each_refresh(proc: FakeProc, make: Make) -> None:
    registry = make('min_rss = "100MiB"')
    seen = []
    for mebibytes in (99, 100, 80, 74, 99, 101):
        proc.add(10, rss_bytes=mebibytes << 20)
        registry.refresh(0)
        seen.append(pids(registry) == [10])
    assert seen == [False, True, True, False, False, True]


def test_beyond_the_limit_the_largest_are_kept_and_the_rest_is_counted(
    proc: FakeProc, make: Make
) -> None:
    for pid in range(10, 20):
        proc.add(pid, rss_bytes=(pid * 10) << 20)
    registry = make("limit = 3")
    registry.refresh(0)
    assert pids(registry) == [17, 18, 19]
    assert registry.left_out == 7

    proc.add(10, rss_bytes=185 << 20)  # larger than 17, but not by a quarter
    assert registry.refresh(1) == registry.refresh(2)
    proc.add(10, rss_bytes=500 << 20)
    changes = registry.refresh(3)
    assert ([t.pid for t in changes.started], [t.pid for t in changes.ended]) == ([10], [17])


def test_another_program_is_another_target_or_none(proc: FakeProc, make: Make) -> None:
    proc.add(10, exe="/a")
    registry = make('match = { any = [ { exe = "/a" }, { exe = "/b" } ] }')
    registry.refresh(0)
    proc.add(10, exe="/b", code=0x2000)
    changes = registry.refresh(1)
    assert ([t.number for t in changes.ended], [t.number for t in changes.started]) == ([0], [1])
    proc.add(10, exe="/c", code=0x3000)
    changes = registry.refresh(2)
    assert ([t.number for t in changes.ended], changes.started) == ([1], ())


def test_a_new_name_alone_is_no_other_program(proc: FakeProc, make: Make) -> None:
    proc.add(10, comm=b"a")
    registry = make()
    registry.refresh(0)
    proc.add(10, comm=b"b")
    changes = registry.refresh(1)
    assert (changes.started, changes.ended) == ((), ())
    assert registry.targets[0].comm == "b"


def test_cgroup_and_user_are_matched_anew(proc: FakeProc, make: Make) -> None:
    proc.add(10, cgroup="/a", uid=0)
    registry = make('match = { cgroup = "/b", uid = 7 }')
    registry.refresh(0)
    assert pids(registry) == []
    proc.add(10, cgroup="/b/c", uid=7)
    registry.refresh(1)
    assert pids(registry) == [10]
    proc.add(10, cgroup="/b/c", uid=8)
    registry.refresh(2)
    assert pids(registry) == []


def test_other_rules_apply_from_the_next_refresh_on(proc: FakeProc, make: Make) -> None:
    proc.add(10, exe="/a")
    proc.add(11, exe="/b")
    registry = make('match = { exe = "/a" }')
    registry.refresh(0)
    kept = registry.targets[0]
    registry.configure(loads('[targets]\nmatch = { any = [{exe="a"}, {exe="b"}] }').targets)
    changes = registry.refresh(1)
    assert [t.pid for t in changes.started] == [11]
    assert registry.targets[0] == kept


def test_events_spare_the_walk_through_proc(proc: FakeProc, make: Make) -> None:
    events = FakeEvents()
    registry = make(events=events)
    registry.refresh(SECOND)
    assert registry.readings.full_polls == 1
    proc.add(10)
    registry.refresh(2 * SECOND)
    assert pids(registry) == []  # nobody said that it started

    events.queued.started.add(10)
    assert not registry.collect()
    registry.refresh(3 * SECOND)
    assert pids(registry) == [10]
    assert registry.readings.full_polls == 1


def test_events_tell_when_a_refresh_is_worth_while(proc: FakeProc, make: Make) -> None:
    events = FakeEvents()
    proc.add(10)
    registry = make(events=events)
    registry.refresh(0)
    events.queued.ended.add(99)
    assert not registry.collect()
    events.queued.executed.add(10)
    assert registry.collect()
    changes = registry.refresh(1)
    assert ([t.number for t in changes.ended], [t.number for t in changes.started]) == ([0], [1])


def test_lost_events_and_time_bring_a_full_poll(proc: FakeProc, make: Make) -> None:
    events = FakeEvents()
    registry = make(events=events)
    registry.refresh(SECOND)
    proc.add(10)
    events.queued.lost = True
    registry.refresh(2 * SECOND)
    assert (pids(registry), registry.readings.full_polls, events.overflows) == ([10], 2, 1)
    proc.add(11)
    registry.refresh(3 * SECOND)
    assert pids(registry) == [10]
    registry.refresh(3 * SECOND + bounds.FULL_POLL_NS)
    assert pids(registry) == [10, 11]


def test_refused_events_leave_polling_and_a_reason(proc: FakeProc) -> None:
    def refuse() -> ProcessEventSocket:
        raise UnavailableError("not allowed")

    proc.add(10)
    registry = TargetRegistry(
        TargetsConfig(), root=proc.root, open_events=refuse, pidfd_open=proc.pidfd_open
    )
    registry.refresh(0)
    assert (pids(registry), registry.events_refused) == ([10], "not allowed")
    registry.close()


def test_without_descriptors_targets_are_left_out_and_counted(proc: FakeProc, make: Make) -> None:
    proc.add(10)
    registry = make()
    real = registry._pidfd_open

    def refuse(pid: int) -> int:
        raise OSError(24, "Too many open files")

    registry._pidfd_open = refuse
    assert registry.refresh(0).started == ()
    assert registry.left_out == 1
    registry._pidfd_open = real
    registry.refresh(1)
    assert (pids(registry), registry.left_out) == ([10], 0)


def test_close_lets_go_of_everything(proc: FakeProc, make: Make) -> None:
    gc.collect()  # what tests before this one left open
    before = len(list(Path("/proc/self/fd").iterdir()))
    events = FakeEvents()
    for pid in range(10, 30):
        proc.add(pid)
    registry = make(events=events)
    registry.refresh(0)
    assert len(registry.targets) == 20
    registry.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert events.closed
    registry.close()


RULES = """
[[rule]]
name = "left alone"
match = { cgroup = "/secret" }
deny = true
[[rule]]
name = "five"
match = { uid = 5 }
[[rule]]
name = "all in a"
match = { cgroup = "/a" }
"""


def test_the_first_rule_that_matches_counts_and_one_may_deny(proc: FakeProc, make: Make) -> None:
    proc.add(10, cgroup="/a", uid=5)
    proc.add(11, cgroup="/a", uid=6)
    proc.add(12, cgroup="/b", uid=6)
    proc.add(13, cgroup="/secret", uid=5)
    registry = make()
    registry.configure(loads("").targets, loads(RULES).rules)
    registry.refresh(0)
    assert {t.pid: t.rule for t in registry.targets.values()} == {10: 1, 11: 2, 12: -1}
    registry.configure(loads("").targets)
    registry.refresh(SECOND)
    assert {t.pid: t.rule for t in registry.targets.values()} == dict.fromkeys(range(10, 14), -1)


def test_a_process_that_moves_to_another_cgroup_changes_its_rule(
    proc: FakeProc, make: Make
) -> None:
    proc.add(10, cgroup="/b", uid=6)
    registry = make()
    registry.configure(loads("").targets, loads(RULES).rules)
    registry.refresh(0)
    proc.add(10, cgroup="/a", uid=6)
    assert registry.refresh(SECOND).started == ()
    assert [t.rule for t in registry.targets.values()] == [2]
