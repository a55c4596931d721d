# SPDX-License-Identifier: Apache-2.0
"""Residency of this very process, whose memory the test has laid out itself."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.errors import TargetGoneError
from tierd.core.pagekey import vpn_of
from tierd.workloads.residency import Residency, ResidencyScanner

HUGE = 512
BLOCKS = 8
libc = ctypes.CDLL(None)


@dataclass
class Laid:
    """Blocks 0, 1: asked to be 2 MiB; 3: 4 KiB pages; 4: every third page; 5: zero pages."""

    vpn: int
    present: set[int]
    zero: set[int]
    huge: bool


@pytest.fixture(scope="module")
def laid() -> Iterator[Laid]:
    length = (BLOCKS + 1) * HUGE * 4096
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    start = -(-base // (HUGE * 4096)) * HUGE * 4096
    at = start - base
    small, huge = BLOCKS * HUGE * 4096, 2 * HUGE * 4096
    libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(small), 15)
    libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(huge), 14)
    vpn = start // 4096
    pages = [*range(2 * HUGE), *range(3 * HUGE, 4 * HUGE), *range(4 * HUGE, 5 * HUGE, 3)]
    for page in pages:
        memory[at + page * 4096] = 1
    zero = list(range(5 * HUGE, 5 * HUGE + 10))
    for page in zero:
        assert memory[at + page * 4096] == 0
    orders = ResidencyScanner().query(os.getpid(), np.array([vpn, vpn + HUGE], np.uint64))[1]
    yield Laid(
        vpn,
        {vpn + each for each in pages},
        {vpn + each for each in zero},
        bool((orders == 9).all()),
    )


def whole(scanner: ResidencyScanner, target: WatchedTarget, step: int) -> list[Residency]:
    found = [scanner.scan(target, 0, step)]
    while found[-1].next_vpn is not None:
        assert len(found) < 10_000
        found.append(scanner.scan(target, found[-1].next_vpn, step))
    return found


def target_of(laid: Laid, *ranges: tuple[int, int]) -> WatchedTarget:
    chosen = ranges or ((0, BLOCKS * HUGE),)
    return WatchedTarget(
        9, os.getpid(), tuple(WatchedRange(laid.vpn + low, laid.vpn + high) for low, high in chosen)
    )


@pytest.mark.parametrize("use_ioctl", [None, False])
@pytest.mark.parametrize("step", [512, 700, 10**6])
def test_a_scan_finds_what_is_there_once(laid: Laid, use_ioctl: bool | None, step: int) -> None:
    steps = whole(ResidencyScanner(use_ioctl=use_ioctl), target_of(laid), step)
    page = np.concatenate([each.page for each in steps])
    order = np.concatenate([each.order for each in steps])
    node = np.concatenate([each.node for each in steps])
    assert (page >> np.uint64(48) == 9).all()
    covered: list[int] = []
    for vpn, each in zip(vpn_of(page).tolist(), order.tolist(), strict=True):
        covered += range(vpn, vpn + (1 << each))
    assert len(covered) == len(set(covered))
    assert set(covered) == laid.present
    assert (node >= 0).all()
    if laid.huge:
        assert vpn_of(page[order == 9]).tolist() == [laid.vpn, laid.vpn + HUGE]


@pytest.mark.parametrize("use_ioctl", [None, False])
def test_a_step_is_bounded(laid: Laid, use_ioctl: bool | None) -> None:
    for each in whole(ResidencyScanner(use_ioctl=use_ioctl), target_of(laid), 600):
        assert int((1 << each.order.astype(np.int64)).sum()) <= 600 + HUGE


@pytest.mark.parametrize("use_ioctl", [None, False])
def test_ranges_bound_what_is_seen(laid: Laid, use_ioctl: bool | None) -> None:
    ranges = ((3 * HUGE + 5, 3 * HUGE + 25), (3 * HUGE + 100, 4 * HUGE + 4))
    found = whole(ResidencyScanner(use_ioctl=use_ioctl), target_of(laid, *ranges), 10**6)
    page = vpn_of(np.concatenate([each.page for each in found])).tolist()
    wanted = {each for low, high in ranges for each in range(laid.vpn + low, laid.vpn + high)}
    assert set(page) == wanted & laid.present


def test_a_folio_that_a_range_cuts_is_left_out_and_counted(laid: Laid) -> None:
    if not laid.huge:
        pytest.skip("this kernel gave no 2 MiB folio")
    found = ResidencyScanner().scan(target_of(laid, (100, 2 * HUGE)), 0, 10**6)
    assert vpn_of(found.page).tolist() == [laid.vpn + HUGE]
    assert found.skipped == {"part_of_huge": HUGE}


@pytest.mark.parametrize("use_ioctl", [None, False])
def test_a_query_tells_pages_from_holes(laid: Laid, use_ioctl: bool | None) -> None:
    offsets = [4 * HUGE, 4 * HUGE + 1, 3 * HUGE, 7, HUGE + 511, 5 * HUGE + 3, 7 * HUGE]
    vpn = np.array([laid.vpn + each for each in offsets] + [1], np.uint64)
    node, order = ResidencyScanner(use_ioctl=use_ioctl).query(os.getpid(), vpn)
    assert (node[[0, 2, 3, 4]] >= 0).all()
    assert node[1] == node[6] == -errno.ENOENT
    assert node[5] in (-errno.EFAULT, -errno.ENOENT)
    assert node[7] == -errno.EFAULT
    assert order.tolist() == [0, 0, 0, 9, 9, 0, 0, 0] if laid.huge else [0] * 8


def test_a_process_that_ended_is_told_as_such() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    scanner = ResidencyScanner()
    target = WatchedTarget(1, child.pid, (WatchedRange(0x1000, 0x2000),))
    with pytest.raises(TargetGoneError):
        scanner.scan(target, 0, 1000)
    with pytest.raises(TargetGoneError):
        scanner.query(child.pid, np.array([0x1000], np.uint64))


def test_no_file_stays_open(laid: Laid) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    whole(ResidencyScanner(), target_of(laid), 1000)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("use_ioctl", [None, False])
def test_a_stack_at_the_very_end_of_the_address_space_can_be_asked_for(
    use_ioctl: bool | None,
) -> None:
    """Without address randomisation the last mapped page is in the last block of all."""
    with subprocess.Popen(["setarch", "-R", "sleep", "100"]) as process:
        try:
            maps = Path(f"/proc/{process.pid}/maps")
            while "sleep" not in (text := maps.read_text()):
                pass
            ends = [int(line.split()[0].split("-")[1], 16) for line in text.splitlines()]
            last = max(end for end in ends if end < 1 << 63) // mmap.PAGESIZE - 1
            pages = np.array([last], np.uint64)
            node, order = ResidencyScanner(use_ioctl=use_ioctl).query(process.pid, pages)
        finally:
            process.kill()
    assert last > (1 << 35) - 512
    assert node[0] >= 0
    assert order[0] == 0
