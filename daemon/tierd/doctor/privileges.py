# SPDX-License-Identifier: Apache-2.0
"""Probes: capabilities, perf's limit, process events."""

from __future__ import annotations

import contextlib
from typing import Final

from tierd.core.access import Availability
from tierd.doctor.findings import Ask, CannotTellError, Group, probe
from tierd.doctor.host import Host

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
