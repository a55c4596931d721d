# SPDX-License-Identifier: Apache-2.0
"""Facts from /proc, also of processes that choose misleading names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_proc import PF_KTHREAD, FakeProc

from tierd.core import bounds
from tierd.core.errors import TargetGoneError
from tierd.workloads.procs import (
    Process,
    list_pids,
    parse_cgroup,
    parse_stat,
    read_bytes,
    read_stat,
    start_time,
)

CAPTURED = (
    b"15498 (cat) R 15488 15488 13739 0 -1 4194304 99 0 0 0 0 0 0 0 20 0 1 0 82564 3133440 407 "
    b"18446744073709551615 93984998014976 93984998034857 140725965290816 0 0 0 0 0 0 0 0 0 17 0 "
    b"0 0 0 0 0 93984998050864 93984998052480 93985267286016 140725965298403 140725965298423 "
    b"140725965298423 140725965299691 0\n"
)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def test_a_captured_stat_line() -> None:
    stat = parse_stat(CAPTURED)
    assert (stat.pid, stat.comm, stat.ppid) == (15498, "cat", 15488)
    assert (stat.start_time, stat.rss_bytes) == (82564, 407 * 4096)
    assert not stat.kernel_thread
    assert not stat.ended


@pytest.mark.parametrize("comm", [b") R 1 1", b"a\nb", b"\xff\xfe", b"", b"((()", b"x) S 2 (y"])
def test_a_name_cannot_shift_the_fields(comm: bytes) -> None:
    stat = parse_stat(CAPTURED.replace(b"cat", comm))
    assert os.fsencode(stat.comm) == comm
    assert (stat.ppid, stat.start_time) == (15488, 82564)


def test_kernel_threads_and_zombies_are_told(proc: FakeProc) -> None:
    proc.add(2, flags=PF_KTHREAD)
    proc.add(3, state=b"Z")
    assert read_stat(2, proc.root).kernel_thread
    assert read_stat(3, proc.root).ended


@pytest.mark.parametrize("text", [b"", b"1 (x", b"1 (x) S 1 2\n", b"x (x) " + b"0 " * 40])
def test_a_broken_stat_line_is_a_process_that_is_gone(proc: FakeProc, text: bytes) -> None:
    proc.add(5)
    (proc.root / "5" / "stat").write_bytes(text)
    with pytest.raises(TargetGoneError):
        read_stat(5, proc.root)
    if text.startswith(b"x"):
        return  # whose number it is does not matter to the other
    with pytest.raises(TargetGoneError):
        start_time(5, proc.root)


def test_a_start_time_alone_is_that_of_the_whole_reading(proc: FakeProc) -> None:
    proc.add(5, comm=b") S 1 (2", start_time=777)
    assert start_time(5, proc.root) == read_stat(5, proc.root).start_time == 777


def test_facts_are_read_once_and_only_when_asked_for(proc: FakeProc) -> None:
    proc.add(5, exe="/opt/a b (deleted)", cmdline=b"a\0b c\0\0", cgroup="/x.slice/y", uid=7)
    process = Process(read_stat(5, proc.root), proc.root)
    assert process.exe == "/opt/a b"
    assert process.cmdline == "a b c"
    assert process.cgroup == "/x.slice/y"
    assert process.uid == 7
    proc.end(5)
    assert (process.exe, process.cmdline) == ("/opt/a b", "a b c")
    assert (process.cgroup, process.uid) == ("/x.slice/y", 7)


def test_every_fact_of_a_vanished_process_is_a_target_gone_error(proc: FakeProc) -> None:
    proc.add(5)
    stat = read_stat(5, proc.root)
    proc.end(5)
    for fact in ("exe", "cmdline", "cgroup", "uid"):
        with pytest.raises(TargetGoneError):
            getattr(Process(stat, proc.root), fact)


def test_program_facts_are_kept_until_another_program_runs(proc: FakeProc) -> None:
    proc.add(5, exe="/a", uid=1)
    first = Process(read_stat(5, proc.root), proc.root)
    assert (first.exe, first.uid) == ("/a", 1)
    proc.add(5, exe="/b", uid=2)
    same = Process(read_stat(5, proc.root), proc.root, first)
    assert (same.exe, same.uid) == ("/a", 2)
    proc.add(5, exe="/b", code=0x2000)
    assert Process(read_stat(5, proc.root), proc.root, same).exe == "/b"
    proc.add(5, exe="/c", start_time=101)
    assert Process(read_stat(5, proc.root), proc.root, same).exe == "/c"


def test_odd_bytes_in_paths_and_arguments_survive(proc: FakeProc) -> None:
    proc.add(5, exe=b"/opt/\xff\n/prog", cmdline=b"\xff\xfe\0x\n")
    process = Process(read_stat(5, proc.root), proc.root)
    assert os.fsencode(process.exe) == b"/opt/\xff\n/prog"
    assert os.fsencode(process.cmdline) == b"\xff\xfe x\n"


def test_a_long_command_line_is_cut(proc: FakeProc) -> None:
    proc.add(5, cmdline=b"x" * 100_000)
    assert len(Process(read_stat(5, proc.root), proc.root).cmdline) == 4096


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b"0::/a.slice/b:c\n", "/a.slice/b:c"),
        (b"9:name=systemd:/s\n4:cpu,memory:/m\n0::/v2\n", "/v2"),
        (b"9:name=systemd:/s\n4:cpu,memory:/m\n", "/m"),
        (b"", "/"),
        (b"garbage\n", "/"),
    ],
)
def test_the_cgroup_is_the_one_of_v2(text: bytes, path: str) -> None:
    assert parse_cgroup(text) == path


def test_only_numbers_are_processes(proc: FakeProc) -> None:
    proc.add(5)
    (proc.root / "self").symlink_to("5")
    (proc.root / "sys").mkdir()
    assert list_pids(proc.root) == [5]


def test_large_files_are_read_by_pieces_up_to_their_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one read asks for is memory that Python takes, and the kernel clears, before it."""
    asked, real = [], os.read

    def read(descriptor: int, size: int) -> bytes:
        asked.append(size)
        return real(descriptor, min(size, 4096))  # as much as the kernel gives of maps

    monkeypatch.setattr(os, "read", read)
    content = os.urandom(100_000)
    (tmp_path / "maps").write_bytes(content)
    assert read_bytes(f"{tmp_path}/maps", 128 << 20) == content
    assert read_bytes(f"{tmp_path}/maps", 50_000) == content[:50_000]
    assert max(asked) <= bounds.PROC_BYTES
