# SPDX-License-Identifier: Apache-2.0
"""Counters of control groups: what is asked of the kernel, what is read, and what is refused."""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tierd.cli._meters import InstructionMeter, counting
from tierd.core.errors import UnavailableError
from tierd.observe.instructions import Instructions
from tierd.observe.metrics.values import OTHER


class Kernel:
    """Hands out counters, each a file of count, time enabled and time run."""

    def __init__(self, root: Path, mount: str = "sys/fs/cgroup") -> None:
        self.asked: list[tuple[str, int]] = []
        self.files: list[int] = []
        self.attributes = b""
        self.refuses = 0
        (root / mount).mkdir(parents=True)
        (root / mount / "cgroup.controllers").write_text("memory")
        for group in ("a", "a/b", "c"):
            (root / mount / group).mkdir()
        (root / "sys/devices/system/cpu").mkdir(parents=True)
        (root / "sys/devices/system/cpu/online").write_text("0-1\n")

    def open(self, attributes: bytes, pid: int, cpu: int, *, cgroup: bool) -> int:
        assert cgroup
        if self.refuses:
            raise OSError(self.refuses, os.strerror(self.refuses))
        self.attributes = attributes
        self.asked.append((Path(f"/proc/self/fd/{pid}").readlink().name, cpu))
        with tempfile.TemporaryFile() as file:
            file.write(bytes(24))
            file.seek(0)
            self.files.append(os.dup(file.fileno()))
            return os.dup(file.fileno())

    def count(self, *values: tuple[int, int, int]) -> None:
        for file, value in zip(self.files, values, strict=True):
            os.pwrite(file, struct.pack("=QQQ", *value), 0)
            os.lseek(file, 0, os.SEEK_SET)


@pytest.mark.parametrize("mount", ["sys/fs/cgroup", "sys/fs/cgroup/unified"])
def test_each_top_group_is_counted_on_each_cpu(tmp_path: Path, mount: str) -> None:
    kernel = Kernel(tmp_path, mount)
    before = len(os.listdir("/proc/self/fd"))
    counts = Instructions(["/a", "/a/b", "/c"], root=tmp_path, opens=kernel.open)
    assert sorted(kernel.asked) == [("a", 0), ("a", 1), ("c", 0), ("c", 1)]
    kind, size, config, _, _, formats, flags = struct.unpack_from("=IIQQQQQ", kernel.attributes)
    assert (kind, size, config, formats) == (0, 128, 1, 3)
    assert flags == 1 << 5  # exclude_kernel, and not disabled
    # The last one ran for half of the time: what it counted stands for twice as much.
    kernel.count((100, 10, 10), (20, 10, 10), (3, 10, 10), (50, 10, 5))
    first = 100 + 20 + 3 + 2 * 50
    assert counts.read() == first
    # Each window has its own share: one in which nothing was counted adds nothing.
    kernel.count((100, 10, 10), (20, 10, 10), (3, 10, 10), (50, 15, 10))
    assert counts.read() == first
    kernel.count((110, 20, 20), (20, 10, 10), (3, 10, 10), (50, 15, 10))
    assert counts.read() == first + 10
    counts.close()
    for file in kernel.files:
        os.close(file)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_counter_that_never_ran_is_no_count(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    counts = Instructions(["/c"], root=tmp_path, opens=kernel.open)
    kernel.count((0, 0, 0), (7, 1, 1))
    assert counts.read() == 7
    kernel.count((0, 5, 0), (9, 2, 2))
    with pytest.raises(UnavailableError, match="leave none"):
        counts.read()


def test_a_refusal_is_told_and_leaves_nothing_open(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.refuses = 2
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UnavailableError, match="No such file"):
        Instructions(["/a"], root=tmp_path, opens=kernel.open)
    kernel.refuses = 0
    with pytest.raises(UnavailableError, match="have ended"):
        Instructions(["/gone"], root=tmp_path, opens=kernel.open)
    with pytest.raises(UnavailableError, match="no processes"):
        Instructions([], root=tmp_path, opens=kernel.open)
    assert len(os.listdir("/proc/self/fd")) == before


def test_groups_that_are_not_told_and_the_whole_host_are_refused() -> None:
    with pytest.raises(UnavailableError, match="more control groups"):
        counting(["/a", OTHER])
    with pytest.raises(UnavailableError, match="root control group"):
        counting(["/a", "/"])


def test_the_measure_is_a_rate_and_nothing_is_no_measure() -> None:
    class Counts:
        total = 0.0

        def read(self) -> float:
            return self.total

    counts: Any = Counts()
    now = [10.0]

    def sleep(seconds: float) -> None:
        now[0] += 2 * seconds  # a late wake-up
        counts.total += 600

    assert InstructionMeter(counts).over(3, lambda: now[0], sleep) == 100
    with pytest.raises(UnavailableError, match="no watched process"):
        InstructionMeter(counts).over(1, lambda: now[0], lambda seconds: now.__setitem__(0, 99))
