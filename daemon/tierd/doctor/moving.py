# SPDX-License-Identifier: Apache-2.0
"""Probes: what moves pages and finds them, tried on this process's own memory."""

from __future__ import annotations

import errno
import os

from tierd.core.access import Availability
from tierd.doctor import syscalls
from tierd.doctor.findings import CannotTellError, Group, probe
from tierd.doctor.host import Host


@probe("move_pages", Group.MOVING, "move_pages")
def move_pages(host: Host) -> Availability:
    """Move one own page to each node with memory and back, where there are several."""
    if not host.live:
        raise CannotTellError("not tried on a captured tree")
    try:
        with syscalls.touched_page() as address:
            home = syscalls.page_to(address, None)
            if home < 0:
                return Availability(False, f"asked for a page's node: {os.strerror(-home)}")
            seen = [syscalls.page_to(address, node) for node in _others(host, home)]
            syscalls.page_to(address, home)
    except OSError as error:
        hint = "use a kernel with CONFIG_MIGRATION and CONFIG_NUMA"
        if error.errno in (errno.EPERM, errno.EACCES):
            hint = "a seccomp filter or container forbids it"
        return Availability(False, f"the system call says {error.strerror}", hint)
    wanted = _others(host, home)
    if not wanted:
        return Availability(True, f"asked where a page is (node {home}); no other node to move to")
    failed = [
        f"node {node}: {os.strerror(-got) if got < 0 else f'is on node {got}'}"
        for node, got in zip(wanted, seen, strict=True)
        if got != node
    ]
    if failed:
        return Availability(False, f"a page of its own did not move: {'; '.join(failed)}")
    nodes = ", ".join(map(str, wanted))
    return Availability(True, f"moved a page from node {home} to node {nodes} and back")


def _others(host: Host, home: int) -> list[int]:
    return [node for node in sorted(host.topology.nodes) if node != home]


@probe("pagemap_scan", Group.MOVING, "PAGEMAP_SCAN")
def pagemap_scan(host: Host) -> Availability:
    """Whether pages can be found by their state (Linux 6.7 and later)."""
    if not host.live:
        raise CannotTellError("not tried on a captured tree")
    try:
        with syscalls.touched_page() as address:
            found = syscalls.scan_own_page(address)
    except OSError as error:
        if error.errno == errno.ENOTTY:
            return Availability(
                False, "this kernel has no such ioctl", "Linux 6.7 or later; pagemap works instead"
            )
        return Availability(False, f"the ioctl says {error.strerror}")
    return Availability(found == 1, f"found {found} present range in an own page")


@probe("process_madvise", Group.MOVING, "process_madvise")
def process_madvise(host: Host) -> Availability:
    """Whether pages can be advised cold, by which folios of 2 MiB are split."""
    if not host.live:
        raise CannotTellError("not tried on a captured tree")
    try:
        with syscalls.touched_page() as address:
            done = syscalls.advise_own_page(address)
    except OSError as error:
        hint = "run with CAP_SYS_NICE" if error.errno == errno.EPERM else "Linux 5.10 or later"
        return Availability(False, f"the system call says {error.strerror}", hint)
    return Availability(True, f"advised {done} bytes of its own memory cold")
