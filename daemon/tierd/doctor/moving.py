# SPDX-License-Identifier: Apache-2.0
"""Probes: what moves pages and finds them, tried on this process's own memory; hidden costs.

The functions that try a system call return a result or raise OSError with the kernel's errno.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from tierd._native import ffi, lib
from tierd.core.access import Availability
from tierd.core.errors import TargetGoneError
from tierd.core.linux import PAGEMAP_ENTRY_BYTES
from tierd.doctor.findings import CannotTellError, Group, Host, probe
from tierd.doctor.sources import KDAMONDS
from tierd.workloads.bounded_reads import BoundedReads


@probe("move_pages", Group.MOVING, "move_pages", live=True)
def move_pages(host: Host) -> Availability:
    """Move one own page to each node with memory and back, where there are several."""
    try:
        with touched_page() as address:
            home = page_to(address, None)
            if home < 0:
                return Availability(False, f"asked for a page's node: {os.strerror(-home)}")
            seen = [page_to(address, node) for node in _others(host, home)]
            page_to(address, home)
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


@probe("peer", Group.MOVING, "pages of other processes", live=True)
def peer(host: Host) -> Availability:
    """Read another process's pagemap, and ask where a page of it is, as the service does."""
    hint = "run with CAP_SYS_PTRACE and CAP_SYS_NICE, in the host's PID and user namespaces"
    reads = BoundedReads()
    for pid in sorted(host.processes.keys() - {os.getpid()}):
        try:
            if not reads.one(pid, None, partial(_reach, pid)):
                continue  # a kernel thread, which has no memory
        except TargetGoneError:
            continue
        except OSError as error:
            return Availability(False, f"of process {pid}: {host.who_refuses(error)}", hint)
        return Availability(True, f"looked at process {pid}")
    raise CannotTellError("there is no other process here")


def _reach(pid: int) -> bool:
    """Look at a page of a process; false where it has no memory."""
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        try:
            has_memory = bool(pagemap.read(PAGEMAP_ENTRY_BYTES))
            if has_memory:
                page_to(0, None, pid)
        except ProcessLookupError:
            return False
    return has_memory


def _others(host: Host, home: int) -> list[int]:
    return [node for node in sorted(host.topology.nodes) if node != home]


@probe("pagemap_scan", Group.MOVING, "PAGEMAP_SCAN", live=True)
def pagemap_scan(host: Host) -> Availability:
    """Whether pages can be found by their state (Linux 6.7 and later)."""
    try:
        with touched_page() as address:
            found = scan_own_page(address)
    except OSError as error:
        if error.errno == errno.ENOTTY:
            return Availability(
                False, "this kernel has no such ioctl", "Linux 6.7 or later; pagemap works instead"
            )
        return Availability(False, f"the ioctl says {error.strerror}")
    return Availability(found == 1, f"found {found} present range in an own page")


@probe("process_madvise", Group.MOVING, "process_madvise", live=True)
def process_madvise(host: Host) -> Availability:
    """Whether pages can be advised cold, by which folios of 2 MiB are split."""
    try:
        with touched_page() as address:
            done = advise_own_page(address)
    except OSError as error:
        hint = "run with CAP_SYS_NICE" if error.errno == errno.EPERM else "Linux 5.10 or later"
        return Availability(False, f"the system call says {error.strerror}", hint)
    return Availability(True, f"advised {done} bytes of its own memory cold")


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


@contextlib.contextmanager
def touched_page() -> Iterator[int]:
    """The address of one page of anonymous memory that is present."""
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[0] = 1
        view = ctypes.c_char.from_buffer(memory)
        try:
            yield ctypes.addressof(view)
        finally:
            del view


def page_to(address: int, node: int | None, pid: int = 0) -> int:
    """Move one page to `node` (None only asks); the node it is on then, or -errno.

    Of process `pid`, 0 for this one.

    Raises:
        OSError: the kernel refused.
    """
    pages, status = ffi.new("void *[1]", [ffi.cast("void *", address)]), ffi.new("int *", -255)
    nodes = ffi.NULL if node is None else ffi.new("int[1]", [node])
    _checked(lib.tierd_move_pages(pid, 1, pages, nodes, status))
    return int(status[0])


