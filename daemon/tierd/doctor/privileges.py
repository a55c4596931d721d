# SPDX-License-Identifier: Apache-2.0
"""Probes: capabilities, perf's limit, process events; tiers, free memory, control groups."""

from __future__ import annotations

import contextlib
from typing import Final

from tierd.core.access import Availability
from tierd.core.nodes import parse_meminfo
from tierd.core.units import format_size
from tierd.doctor.findings import Ask, CannotTellError, Group, probe
from tierd.doctor.host import Host
from tierd.topology.sysfs import NODES

NEEDED_FOR: Final = {
    "CAP_SYS_PTRACE": "move and inspect the pages of other users' processes",
    "CAP_SYS_NICE": "move shared pages, advise other processes",
    "CAP_NET_ADMIN": "process events",
    "CAP_BPF": "BPF programs",
    "CAP_PERFMON": "perf events with addresses",
    "CAP_SYS_ADMIN": "physical addresses of pages (physical sources only)",
}


def _ask_for(name: str, purpose: str) -> Ask:
    def ask(host: Host) -> Availability:
        held = host.capabilities
        if held is None:
            raise CannotTellError("/proc/self/status shows no effective set")
        if name in held:
            return Availability(True, f"for: {purpose}")
        unit = "AmbientCapabilities= in the unit, or run as root"
        return Availability(False, f"not in the effective set; for: {purpose}", unit)

    return ask


for _name, _purpose in NEEDED_FOR.items():
    probe(f"capability.{_name.removeprefix('CAP_').lower()}", Group.PRIVILEGES, _name)(
        _ask_for(_name, _purpose)
    )


@probe("perf.paranoid", Group.PRIVILEGES, "kernel.perf_event_paranoid")
def perf_paranoid(host: Host) -> Availability:
    """Whether whole CPUs may be sampled (Documentation/admin-guide/sysctl/kernel.rst)."""
    level = host.tree.integer("proc/sys/kernel/perf_event_paranoid")
    if level is None:
        return Availability(
            False, "the kernel has no perf events", "use a kernel with CONFIG_PERF_EVENTS"
        )
    if host.capabilities and "CAP_PERFMON" in host.capabilities:
        return Availability(True, f"is {level}, which CAP_PERFMON overrides")
    if level <= 0:
        return Availability(True, f"is {level}: whole CPUs may be sampled")
    return Availability(
        False,
        f"is {level}: whole CPUs may not be sampled without CAP_PERFMON",
        "run with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=0",
    )


@probe("proc_connector", Group.PRIVILEGES, "process events (proc connector)")
def proc_connector(host: Host) -> Availability:
    """Whether starts and ends of processes can be heard of; else /proc is polled."""
    listed = host.tree.text("proc/net/connector")
    if listed is None or "cn_proc" not in listed:
        return Availability(
            False,
            "/proc/net/connector does not list cn_proc",
            "CONFIG_PROC_EVENTS, and the host's own network namespace; /proc is polled instead",
        )
    if not host.live:
        return Availability(True, "the kernel lists cn_proc")
    from pyroute2.netlink.connector.cn_proc import ProcEventSocket

    events = ProcEventSocket()
    try:
        events.bind()
    except (OSError, KeyError) as error:  # pyroute2 raises KeyError when no address binds
        return Availability(
            False, f"the socket may not be bound ({error})", "run with CAP_NET_ADMIN"
        )
    finally:
        with contextlib.suppress(Exception):
            events.close()
    return Availability(True, "the socket can be bound")


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


@probe("gpu.nvml", Group.HOST, "GPUs, by NVML", live=True)
def gpu_nvml(host: Host) -> Availability:
    """Which GPUs there are, and whether their memory is a NUMA node (optional: [gpu])."""
    from tierd_gpu import nvml

    return nvml.available()
