# SPDX-License-Identifier: Apache-2.0
"""Which mappings may be moved, on captured and on made-up /proc files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
from fake_proc import FakeProc
from hypothesis import given, settings

from tierd.core import bounds
from tierd.core.access import WatchedRange
from tierd.core.errors import TargetGoneError
from tierd.core.tuning import WORKLOADS
from tierd.workloads import maps
from tierd.workloads.mappings import MovableRanges
from tierd.workloads.maps import MapReader, movable_ranges
from tierd.workloads.procs import read_stat

CAPTURED = Path(__file__).parent / "fixtures" / "captured"
CAPTURED_PID = 28694
SECOND = 10**9
PID = 10


@pytest.fixture(autouse=True)
def _costless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading policies takes no time, however busy the host is."""
    monkeypatch.setattr(maps, "time", SimpleNamespace(monotonic_ns=lambda: 0))


class FakeMaps(FakeProc):
    """One process whose mappings a test writes."""

    def write(
        self, maps: str | bytes, numa: str | None = None, smaps: str = "", locked: int = 0
    ) -> None:
        """`numa` left out gives every mapping the default policy."""
        raw = maps.encode() if isinstance(maps, str) else maps
        if not (self.root / str(PID)).exists():
            self.add(PID)
        folder = self.root / str(PID)
        (folder / "maps").write_bytes(raw)
        if numa is None:
            starts = re.findall(rb"^([0-9a-f]+)-", raw, re.MULTILINE)
            numa = "".join(f"{start.decode()} default anon=1\n" for start in starts)
        (folder / "numa_maps").write_text(numa)
        (folder / "smaps").write_text(smaps)
        (folder / "status").write_text(f"Name:\tx\nVmLck:\t{locked:8} kB\nUid:\t0\t0\t0\t0\n")

    def ranges(self) -> MovableRanges:
        return movable_ranges(PID, self.root)


@pytest.fixture
def proc(tmp_path: Path) -> FakeMaps:
    return FakeMaps(tmp_path)


def line(start: int, pages: int, flags: str = "rw-p", rest: str = "00:00 0") -> str:
    return f"{start:x}-{start + pages * 4096:x} {flags} 00000000 {rest}\n"


def span(start: int, pages: int) -> WatchedRange:
    return WatchedRange(start >> 12, (start >> 12) + pages)


def test_a_captured_process_with_one_mapping_of_each_sort() -> None:
    places = json.loads((CAPTURED / str(CAPTURED_PID) / "places.json").read_text())["places"]
    found = movable_ranges(CAPTURED_PID, CAPTURED)
    movable = {
        name
        for name, page in places.items()
        if any(item.start <= page and page + 64 <= item.end for item in found.ranges)
    }
    assert movable == {"plain", "local", "file_shared", "memfd", "anonymous_shared"}
    assert found.skipped["bound"] == 3 * 64
    assert found.skipped["interleaved"] == 2 * 64
    assert found.skipped["locked"] == 64
    assert found.skipped["inaccessible"] == 64
    assert found.skipped["kernel"] == 9  # vvar, vvar_vclock, vdso, vsyscall
    assert found.skipped["program"] > 1000
    assert found.skipped["shared"] >= 2 * 64
    total = sum(item.end - item.start for item in found.ranges) + sum(found.skipped.values())
    assert total == _pages(CAPTURED / str(CAPTURED_PID) / "maps")


def _pages(maps: Path) -> int:
    found = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) ", maps.read_text(), re.MULTILINE)
    return sum(int(high, 16) - int(low, 16) for low, high in found) >> 12


def test_neighbours_are_merged_and_tiny_ones_left_out(proc: FakeMaps) -> None:
    proc.write(
        line(0x100000, 10)
        + line(0x10A000, 10, "r--p")
        + line(0x200000, WORKLOADS.min_range_pages - 1)
        + line(0x300000, WORKLOADS.min_range_pages)
    )
    found = proc.ranges()
    assert found.ranges == (span(0x100000, 20), span(0x300000, WORKLOADS.min_range_pages))
    assert found.skipped == {"tiny": WORKLOADS.min_range_pages - 1}
    assert found.mappings.tolist() == [
        [0x100, 0x10A], [0x10A, 0x114],
        [0x200, 0x200 + WORKLOADS.min_range_pages - 1],
        [0x300, 0x300 + WORKLOADS.min_range_pages],
    ]  # fmt: skip


