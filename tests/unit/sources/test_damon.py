# SPDX-License-Identifier: Apache-2.0
"""The DAMON source on a fake sysfs and captured trace text."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.config.watching import DamonConfig
from tierd.core.access import WatchedRange, WatchedTarget, join_ranges
from tierd.core.errors import UnavailableError
from tierd.core.pagekey import make_keys
from tierd.sources.damon import DamonSource, cut_ranges, expand, latest
from tierd.sources.damon_kernel import Attributes, DamonTree, Regions, TargetRegions, parse

TRACE = b"""\
       kdamond.0-311     [001] .....    47.350871: damon_aggregated: target_id=0 nr_regions=3 \
140206591664128-140207066591232: 5 0
       kdamond.0-311     [001] .....    47.350903: damon_aggregated: target_id=1 nr_regions=3 \
4096-16384: 0 7
CPU:1 [LOST 12 EVENTS]
       kdamond.0-311     [001] .....    47.350905: damon_aggregated: target_id=1 nr_regions=3 \
16384-24576: 20 7
"""


def test_trace_lines_become_a_table():
    expected = [
        [0, 140206591664128, 140207066591232, 5],
        [1, 4096, 16384, 0],
        [1, 16384, 24576, 20],
    ]
    assert parse(TRACE).tolist() == expected


@given(st.binary(max_size=400))
def test_any_bytes_parse_to_a_table(data):
    assert parse(data).shape[1] == 4


@pytest.mark.parametrize(
    "fields",
    [
        b"target_id=0 nr_regions=1 4096-8192: ",
        b"target_id=0 nr_regions=1 4096-: 1",
        b"target_id= nr_regions=1 4096-8192: 1",
        b"target_id=0 nr_regions=1 4096-99999999999999999999: 1",
        b"target_id=0 nr_regions=1 4096\n-8192: 1",
    ],
)
def test_lines_with_a_field_missing_or_too_large_are_passed_over(fields):
    assert parse(b"x: damon_aggregated: " + fields + b"\n" + TRACE).shape == (3, 4)


def test_a_last_line_without_an_end_counts():
    assert parse(TRACE.rstrip(b"\n")).tolist() == parse(TRACE).tolist()


def test_regions_expand_to_pages_with_access_rates():
    table = np.array([[1, 0x4000, 0x6000, 10], [0, 0x1000, 0x2000, 0], [9, 0, 4096, 3]], np.uint64)
    pages, counts = expand(table, [7, 3], checks=20)
    assert pages.tolist() == make_keys(3, np.array([4, 5], np.uint64)).tolist()
    assert counts == pytest.approx([20 * np.log(2)] * 2)


def report(*regions):
    return np.array(regions, np.uint64)


def test_of_reports_that_follow_each_other_the_last_stands_for_all():
    first = report((0, 0, 8, 1), (0, 8, 16, 2), (1, 0, 8, 3))
    second = report((0, 0, 4, 4), (0, 4, 16, 5), (1, 0, 8, 6))
    for count in (1, 2, 5):
        table, reports = latest(np.concatenate([*[first] * (count - 1), second]))
        assert reports == count
        assert table.tolist() == second.tolist()
    # One region that does not change is a report each time.
    table, reports = latest(np.concatenate([report((0, 0, 8, n)) for n in (1, 2, 3)]))
    assert (table.tolist(), reports) == ([[0, 0, 8, 3]], 3)
    for none in (np.empty((0, 4), np.uint64), first[:1]):
        table, reports = latest(none)
        assert (table.tolist(), reports) == (none.tolist(), len(none))


def test_a_report_that_was_read_half_way_is_passed_over():
    whole = report(*[(0, 8 * n, 8 * n + 8, 1) for n in range(10)])
    table, reports = latest(np.concatenate([whole, whole[:4]]))
    assert (table.tolist(), reports) == (whole.tolist(), 2)
    # Its rest is one of its own for whoever reads on.
    table, reports = latest(np.concatenate([whole[4:], whole]))
    assert (table.tolist(), reports) == (whole.tolist(), 2)


def test_always_accessed_counts_are_finite():
    _, counts = expand(np.array([[0, 0, 4096, 20]], np.uint64), [0], checks=20)
    assert np.isfinite(counts).all()


def test_ranges_join_over_the_smallest_gaps():
    ranges = [(0, 10), (12, 20), (100, 110), (111, 120)]
    assert join_ranges(ranges, 3) == [(0, 10), (12, 20), (100, 120)]
    assert join_ranges(ranges, 2) == [(0, 20), (100, 120)]
    assert join_ranges(ranges, 1) == [(0, 120)]
    assert join_ranges(ranges, 4) == ranges


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=40),
    st.integers(1, 10),
)
def test_joined_ranges_cover_all_and_ascend(sizes, limit):
    ranges, at = [], 0
    for size, gap in sizes:
        ranges.append((at, at + size))
        at += size + gap
    joined = join_ranges(ranges, limit)
    assert len(joined) <= max(limit, 1)
    assert all(any(a <= start and end <= b for a, b in joined) for start, end in ranges)
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(joined))


def test_cut_ranges_keep_every_page_once():
    assert cut_ranges([(0, 10), (20, 24)], 4) == [(0, 4), (4, 8), (8, 10), (20, 24)]


@pytest.fixture
def tree(tmp_path):
    """A fake admin folder with all files DAMON makes for one target and one region."""
    kdamonds = tmp_path / "sys/kernel/mm/damon/admin/kdamonds"
    context = kdamonds / "0/contexts/0"
    for path in (
        kdamonds / "nr_kdamonds",
        kdamonds / "0/state",
        kdamonds / "0/pid",
        kdamonds / "0/contexts/nr_contexts",
        context / "operations",
        context / "monitoring_attrs/intervals/sample_us",
        context / "monitoring_attrs/intervals/aggr_us",
        context / "monitoring_attrs/intervals/update_us",
        context / "monitoring_attrs/nr_regions/min",
        context / "monitoring_attrs/nr_regions/max",
        context / "targets/nr_targets",
        context / "targets/0/pid_target",
        context / "targets/0/regions/nr_regions",
        context / "targets/0/regions/0/start",
        context / "targets/0/regions/0/end",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("0\n")
    (kdamonds / "0/state").write_text("off\n")
    (kdamonds / "0/pid").write_text("777\n")
    return tmp_path


ATTRIBUTES = Attributes(sample_us=5000, aggregation_us=100_000, min_regions=10, max_regions=100)


def test_start_writes_attributes_targets_and_turns_on(tree):
    damon = DamonTree(tree, tree / "run/kdamond")
    damon.start(ATTRIBUTES, [TargetRegions(42, [(4096, 8192)])])
    context = tree / "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0"
    assert (context / "operations").read_text() == "fvaddr"
    assert (context / "monitoring_attrs/intervals/aggr_us").read_text() == "100000"
    assert (context / "targets/0/pid_target").read_text() == "42"
    assert (context / "targets/0/regions/0/end").read_text() == "8192"
    assert (tree / "sys/kernel/mm/damon/admin/kdamonds/0/state").read_text() == "on"


def test_ranges_that_stay_are_not_written_again(tree):
    damon = DamonTree(tree, tree / "run/kdamond")
    targets = [TargetRegions(42, [(4096, 8192)])]
    damon.start(ATTRIBUTES, targets)
    context = tree / "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0"
    end = context / "targets/0/regions/0/end"
    end.write_text("as before")
    damon.start(dataclasses.replace(ATTRIBUTES, aggregation_us=400_000), targets)
    assert end.read_text() == "as before"
    assert (context / "monitoring_attrs/intervals/aggr_us").read_text() == "400000"
    assert (tree / "sys/kernel/mm/damon/admin/kdamonds/0/state").read_text() == "commit"
    damon.start(ATTRIBUTES, [TargetRegions(42, [(4096, 12288)])])
    assert end.read_text() == "12288"


def test_another_users_kdamond_is_left_alone(tree):
    kdamonds = tree / "sys/kernel/mm/damon/admin/kdamonds"
    (kdamonds / "nr_kdamonds").write_text("1\n")
    (kdamonds / "0/state").write_text("on\n")
    damon = DamonTree(tree, tree / "run/kdamond")
    state = damon.available()
    assert not state.ok
    assert "pid 777" in state.reason
    damon.stop()
    assert (kdamonds / "0/state").read_text() == "on\n"


def test_a_kdamond_left_by_a_killed_tierd_is_taken_over(tree):
    kdamonds = tree / "sys/kernel/mm/damon/admin/kdamonds"
    (kdamonds / "nr_kdamonds").write_text("1\n")
    (kdamonds / "0/state").write_text("on\n")
    (tree / "run").mkdir()
    (tree / "run/kdamond").write_text("777\n")
    damon = DamonTree(tree, tree / "run/kdamond")
    assert damon.available().ok
    damon.stop()
    assert (kdamonds / "0/state").read_text() == "off"
    assert not (tree / "run/kdamond").exists()


def test_a_refused_write_names_the_file(tree):
    (tree / "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/operations").unlink()
    (tree / "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/operations").mkdir()
    with pytest.raises(UnavailableError, match="operations"):
        DamonTree(tree, tree / "run/kdamond").start(ATTRIBUTES, [])


def test_ranges_are_written_each_to_its_own_files(tree):
    regions = tree / "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/targets/0/regions"
    ranges = [(n << 30, (n << 30) + 4096) for n in range(300)] + [(0, (1 << 64) - 4096)]
    for number in range(len(ranges)):
        (regions / str(number)).mkdir(exist_ok=True)
        for name in ("start", "end"):
            (regions / str(number) / name).write_text("what was there before, and longer\n")
    DamonTree(tree, tree / "run/kdamond").start(ATTRIBUTES, [TargetRegions(42, ranges)])
    told = [
        tuple(int((regions / str(number) / name).read_text()) for name in ("start", "end"))
        for number in range(len(ranges))
    ]
    assert told == ranges
    (regions / "7/end").unlink()
    again = DamonTree(tree, tree / "run/kdamond")
    with pytest.raises(UnavailableError, match=r"regions/7/end: No such"):
        again.start(ATTRIBUTES, [TargetRegions(42, ranges)])


class Tree:
    """DAMON's tree that refuses targets which are not alive, as the kernel does."""

    def __init__(self, alive: set[int]) -> None:
        self.alive = alive
        self.starts = 0
        self.watched: list[int] | None = None

    def start(self, attributes: Attributes, targets: list[TargetRegions]) -> None:
        self.sample_us = attributes.sample_us
        self.starts += 1
        if not {target.pid for target in targets} <= self.alive:
            raise UnavailableError("DAMON refused 'commit'")
        self.watched = [target.pid for target in targets]

    def stop(self) -> None:
        self.watched = []

    def running(self) -> bool:
        return bool(self.watched)

    def kdamond_pid(self) -> int:
        return 9


