# SPDX-License-Identifier: Apache-2.0
"""Swap devices as the kernel tells them."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from tierd.core.tuning import PAGE_OUT
from tierd.topology import swap

HEAD = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
ZRAM = "/dev/zram0                              partition\t2097148\t\t1024\t\t100\n"
DISK = "/dev/sda 2                              partition\t4194300\t\t0\t\t-2\n"


def host(tmp_path: Path, *lines: str, zswap: str = "N\n") -> Path:
    (tmp_path / "proc").mkdir(exist_ok=True)
    (tmp_path / swap.SWAPS).write_text(HEAD + "".join(lines))
    (tmp_path / swap.ZSWAP).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / swap.ZSWAP).write_text(zswap)
    return tmp_path


def test_devices_are_told_in_the_kernels_order(tmp_path: Path) -> None:
    found = swap.read_swaps(host(tmp_path, DISK, ZRAM, "nonsense\n"))
    assert [(each.name, each.compressed) for each in found] == [
        ("/dev/zram0", True),
        ("/dev/sda 2", False),
    ]
    assert found[0].size_bytes == 2097148 << 10
    assert found[0].used_bytes == 1024 << 10


LEFT = int(2097148 * 1024 * 0.9) - (1024 << 10)
DISK_LEFT = int(4194300 * 1024 * 0.9)
ALIKE = DISK.replace("-2", "100")


@pytest.mark.parametrize(
    ("lines", "zswap", "compressed_only", "left", "why_not"),
    [
        ([], "N", True, 0, "there is no swap"),
        ([ZRAM], "N", True, LEFT, ""),
        ([DISK], "N", True, 0, "/dev/sda 2 does not compress in memory, and zswap is off"),
        ([DISK], "Y", True, DISK_LEFT, ""),
        ([DISK], "N", False, DISK_LEFT, ""),
        ([DISK, ZRAM], "N", True, LEFT, ""),
        ([DISK, ZRAM], "N", False, LEFT + DISK_LEFT, ""),
        # Of one priority the kernel takes turns.
        ([ALIKE, ZRAM], "N", True, 0, "/dev/sda 2 does not compress in memory, and zswap is off"),
        ([ZRAM, ZRAM.replace("zram0", "zram1")], "N", True, 2 * LEFT, ""),
        (
            [ZRAM.replace("1024", "1900000")], "N", True, 0,
            "swap is full, but for what is kept free",
        ),
        (
            [DISK, ZRAM.replace("1024", "2097148")], "N", True, 0,
            "/dev/sda 2 does not compress in memory, and zswap is off",
        ),
    ],
)  # fmt: skip
def test_how_much_can_be_paged_out_and_why_not(
    tmp_path: Path, lines: list[str], *, zswap: str, compressed_only: bool, left: int, why_not: str
) -> None:
    root = host(tmp_path, *lines, zswap=zswap)
    assert PAGE_OUT.kept_free == 0.1
    assert swap.space(compressed_only, root) == (left, why_not)


def test_pages_that_came_back_are_those_of_swap_and_of_zswap(tmp_path: Path) -> None:
    file = tmp_path / "vmstat"
    file.write_text("pgfault 9\npswpin 5\npswpout 7\nzswpin 2\n")
    assert swap.swapped_in(file) == 7
    file.write_text("pgfault 9\npswpin 5\n")
    assert swap.swapped_in(file) == 5


def test_own_pages_that_stay_tell_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert swap.read_swaps(tmp_path) == []
    # Advice of which no page goes (MADV_COLD).
    monkeypatch.setattr(swap, "lib", SimpleNamespace(TIERD_ADVICE_PAGE_OUT=20))
    assert swap.fault_seconds() is None
    monkeypatch.setattr(swap, "lib", SimpleNamespace(TIERD_ADVICE_PAGE_OUT=1 << 20))
    assert swap.fault_seconds() is None


def test_only_major_faults_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = itertools.count()
    monkeypatch.setattr(swap, "_major_faults", lambda: next(counts))
    found = swap.fault_seconds()
    assert found is not None
    assert 0 < found < 1
