# SPDX-License-Identifier: Apache-2.0
"""Swap devices as the kernel tells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tierd.topology import swap

HEAD = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
ZRAM = "/dev/zram0                              partition\t2097148\t\t1024\t\t100\n"
DISK = "/dev/sda 2                              partition\t4194300\t\t0\t\t-2\n"


def host(tmp_path: Path, *lines: str, zswap: str = "N\n") -> Path:
    (tmp_path / "proc").mkdir(exist_ok=True)
    (tmp_path / swap.SWAPS).write_text(HEAD + "".join(lines))
    (tmp_path / swap.VMSTAT).write_text("pgfault 9\npswpin 5\npswpout 7\nzswpin 2\n")
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


@pytest.mark.parametrize(
    ("lines", "zswap", "compressed_only", "bytes_kib", "why_not"),
    [
        ([], "N", True, 0, "there is no swap"),
        ([ZRAM], "N", True, 2096124, ""),
        ([DISK], "N", True, 0, "/dev/sda 2 does not compress in memory, and zswap is off"),
        ([DISK], "Y", True, 4194300, ""),
        ([DISK], "N", False, 4194300, ""),
        ([DISK, ZRAM], "N", True, 2096124, ""),
        ([DISK, ZRAM], "N", False, 2096124 + 4194300, ""),
        ([ZRAM.replace("1024", "2097148")], "N", True, 0, "swap is full"),
        (
            [DISK, ZRAM.replace("1024", "2097148")], "N", True, 0,
            "/dev/sda 2 does not compress in memory, and zswap is off",
        ),
    ],
)  # fmt: skip
def test_how_much_can_be_paged_out_and_why_not(
    tmp_path: Path,
    lines: list[str],
    *,
    zswap: str,
    compressed_only: bool,
    bytes_kib: int,
    why_not: str,
) -> None:
    root = host(tmp_path, *lines, zswap=zswap)
    assert swap.space(compressed_only, root) == (bytes_kib << 10, why_not)


def test_pages_that_came_back_are_those_of_swap_and_of_zswap(tmp_path: Path) -> None:
    assert swap.swapped_in(host(tmp_path)) == 7


def test_a_host_without_swap_has_no_fault_time(tmp_path: Path) -> None:
    assert swap.read_swaps(tmp_path) == []
    if not swap.read_swaps():
        assert swap.fault_seconds() is None
