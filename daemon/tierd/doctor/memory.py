# SPDX-License-Identifier: Apache-2.0
"""Probes: tiers, free memory, control groups."""

from __future__ import annotations

from tierd.core.access import Availability
from tierd.core.meminfo import parse_meminfo
from tierd.core.units import format_size
from tierd.doctor.findings import CannotTellError, Group, probe
from tierd.doctor.host import Host
from tierd.topology.nodes import NODES


@probe("tiers", Group.HOST, "a second memory tier")
def second_tier(host: Host) -> Availability:
    """Whether there is anything to move between."""
    tiers = host.topology.tiers
    shown = ", ".join(f"{t.name} ({format_size(t.capacity_bytes)})" for t in tiers)
    if len(tiers) > 1:
        return Availability(True, f"{len(tiers)} tiers: {shown}")
    return Availability(
        False,
        f"all memory is one tier: {shown}",
        "bring CXL memory online (daxctl reconfigure-device --mode=system-ram), "
        "name the tiers in the configuration, or try the lab",
    )


@probe("memory.free", Group.HOST, "free memory")
def free_memory(host: Host) -> Availability:
    """How much room each tier has now."""
    parts: list[str] = []
    for tier in host.topology.tiers:
        free = [_free_bytes(host, node) for node in tier.nodes]
        known = [size for size in free if size is not None]
        if not known:
            raise CannotTellError(f"no MemFree of tier {tier.name}")
        parts.append(f"{tier.name} {format_size(sum(known))} of {format_size(tier.capacity_bytes)}")
    return Availability(True, ", ".join(parts))


def _free_bytes(host: Host, node: int) -> int | None:
    for place in (f"{NODES}/node{node}/meminfo", "proc/meminfo"):
        if found := parse_meminfo(host.tree.text(place) or ""):
            return found[1]
    return None


@probe("cgroup2", Group.HOST, "control groups, version 2")
def cgroup2(host: Host) -> Availability:
    """Whether targets can be named by control group."""
    for place in ("sys/fs/cgroup", "sys/fs/cgroup/unified"):
        controllers = host.tree.text(f"{place}/cgroup.controllers")
        if controllers is not None:
            have = ", ".join(controllers.split()) or "no controllers"
            return Availability(True, f"/{place} ({have})")
    return Availability(
        False, "no version 2 hierarchy is mounted", "boot with systemd.unified_cgroup_hierarchy=1"
    )


@probe("gpu.nvml", Group.HOST, "GPUs, by NVML")
def gpu_nvml(host: Host) -> Availability:
    """Which GPUs there are, and whether their memory is a NUMA node (optional: [gpu])."""
    if not host.live:
        raise CannotTellError("not tried on a captured tree")
    from tierd_gpu import nvml

    return nvml.available()