def test_mappings_that_divide_the_same_range_otherwise_are_seen(proc: FakeMaps) -> None:
    """Which memory refuses to move is known by mapping."""
    proc.write(line(0x100000, 20) + line(0x114000, 20))
    reader, process = MapReader(proc.root), read_stat(PID, proc.root)
    before = reader.movable_ranges(process, 0)
    proc.write(line(0x100000, 30) + line(0x11E000, 10))
    after = reader.movable_ranges(process, 60 * SECOND)
    assert after.ranges == before.ranges
    assert after.mappings.tolist() == [[0x100, 0x11E], [0x11E, 0x128]]


@pytest.mark.parametrize(
    ("flags", "rest", "reason"),
    [
        ("rw-p", "00:00 0", ""),
        ("rw-p", "00:00 0                          [heap]", ""),
        ("rw-p", "00:00 0                          [stack]", ""),
        ("rw-p", "00:00 0                          [anon:glibc: malloc]", ""),
        ("rw-s", "00:01 5                          /dev/zero (deleted)", ""),
        ("rw-s", "00:01 5                          /dev/shm/postgres", ""),
        ("rw-s", "00:01 5                          /memfd:[vdso] (deleted)", ""),
        ("rw-s", "00:01 5                          /SYSV00000000 (deleted)", ""),
        ("r--p", "fe:00 5                          /data/model.gguf", ""),
        ("rw-s", "fe:00 5                          /tmp/a\\012b [vdso] (deleted)", ""),
        ("r--p", "00:00 0                          [vvar]", "kernel"),
        ("--xp", "00:00 0                          [vsyscall]", "kernel"),
        ("r-xp", "00:00 0                          [uprobes]", "kernel"),
        ("rw-s", "00:06 9                          /dev/nvidia0", "device"),
        ("rw-s", "00:0f 9                          anon_inode:[perf_event]", "device"),
        ("rw-s", "00:08 9                          socket:[1234]", "device"),
        ("---p", "00:00 0", "inaccessible"),
        ("r-xp", "fe:00 5                          /usr/bin/prog", "program"),
    ],
)
def test_each_sort_of_mapping(proc: FakeMaps, flags: str, rest: str, reason: str) -> None:
    proc.write(line(0x100000, 64, flags, rest))
    found = proc.ranges()
    assert found.skipped == ({reason: 64} if reason else {})
    assert found.ranges == (() if reason else (span(0x100000, 64),))


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("default", ""),
        ("local", ""),
        ("bind:0", "bound"),
        ("bind=static:0-1", "bound"),
        ("prefer:1", "bound"),
        ("prefer=relative:1", "bound"),
        ("prefer (many):0-1", "bound"),
        ("interleave:0-1", "interleaved"),
        ("weighted interleave:0-1", "interleaved"),
        ("somethingnew:0", "bound"),
        ("default file=/anon_hugepage\\040(deleted) huge anon=2", "hugetlb"),
        ("default file=/tmp/x\\040huge anon=2", ""),
    ],
)
def test_each_policy(proc: FakeMaps, policy: str, reason: str) -> None:
    proc.write(line(0x100000, 64), f"100000 {policy} anon=64 N0=64 kernelpagesize_kB=4\n")
    found = proc.ranges()
    assert found.skipped == ({reason: 64} if reason else {})


def test_files_mapped_read_only_by_several_processes_are_left_alone(proc: FakeMaps) -> None:
    file = "fe:00 5 /data/x"
    maps = line(0x100000, 64, "r--s", file) + line(0x200000, 64, "rw-s", file)
    proc.write(maps, "100000 default mapped=3 mapmax=2\n200000 default mapped=3 mapmax=2\n")
    assert proc.ranges().skipped == {"shared": 64}
    proc.write(maps, "100000 default mapped=3\n200000 default mapped=3\n")
    assert proc.ranges().skipped == {}


