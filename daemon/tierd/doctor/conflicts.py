# SPDX-License-Identifier: Apache-2.0
"""Probes: who else moves pages or uses what tierd uses; ok means that there is no conflict."""

from __future__ import annotations

from typing import Final

from tierd.core.access import Availability
from tierd.doctor.findings import Group, probe
from tierd.doctor.host import Host
from tierd.doctor.sources import KDAMONDS, damon_free
from tierd.topology.sysfs import parse_list

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
    hint = "sysctl kernel.numa_balancing=0 while tierd runs"
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