class Trace:
    def open(self) -> None:
        pass

    def read(self) -> None:
        pass


def source_with(tmp_path, tree: Tree) -> DamonSource:
    for pid in tree.alive:
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
    source = DamonSource(DamonConfig(cpu_limit=0.05), root=tmp_path, run_dir=tmp_path)
    source._tree, source._trace = tree, Trace()
    return source


def some_targets(*pids: int) -> list[WatchedTarget]:
    return [WatchedTarget(n, pid, (WatchedRange(0, 1000),)) for n, pid in enumerate(pids)]


def test_a_target_that_dies_before_the_start_does_not_spoil_the_others(tmp_path):
    tree = Tree({11, 13})
    source_with(tmp_path, tree).watch(some_targets(11, 12, 13))
    assert tree.watched == [11, 13]


def test_the_same_targets_again_change_nothing_while_it_runs(tmp_path):
    tree = Tree({11, 13})
    source = source_with(tmp_path, tree)
    for _ in range(3):
        source.watch(some_targets(11, 13))
    assert tree.starts == 1
    tree.watched = []  # all had ended, and so did the kdamond
    source.watch(some_targets(11, 13))
    assert (tree.starts, tree.watched) == (2, [11, 13])
    source.watch(some_targets(13))
    assert tree.watched == [13]


