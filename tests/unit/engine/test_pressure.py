# SPDX-License-Identifier: Apache-2.0
"""Pressure: what the kernel's files say, how often they are read, and bouncing pages."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tierd.core import bounds
from tierd.core.tuning import PACING
from tierd.engine.pressure import CgroupPressureMonitor, PressureMonitor, parse_pressure
from tierd.policy.limits import Pressure

TEXT = b"some avg10=%s avg60=1.00 avg300=0.50 total=123\nfull avg10=99.00 avg60=0.00 total=5\n"


@pytest.mark.parametrize(
    ("text", "share"),
    [
        (TEXT % b"12.34", 0.1234),
        (TEXT % b"0.00", 0.0),
        (TEXT % b"100.00", 1.0),
        (b"", 0.0),
        (b"full avg10=99.00 avg60=0.00 avg300=0.00 total=5\n", 0.0),
        (b"some avg10=x", 0.0),
    ],
)
def test_the_share_of_time_in_which_some_task_waited(text: bytes, share: float):
    assert parse_pressure(text) == pytest.approx(share)


def test_the_files_are_read_every_two_seconds(tmp_path: Path):
    (tmp_path / "memory").write_bytes(TEXT % b"50.00")
    (tmp_path / "cpu").write_bytes(TEXT % b"25.00")
    strain = PressureMonitor(tmp_path)
    assert strain.read(1) == Pressure(0.5, 0.25)
    (tmp_path / "memory").write_bytes(TEXT % b"0.00")
    assert strain.read(PACING.upkeep_interval_ns) == Pressure(0.5, 0.25)
    assert strain.read(PACING.upkeep_interval_ns + 1) == Pressure(0.0, 0.25)


def test_a_kernel_without_pressure_information_is_calm(tmp_path: Path):
    assert PressureMonitor(tmp_path / "none").read(0) == Pressure()


def test_bounces_are_a_share_of_what_moved_since(tmp_path: Path):
    strain = PressureMonitor(tmp_path)
    totals = SimpleNamespace(watched=True, by_tierd=0, by_kernel=0, by_others=0, ping_pong=0)

    def after(seconds: int) -> float:
        return strain.read(seconds * 10**9, totals).ping_pong

    assert after(0) == 0
    totals.by_tierd, totals.by_kernel, totals.ping_pong = (
        PACING.few_pages,
        PACING.few_pages,
        PACING.few_pages,
    )
    assert after(2) == 0.5
    totals.by_tierd += 1  # too few to judge anew
    assert after(4) == 0.5
    totals.by_tierd += PACING.few_pages
    assert after(6) == 0.0
    totals.watched = False
    assert after(8) == 0.0


def put(root: Path, group: str, memory: bytes, cpu: bytes = b"0.00") -> None:
    folder = root / group.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.pressure").write_bytes(TEXT % memory)
    (folder / "cpu.pressure").write_bytes(TEXT % cpu)


def strained(strain: CgroupPressureMonitor, now_ns: int, *groups: str) -> frozenset[str]:
    """What is strained after pages of processes in `groups` were moved."""
    strain.note(range(len(groups)))
    return strain.read(now_ns, lambda: dict(enumerate(groups)), 0.2, 0.9)


def test_only_groups_whose_pages_move_are_asked_and_strained_ones_until_they_are_calm(
    tmp_path: Path,
):
    put(tmp_path, "/a", b"30.00")
    put(tmp_path, "/b", b"5.00")
    put(tmp_path, "/c", b"0.00", b"95.00")
    put(tmp_path, "/never", b"99.00")
    strain = CgroupPressureMonitor(tmp_path)
    assert strained(strain, 0) == frozenset()
    assert strained(strain, 1, "/a", "/b", "/c", "/gone") == {"/a", "/c"}
    put(tmp_path, "/c", b"0.00")
    assert strained(strain, 2) == {"/a", "/c"}  # read every two seconds
    assert strained(strain, 1 + PACING.upkeep_interval_ns) == {"/a"}
    put(tmp_path, "/a", b"1.00")
    assert strained(strain, 1 + 2 * PACING.upkeep_interval_ns) == frozenset()


def test_the_hosts_own_group_and_paths_out_of_the_tree_are_not_asked(tmp_path: Path):
    put(tmp_path / "tree", "/", b"99.00")
    put(tmp_path, "/out", b"99.00")
    strain = CgroupPressureMonitor(tmp_path / "tree")
    assert strained(strain, 0, "/", "/../out") == frozenset()


def test_too_many_groups_have_their_turn_one_after_the_other(tmp_path: Path):
    names = [f"/g{number:03}" for number in range(bounds.PRESSURE_CGROUPS + 3)]
    for name in names:
        put(tmp_path, name, b"1.00")
    put(tmp_path, names[-1], b"50.00")
    strain = CgroupPressureMonitor(tmp_path)
    assert strained(strain, 0, *names) == frozenset()
    assert strain.deferred == 3
    assert strained(strain, PACING.upkeep_interval_ns) == {names[-1]}
