# SPDX-License-Identifier: Apache-2.0
"""Where the pages of a process really are: which are present, how large, on which node."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd._native import ffi, lib
from tierd.core import bounds
from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.errors import NotAnsweringError, TargetGoneError, TierdError, UnavailableError
from tierd.core.linux import SPACE_ENDS
from tierd.core.migration import U8Array
from tierd.core.pagekey import (
    HUGE_ORDER,
    HUGE_PAGES,
    PAGE_SHIFT,
    PAGE_SIZE,
    VPN_MASK,
    I16Array,
    U64Array,
    make_keys,
)
from tierd.workloads import pagemap_file
from tierd.workloads.pagemap_file import Runs

_NO_IOCTL: Final = frozenset({errno.ENOTTY, errno.EINVAL})


@dataclass(frozen=True, slots=True)
class Residency:
    """Present folios of a target, from one step of a scan.

    Attributes:
        page: uint64[n] page keys of the first 4 KiB of each folio, ascending.
        node: int16[n] nodes.
        order: uint8[n], 9 for a folio mapped as 2 MiB, else 0.
        next_vpn: where to go on, or None at the end of the target's ranges.
        skipped: 4 KiB pages looked at and left out, by reason: "not_present" (gone
            meanwhile, or the zero page), "part_of_huge" (a range cuts the folio),
            "no_access" (the kernel did not tell).
    """

    page: U64Array
    node: I16Array
    order: U8Array
    next_vpn: int | None
    skipped: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.page)


class ResidencyScanner:
    """Walks the page tables of processes, some pages at a time.

    No state is kept between calls but whether the kernel has PAGEMAP_SCAN.

    Args:
        use_ioctl: None finds out; False reads the pagemap file as Linux before 6.7 must.
    """

    def __init__(self, *, use_ioctl: bool | None = None) -> None:
        self._use_ioctl = use_ioctl

    def scan(self, target: WatchedTarget, start_vpn: int, max_pages: int) -> Residency:
        """Present folios of `target` from page number `start_vpn` on.

        Args:
            start_vpn: 0, or `next_vpn` of the step before.
            max_pages: the most 4 KiB pages to look at; at least one folio is.

        Raises:
            TargetGoneError: the process ended.
            UnavailableError: this process may not be looked at.
        """
        max_pages = max(max_pages, HUGE_PAGES)
        runs: list[Runs] = []
        next_vpn: int | None = None
        with _pagemap(target.pid) as fd:
            for each in sorted(target.ranges, key=lambda each: each.start):
                at = max(each.start, start_vpn)
                while at < each.end and max_pages > 0:
                    found, at = self._present(fd, target.pid, at, each, max_pages)
                    runs.append(found)
                    max_pages -= found.pages
                if at < each.end:
                    next_vpn = at
                    break
        vpn, order, cut = _folios(runs, target.ranges)
        skipped = {"part_of_huge": cut} if cut else {}
        node, there = _nodes(target.pid, vpn, order, skipped)
        if not there.all():
            vpn, node, order = vpn[there], node[there], order[there]
        return Residency(
            page=make_keys(target.target, vpn),
            node=node,
            order=order,
            next_vpn=next_vpn,
            skipped=skipped,
        )

    def query(self, pid: int, vpn: U64Array) -> tuple[I16Array, U8Array]:
        """Node and order of given pages.

        Args:
            vpn: uint64[n] page numbers (without target), in any order.

        Returns:
            int16[n] nodes, negative errno where there is no page (ENOENT; EFAULT for
            no mapping and for the zero page), and uint8[n] orders, 9 for every page of
            a folio mapped as 2 MiB, else 0.

        Raises:
            TargetGoneError: the process ended.
            UnavailableError: this process may not be looked at.
        """
        wanted: U64Array = np.ascontiguousarray(vpn, np.uint64)
        order: U8Array = np.zeros(len(wanted), np.uint8)
        if len(wanted) == 0:
            return np.empty(0, np.int16), order
        block = wanted // np.uint64(HUGE_PAGES)
        # (np.unique hashes, which costs several times as much as to sort them.)
        blocks = np.sort(block)
        blocks = blocks[np.diff(blocks, prepend=~blocks[0]) != 0] * np.uint64(HUGE_PAGES)
        heads: list[U64Array] = []
        with _pagemap(pid) as fd:
            for start, end in _spans(blocks):
                heads.append(self._huge_heads(fd, pid, start, end))
        huge = np.concatenate(heads) if heads else np.empty(0, np.uint64)
        if len(huge):
            order[np.isin(block, huge // np.uint64(HUGE_PAGES))] = HUGE_ORDER
        return _query(pid, wanted), order

    def _present(
        self, fd: int, pid: int, start: int, within: WatchedRange, max_pages: int
    ) -> tuple[Runs, int]:
        # Present runs from `start` on, and where to go on.
        if self._use_ioctl is not False:
            result = self._ioctl(fd, start, within.end, lib.TIERD_PAGE_PRESENT, max_pages=max_pages)
            if result is not None:
                return result
        return pagemap_file.present(fd, pid, start, within.end, max_pages)

    def _huge_heads(self, fd: int, pid: int, start: int, end: int) -> U64Array:
        # First pages of the 2 MiB folios in [start, end).
        found: list[U64Array] = []
        at = start
        while at < end:
            step: tuple[Runs, int] | None = None
            if self._use_ioctl is not False:
                need = lib.TIERD_PAGE_PRESENT | lib.TIERD_PAGE_HUGE
                step = self._ioctl(fd, at, end, need, max_pages=0)
            if step is None:
                step = pagemap_file.present(fd, pid, at, end, end - at)
            runs, at = step
            if not runs.huge.any():
                continue
            vpn, order, _ = _folios([runs], (WatchedRange(start, end),))
            found.append(vpn[order == HUGE_ORDER])
        return np.concatenate(found) if found else np.empty(0, np.uint64)

    def _ioctl(
        self, fd: int, start: int, end: int, need: int, *, max_pages: int
    ) -> tuple[Runs, int] | None:
        # One PAGEMAP_SCAN, the zero page left out; None if the kernel has none.
        # Of its own: a call that was given up may still be under way.
        regions = ffi.new("struct tierd_region[]", bounds.PAGEMAP_REGIONS)
        walk_end = ffi.new("uint64_t *")
        count = lib.tierd_pagemap_scan(
            fd,
            start << PAGE_SHIFT,
            end << PAGE_SHIFT,
            need,
            lib.TIERD_PAGE_PFNZERO,
            max_pages,
            regions,
            len(regions),
            walk_end,
        )
        if count < 0:
            if self._use_ioctl is None and -count in _NO_IOCTL:
                self._use_ioctl = False
                return None
            raise _host_error(-count, "PAGEMAP_SCAN")
        self._use_ioctl = True
        raw = np.frombuffer(ffi.buffer(regions), np.uint64).reshape(-1, 3)[:count]
        runs = Runs(
            start=raw[:, 0] >> np.uint64(PAGE_SHIFT),
            end=raw[:, 1] >> np.uint64(PAGE_SHIFT),
            huge=(raw[:, 2] & np.uint64(lib.TIERD_PAGE_HUGE)) != 0,
        )
        after = int(walk_end[0]) >> PAGE_SHIFT
        if runs.pages and bool(runs.huge[-1]):
            # A limit may end the walk inside a folio: the whole of it is taken now.
            last = int(runs.end[-1])
            if last == after and last % HUGE_PAGES:
                after = min(-(-last // HUGE_PAGES) * HUGE_PAGES, end)
        return runs, max(after, start + 1)


def _spans(blocks: U64Array) -> Iterator[tuple[int, int]]:
    # Stretches of page numbers that cover all blocks (ascending) without wide gaps.
    new = np.flatnonzero(np.diff(blocks) > np.uint64(bounds.SPAN_GAP_PAGES)) + 1
    for stretch in np.split(blocks, new):
        end = int(stretch[-1]) + HUGE_PAGES
        # The last page below the end of the address space is never mapped, and a scan up to
        # that end is refused: a stack may lie in the last block.
        yield int(stretch[0]), end - 1 if end << PAGE_SHIFT in SPACE_ENDS else end


def _folios(runs: Sequence[Runs], ranges: Sequence[WatchedRange]) -> tuple[U64Array, U8Array, int]:
    # First pages and orders of the folios in `runs`, ascending, and the number of 4 KiB
    # pages left out because a range holds a part of their folio only.
    if runs and not any(each.huge.any() for each in runs):
        vpns = [_expand(each.start, each.end, 1) for each in runs]
        vpn = vpns[0] if len(vpns) == 1 else np.concatenate(vpns)
        return vpn, np.zeros(len(vpn), np.uint8), 0
    vpns, cut = [], 0
    orders: list[U8Array] = []
    size = np.uint64(HUGE_PAGES)
    for each in runs:
        small = _expand(each.start[~each.huge], each.end[~each.huge], 1)
        head = each.start[each.huge] // size * size
        tail = -(-each.end[each.huge].astype(np.int64) // HUGE_PAGES) * HUGE_PAGES
        heads = np.unique(_expand(head, tail.astype(np.uint64), HUGE_PAGES))
        whole = _inside(heads, ranges)
        cut += int(HUGE_PAGES * np.count_nonzero(~whole))
        vpns += [small, heads[whole]]
        orders += [
            np.zeros(len(small), np.uint8),
            np.full(int(np.count_nonzero(whole)), HUGE_ORDER, np.uint8),
        ]
    if not vpns:
        return np.empty(0, np.uint64), np.empty(0, np.uint8), 0
    # A folio that two steps saw parts of counts once.
    vpn, first = np.unique(np.concatenate(vpns), return_index=True)
    return vpn, np.concatenate(orders)[first], cut


def _expand(start: U64Array, end: U64Array, step: int) -> U64Array:
    # All of start[0], start[0] + step, ... < end[0], start[1], ...
    counts = ((end - start) // np.uint64(step)).astype(np.int64)
    before = (np.cumsum(counts) - counts).astype(np.uint64) * np.uint64(step)
    pages = np.repeat(start - before, counts)
    pages += np.arange(0, len(pages) * step, step, dtype=np.uint64)
    return pages


def _inside(heads: U64Array, ranges: Sequence[WatchedRange]) -> npt.NDArray[np.bool_]:
    # Whether the whole 2 MiB folio of each head lies in one of the ranges.
    ordered = sorted(ranges, key=lambda each: each.start)
    start = np.array([each.start for each in ordered], np.uint64)
    end = np.array([each.end for each in ordered], np.uint64)
    index = np.searchsorted(start, heads, side="right").astype(np.int64) - 1
    known = index >= 0
    fits: npt.NDArray[np.bool_] = heads + np.uint64(HUGE_PAGES) <= end[np.maximum(index, 0)]
    return known & fits


def _query(pid: int, vpn: U64Array) -> I16Array:
    node = np.empty(len(vpn), np.int32)
    if len(vpn):
        address = ffi.from_buffer("void *[]", (vpn & np.uint64(VPN_MASK)) * np.uint64(PAGE_SIZE))
        status = ffi.from_buffer("int[]", node)
        result = lib.tierd_move_pages(pid, len(vpn), address, ffi.NULL, status)
        if result < 0:
            raise _host_error(-result, f"asking where pages of process {pid} are")
    return node.astype(np.int16)


def _nodes(
    pid: int, vpn: U64Array, order: U8Array, skipped: dict[str, int]
) -> tuple[I16Array, npt.NDArray[np.bool_]]:
    # Nodes, and which of the folios are there; counts the others in `skipped`.
    node = _query(pid, vpn)
    there: npt.NDArray[np.bool_] = node >= 0
    if there.all():
        return node, there
    pages = np.int64(1) << order.astype(np.int64)
    absent = np.isin(node, [-errno.ENOENT, -errno.EFAULT])
    for reason, which in (("not_present", absent), ("no_access", ~there & ~absent)):
        if which.any():
            skipped[reason] = skipped.get(reason, 0) + int(pages[which].sum())
    return node, there


@contextmanager
def _pagemap(pid: int) -> Iterator[int]:
    try:
        fd = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _host_error(error.errno or 0, f"opening pagemap of process {pid}") from error
    try:
        yield fd
    except OSError as error:
        raise _host_error(error.errno or 0, f"reading pagemap of process {pid}") from error
    finally:
        os.close(fd)


def _host_error(number: int, what: str) -> TierdError:
    if number in (errno.ETIMEDOUT, errno.EAGAIN):
        return NotAnsweringError(f"{what}: there is no answer")
    if number in (errno.ESRCH, errno.ENOENT, errno.EINVAL):
        return TargetGoneError(f"{what}: the process has ended or has no memory")
    text: Any = os.strerror(number)
    hint = "run as root, or with CAP_SYS_PTRACE and CAP_SYS_NICE"
    if number in (errno.EPERM, errno.EACCES):
        return UnavailableError(f"{what}: {text}", hint=hint)
    return UnavailableError(f"{what}: {text}")