def test_targets_of_which_one_was_dropped_are_asked_for_again(tmp_path):
    tree = Tree({11})
    source = source_with(tmp_path, tree)
    source.watch(some_targets(11, 12))
    tree.alive.add(12)
    source.watch(some_targets(11, 12))
    assert tree.watched == [11, 12]


def test_what_was_refused_is_asked_for_again(tmp_path):
    tree = Tree({11})
    source = source_with(tmp_path, tree)
    source.watch(some_targets(11))
    (tmp_path / "proc/12").mkdir()
    with pytest.raises(UnavailableError):
        source.watch(some_targets(11, 12))
    tree.alive.add(12)
    source.watch(some_targets(11, 12))
    assert tree.watched == [11, 12]


def test_a_process_that_executed_a_program_is_reported_as_the_target_it_is_now(tmp_path):
    source = source_with(tmp_path, Tree({11}))
    source.watch(some_targets(11))
    source.watch([WatchedTarget(5, 11, (WatchedRange(0, 1000),))])
    assert source._targets == [5]


def test_all_targets_dead_is_no_error(tmp_path):
    tree = Tree(set())
    source_with(tmp_path, tree).watch(some_targets(11))
    assert tree.watched == []


def test_a_refusal_with_all_targets_alive_is_told(tmp_path):
    tree = Tree({11})
    source = source_with(tmp_path, tree)
    tree.alive = set()
    with pytest.raises(UnavailableError, match="commit"):
        source.watch(some_targets(11))