def test_locked_memory_is_found_in_smaps_only_when_there_is_some(proc: FakeMaps) -> None:
    maps = line(0x100000, 64) + line(0x200000, 64)
    smaps = line(0x100000, 64) + "VmFlags: rd wr lo \n" + line(0x200000, 64) + "VmFlags: rd lop\n"
    proc.write(maps, smaps=smaps, locked=256)
    assert proc.ranges().skipped == {"locked": 64}
    proc.write(maps, smaps=smaps, locked=0)
    assert proc.ranges().skipped == {}


def test_a_kernel_without_numa_has_no_policies(proc: FakeMaps) -> None:
    proc.write(line(0x100000, 64))
    (proc.root / str(PID) / "numa_maps").unlink()
    assert proc.ranges().ranges == (span(0x100000, 64),)


def test_a_mapping_that_changed_between_the_two_files_stays_where_it_is(proc: FakeMaps) -> None:
    maps = line(0x100000, 64) + line(0x200000, 64) + line(0x300000, 64)
    numa = "100000 default\n120000 bind:0\n1f0000 default\n300000 default\n"
    proc.write(maps, numa)
    found = proc.ranges()
    assert found.skipped == {"unread": 128}
    assert found.ranges == (span(0x300000, 64),)


def test_policies_are_kept_for_a_while_and_new_mappings_wait(proc: FakeMaps) -> None:
    reader = MapReader(proc.root, policy_interval_ns=5 * SECOND)
    proc.write(line(0x100000, 64) + line(0x200000, 64), "100000 default\n200000 bind:0\n")
    stat = read_stat(PID, proc.root)
    first = reader.movable_ranges(stat, 0)
    assert (first.ranges, first.skipped) == ((span(0x100000, 64),), {"bound": 64})
    assert reader.movable_ranges(stat, SECOND) is first

    # Grown at both ends, so still the same mapping; the bound one too; and a new one.
    proc.write(line(0xF0000, 96) + line(0x1F0000, 96) + line(0x400000, 64), "f0000 default\n")
    second = reader.movable_ranges(stat, 2 * SECOND)
    assert second.ranges == (span(0xF0000, 96),)
    assert second.skipped == {"bound": 96, "unread": 64}
    assert reader.policy_reads == 1

    proc.write(line(0xF0000, 96) + line(0x1F0000, 96) + line(0x400000, 64))
    third = reader.movable_ranges(stat, 6 * SECOND)
    assert third.skipped == {}
    assert reader.policy_reads == 2


@pytest.mark.parametrize(("new", "waits_s"), [(145, 2), (144, 2), (142, 30), (16, 30)])
def test_few_new_pages_wait_for_longer_than_many(proc: FakeMaps, new: int, waits_s: int) -> None:
    reader = MapReader(proc.root)
    proc.write(line(0x100000, 1008))
    stat = read_stat(PID, proc.root)
    reader.movable_ranges(stat, 0)
    proc.write(line(0x100000, 1008) + line(0x800000, new))
    assert reader.movable_ranges(stat, waits_s * SECOND - 1).skipped == {"unread": new}
    assert reader.policy_reads == 1
    assert "unread" not in reader.movable_ranges(stat, waits_s * SECOND).skipped
    assert reader.policy_reads == 2


def test_policies_set_on_an_unchanged_mapping_are_seen_after_the_interval(proc: FakeMaps) -> None:
    reader = MapReader(proc.root, policy_interval_ns=5 * SECOND)
    proc.write(line(0x100000, 64), "100000 default\n")
    stat = read_stat(PID, proc.root)
    assert reader.movable_ranges(stat, 0).skipped == {}
    proc.write(line(0x100000, 64), "100000 bind:0\n")
    assert reader.movable_ranges(stat, 6 * SECOND).skipped == {}
    assert reader.policy_reads == 1
    assert reader.movable_ranges(stat, 900 * SECOND).skipped == {"bound": 64}