def scan_own_page(address: int) -> int:
    """How many ranges PAGEMAP_SCAN finds present in the page at `address`."""
    region, walk_end = ffi.new("struct tierd_region[1]"), ffi.new("uint64_t *")
    with Path("/proc/self/pagemap").open("rb") as pagemap:
        found = lib.tierd_pagemap_scan(
            pagemap.fileno(),
            address,
            address + mmap.PAGESIZE,
            lib.TIERD_PAGE_PRESENT,
            lib.TIERD_PAGE_PFNZERO,
            1,
            region,
            1,
            walk_end,
        )
    return _checked(int(found))


def advise_own_page(address: int) -> int:
    """process_madvise(MADV_COLD) on one own page; the bytes advised."""
    page = address // mmap.PAGESIZE
    span = ffi.new("struct tierd_span[1]", [{"start": page, "end": page + 1}])
    return _checked(int(lib.tierd_advise(os.getpid(), span, 1, lib.TIERD_ADVICE_COLD)))


MEMMAP: Final = "sys/module/memory_hotplug/parameters/memmap_on_memory"
DAX_DEVICES: Final = "sys/bus/dax/devices"
MIGRATE_BROKEN: Final = ((6, 11), (7, 2))
"""First and last kernels whose DAMON migrate actions allocate without __GFP_THISNODE: from the
coming of the actions until commit 613c2d5552d2 of August 2026. A distribution may have carried that
back, which no file tells."""


@probe("memory.memmap", Group.HOST, "page descriptors in fast memory")
def memmap(host: Host) -> Availability:
    """Whether `struct page`s of slow memory lie in it: each allocation and move would wait for it.

    Sources: Documentation/admin-guide/mm/memory-hotplug.rst (memmap_on_memory), and of a device
    Documentation/ABI/testing/sysfs-bus-dax, where CXL's default is 1. Both must be on.
    """
    tree = host.tree
    if (tree.text(MEMMAP) or "N") in ("N", "0"):
        return Availability(True, "memory_hotplug.memmap_on_memory is off")
    slow = {node for tier in host.topology.tiers[1:] for node in tier.nodes}
    devices = {
        name: tree.text(f"{DAX_DEVICES}/{name}/memmap_on_memory")
        for name in tree.names(DAX_DEVICES)
        if tree.integer(f"{DAX_DEVICES}/{name}/target_node") in slow
    }
    there = sorted(name for name, value in devices.items() if value == "1")
    if there:
        return Availability(
            False,
            f"those of {', '.join(there)} lie on the device: each allocation, reclaim and move of "
            "its pages waits for slow memory",
            f"write 0 to /{DAX_DEVICES}/{there[0]}/memmap_on_memory before its memory is onlined "
            "(daxctl reconfigure-device), or boot without memory_hotplug.memmap_on_memory",
        )
    if slow and not devices:
        raise CannotTellError("memory_hotplug.memmap_on_memory is on, and no device says more")
    return Availability(True, "no device of slow memory holds its own")


@probe("conflict.damon_migrate", Group.CONFLICTS, "DAMON's migrate actions")
def damon_migrate(host: Host) -> Availability:
    """Whether schemes migrate on a kernel where a full node's share lands on the wrong node."""
    tree, schemes = host.tree, []
    for kdamond in tree.names(KDAMONDS):
        contexts = f"{KDAMONDS}/{kdamond}/contexts"
        for context in tree.names(contexts):
            folder = f"{contexts}/{context}/schemes"
            actions = [tree.text(f"{folder}/{name}/action") or "" for name in tree.names(folder)]
            schemes += [f"{kdamond}: {each}" for each in actions if each.startswith("migrate_")]
    if not schemes:
        return Availability(True, "no scheme migrates")
    found = re.match(r"(\d+)\.(\d+)", host.release)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    told = f"schemes move pages beside tierd (kdamond {', '.join(schemes)})"
    if MIGRATE_BROKEN[0] <= version <= MIGRATE_BROKEN[1]:
        told += (
            f"; on Linux {version[0]}.{version[1]} a page for a nearly full node may land on "
            "another one and counts as migrated"
        )
    return Availability(False, told, "stop those schemes (damo stop), or exclude their targets")