@pytest.mark.parametrize(
    ("share", "stretched"), [(0.04, 1), (0.06, 2), (0.11, 4), (0.39, 8), (5.0, 16)]
)
def test_intervals_are_stretched_at_once_as_far_as_the_budget_asks(
    tmp_path, monkeypatch, share, stretched
):
    tree = Tree({11})
    source = source_with(tmp_path, tree)
    assert source.report_ns == 0
    source.watch(some_targets(11))
    assert source.report_ns == 400 * 10**6
    spent = iter([0, int(share * 2e9)])
    monkeypatch.setattr("tierd.sources.damon.thread_cpu_ns", lambda pid: next(spent))
    source._adapt(0)
    source._adapt(2 * 10**9)
    assert tree.sample_us == 20_000 * stretched
    assert source.report_ns == stretched * 400 * 10**6


def test_what_is_read_at_once_counts_as_much_as_one_by_one(tmp_path, monkeypatch):
    """And is expanded once: reports between two passes cost no more than one."""
    source = source_with(tmp_path, Tree({11}))
    source.watch(some_targets(11))
    one = report((0, 0, 8 << 12, 10), (0, 8 << 12, 16 << 12, 5))

    def told(table, lost=0):
        monkeypatch.setattr(source._trace, "read", lambda: Regions(table, lost))
        (batch,) = source.poll()
        return batch

    alone, four = told(one), told(np.concatenate([one] * 4), lost=3)
    assert alone.page.tolist() == four.page.tolist() == list(range(16))
    assert four.count == pytest.approx(4 * alone.count)
    assert four.lost == 3


@pytest.mark.parametrize(("busy", "told"), [(85, 0), (75, 100)])
def test_where_nearly_all_is_used_in_nearly_all_checks_nothing_is_told(
    tmp_path, monkeypatch, caplog, busy, told
):
    """As a whole period of accessed bits tells none from another: no page would move for good."""
    source = source_with(tmp_path, Tree({11}))
    source.watch(some_targets(11))
    caplog.set_level("INFO")
    table = report((0, 0, busy << 12, 16), (0, busy << 12, 100 << 12, 3))
    monkeypatch.setattr(source._trace, "read", lambda: Regions(np.concatenate([table] * 2), 0))
    assert sum(len(batch) for batch in source.poll()) == told
    assert source.left_out == (0 if told else 2)
    assert ("event=reports_saturated left_out=2" in caplog.text) == (told == 0)


def test_no_damon_says_what_kernel_is_needed(tmp_path):
    state = DamonTree(tmp_path, tmp_path / "kdamond").available()
    assert not state.ok
    assert "CONFIG_DAMON_SYSFS" in state.hint
