# SPDX-License-Identifier: Apache-2.0
"""Probes: capabilities, process events, tiers, memory, control groups; and who else moves pages.

Of a conflict, ok means that there is none.
"""

from __future__ import annotations

from typing import Final

from tierd.core.access import Availability
from tierd.core.errors import UnavailableError
from tierd.core.linux import CGROUP_ROOTS, NODES
from tierd.core.tiermap import parse_meminfo
from tierd.core.units import format_size
from tierd.doctor.findings import NEEDED_FOR, Ask, CannotTellError, Group, Host, probe
from tierd.doctor.sources import KDAMONDS, damon_free
from tierd.topology.sysfs import parse_list
from tierd.workloads.events import ProcessEventSocket


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
    try:
        ProcessEventSocket.open().close()
    except UnavailableError as error:
        return Availability(False, error.message, error.hint)
    return Availability(True, "the kernel answers a listener")


@probe("tiers", Group.HOST, "a second memory tier")
def second_tier(host: Host) -> Availability:
    """Whether there is anything to move between."""
    tiers = host.topology.tiers
    shown = ", ".join(f"{t.name} ({format_size(t.capacity_bytes)})" for t in tiers)
    if len(tiers) > 1:
        return Availability(True, f"{len(tiers)} tiers: {shown}")
    others = "".join(f"; node {e.memory.node} is {e.reason}" for e in host.topology.excluded)
    return Availability(
        False,
        f"all memory is one tier: {shown}{others}",
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
    for place in CGROUP_ROOTS:
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


NUMA_BALANCING: Final = "proc/sys/kernel/numa_balancing"
DEMOTION: Final = "sys/kernel/mm/numa/demotion_enabled"
INTERLEAVE: Final = "sys/kernel/mm/mempolicy/weighted_interleave"
OTHER_MOVERS: Final = ("numad", "memtierd", "damo", "numabalancer")
CGROUP_LIMIT: Final = 4096
"""Control groups looked at, at most."""


@probe("conflict.numa_balancing", Group.CONFLICTS, "kernel NUMA balancing")
def numa_balancing(host: Host) -> Availability:
    """Bit 0 balances between sockets, bit 1 promotes (admin-guide/sysctl/kernel.rst)."""
    mode = host.tree.integer(NUMA_BALANCING)
    if mode is None:
        return Availability(True, "the kernel has none")
    if mode == 0:
        return Availability(True, "off")
    hint = "echo 0 >/proc/sys/kernel/numa_balancing while tierd runs"
    if mode & 2:
        return Availability(False, f"is {mode}: the kernel promotes hot pages itself", hint)
    return Availability(
        False, f"is {mode}: the kernel moves pages towards the CPUs that use them", hint
    )


@probe("conflict.demotion", Group.CONFLICTS, "kernel demotion")
def demotion(host: Host) -> Availability:
    """Whether reclaim demotes by the kernel's own tiers."""
    value = host.tree.text(DEMOTION)
    if value is None:
        return Availability(True, "the kernel has none")
    if value.lower() not in ("true", "1"):
        return Availability(True, "off")
    return Availability(
        False,
        "reclaim demotes pages by the kernel's own tiers",
        f"echo 0 > /{DEMOTION}, or keep it as a safety net and expect some ping-pong",
    )


@probe("conflict.movers", Group.CONFLICTS, "other page movers")
def other_movers(host: Host) -> Availability:
    """Daemons that place pages as well."""
    found = [f"{name} ({pid})" for pid, name in host.processes.items() if name in OTHER_MOVERS]
    if found:
        return Availability(False, f"running: {', '.join(found)}", "stop it while tierd runs")
    return Availability(True, f"none of {', '.join(OTHER_MOVERS)} runs")


@probe("conflict.damon", Group.CONFLICTS, "other DAMON users")
def other_damon(host: Host) -> Availability:
    """Monitoring threads that run, and kernel modules that keep DAMON for themselves."""
    alone = damon_free(host)
    if not alone.ok:
        return alone
    tree = host.tree
    running = [
        f"kdamond {name} (thread {tree.text(f'{KDAMONDS}/{name}/pid') or 'unknown'})"
        for name in tree.names(KDAMONDS)
        if tree.text(f"{KDAMONDS}/{name}/state") == "on"
    ]
    if running:
        own = " (a running tierd's own, perhaps)" if "tierd" in host.processes.values() else ""
        return Availability(
            False, f"running: {', '.join(running)}{own}", "stop the other user (damo stop)"
        )
    made = tree.integer(f"{KDAMONDS}/nr_kdamonds") or 0
    threads = [str(p) for p, name in host.processes.items() if name.startswith("kdamond.")]
    if threads:
        return Availability(False, f"kdamond threads run: {', '.join(threads)}", "find their user")
    idle = f"; {made} set up by somebody, not running" if made else ""
    return Availability(True, f"no kdamond runs{idle}")


@probe("conflict.weighted_interleave", Group.CONFLICTS, "weighted interleave")
def weighted_interleave(host: Host) -> Availability:
    """Weights that somebody set (Documentation/ABI/testing/sysfs-kernel-mm-mempolicy-...)."""
    names = [n for n in host.tree.names(INTERLEAVE) if n.startswith("node")]
    if not names:
        return Availability(True, "the kernel has none")
    weights = {name: host.tree.integer(f"{INTERLEAVE}/{name}") for name in names}
    shown = ", ".join(f"{name} {weight}" for name, weight in weights.items())
    if host.tree.text(f"{INTERLEAVE}/auto") in ("true", "1", "Y"):
        return Availability(True, f"the kernel's own weights ({shown})")
    if len(set(weights.values())) <= 1:
        return Availability(True, "all weights are equal")
    return Availability(
        False,
        f"weights are set ({shown}): processes with that policy spread over the nodes on purpose",
        "exclude such processes from the targets",
    )


@probe("conflict.cpusets", Group.CONFLICTS, "cpusets")
def cpusets(host: Host) -> Availability:
    """Whether memory nodes are forbidden to this process or to control groups."""
    nodes = frozenset(host.topology.nodes)
    status = host.tree.text("proc/self/status") or ""
    own = next(
        (
            line.partition(":")[2]
            for line in status.splitlines()
            if line.startswith("Mems_allowed_list:")
        ),
        "",
    )
    if own.strip() and not nodes <= parse_list(own):
        return Availability(
            False,
            f"this process may use nodes {own.strip()} only",
            "start tierd outside of that cpuset",
        )
    limited = _limited_groups(host, nodes)
    if limited:
        return Availability(
            False,
            f"{len(limited)} control groups may not use all nodes, first {limited[0]}: "
            "their pages stay on the nodes allowed",
            "widen cpuset.mems of the targets' groups",
        )
    return Availability(True, "no cpuset keeps a node away")


def _limited_groups(host: Host, nodes: frozenset[int]) -> list[str]:
    limited: list[str] = []
    waiting = [f"sys/fs/cgroup{part}" for part in ("", "/unified", "/cpuset")]
    seen = 0
    while waiting and seen < CGROUP_LIMIT:
        folder = waiting.pop()
        if not host.tree.exists(f"{folder}/cgroup.procs"):
            continue
        seen += 1
        allowed = host.tree.numbers(f"{folder}/cpuset.mems")
        if allowed and not nodes <= allowed:
            limited.append("/" + folder)
        waiting.extend(
            f"{folder}/{name}"
            for name in host.tree.names(folder)
            if host.tree.path(f"{folder}/{name}").is_dir()
        )
    return sorted(limited)