def test_a_forgotten_process_is_read_anew(proc: FakeMaps) -> None:
    reader = MapReader(proc.root)
    proc.write(line(0x100000, 64))
    stat = read_stat(PID, proc.root)
    first = reader.movable_ranges(stat, 0)
    reader.forget(stat)
    assert reader.movable_ranges(stat, 0) == first
    assert reader.policy_reads == 2


@pytest.mark.parametrize("name", ["maps", "stat", "status"])
def test_a_process_that_vanishes_is_a_target_gone_error(proc: FakeMaps, name: str) -> None:
    proc.write(line(0x100000, 64))
    stat = read_stat(PID, proc.root)
    (proc.root / str(PID) / name).unlink()
    with pytest.raises(TargetGoneError):
        MapReader(proc.root).movable_ranges(stat, 0)


def test_an_exiting_process_without_memory_is_gone(proc: FakeMaps) -> None:
    proc.write("")
    with pytest.raises(TargetGoneError, match="no memory any more"):
        proc.ranges()


def test_a_recycled_pid_is_gone_and_leaves_nothing_kept(proc: FakeMaps) -> None:
    reader = MapReader(proc.root)
    proc.write(line(0x100000, 64))
    stat = read_stat(PID, proc.root)
    reader.movable_ranges(stat, 0)
    proc.add(PID, start_time=999)
    with pytest.raises(TargetGoneError, match="another one"):
        reader.movable_ranges(stat, 1)
    assert reader._cache == {}


def test_a_hundred_thousand_mappings_give_a_bounded_number_of_ranges(proc: FakeMaps) -> None:
    count = 100_000
    proc.write(
        "".join(
            line(0x100000 + index * 0x100000, 16 + index % 7, rest=f"00:00 0 [anon:{index}]")
            for index in range(count)
        )
    )
    found = proc.ranges()
    assert len(found.ranges) == bounds.WATCHED_RANGES
    assert {item.end - item.start for item in found.ranges} == {22}
    assert list(found.ranges) == sorted(found.ranges, key=lambda item: item.start)
    total = sum(16 + index % 7 for index in range(count))
    assert found.skipped == {"scattered": total - 22 * bounds.WATCHED_RANGES}


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_give_ranges_or_target_gone(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    proc = FakeMaps(tmp_path_factory.getbasetemp())
    proc.write(line(0x100000, 64).encode() + raw, numa=None)
    (proc.root / str(PID) / "numa_maps").write_bytes(b"100000 default\n" + raw)
    assert span(0x100000, 64) in proc.ranges().ranges


PIECES = st.lists(
    st.tuples(
        st.integers(1, 40),
        st.sampled_from(["", "gap"]),
        st.sampled_from(["rw-p", "---p", "r--p"]),
        st.sampled_from(["default", "bind:0", "interleave:0"]),
    ),
    min_size=1,
    max_size=30,
)


@given(PIECES)
@settings(max_examples=200, deadline=None)
def test_every_page_is_either_movable_or_counted(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, str, str, str]]
) -> None:
    proc = FakeMaps(tmp_path_factory.getbasetemp())
    start, maps, numa, expected = 0x100000, "", "", set()
    for pages, gap, flags, policy in pieces:
        start += 0x1000 if gap else 0
        maps += line(start, pages, flags)
        numa += f"{start:x} {policy}\n"
        if flags != "---p" and policy == "default":
            expected |= set(range(start >> 12, (start >> 12) + pages))
        start += pages * 4096
    proc.write(maps, numa)
    found = proc.ranges()
    movable = {page for item in found.ranges for page in range(item.start, item.end)}
    assert movable <= expected
    assert len(expected - movable) == found.skipped.get("tiny", 0)
    assert len(movable) + sum(found.skipped.values()) == sum(piece[0] for piece in pieces)
    assert all(a.end < b.start for a, b in zip(found.ranges, found.ranges[1:], strict=False))
