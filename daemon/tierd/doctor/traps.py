# SPDX-License-Identifier: Apache-2.0
"""Probes: what a host may do to tiering unseen, though everything that tierd needs is there."""

from __future__ import annotations

import re
from typing import Final

from tierd.core.access import Availability
from tierd.doctor.findings import CannotTellError, Group, Host, probe
from tierd.doctor.sources import KDAMONDS

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
