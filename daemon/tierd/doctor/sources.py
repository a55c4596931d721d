# SPDX-License-Identifier: Apache-2.0
"""Probes: who could see accesses (DAMON, kernel module, NeoProf; eBPF has its own file).

What DAMON can do is learned from files that can be read: `avail_operations` exists only once
somebody has made a context.
"""

from __future__ import annotations

from typing import Final

from tierd.core.access import Availability
from tierd.doctor.findings import CannotTellError, Group, probe
from tierd.doctor.host import Host
from tierd.sources.hmu_devices import CLASS

KDAMONDS: Final = "sys/kernel/mm/damon/admin/kdamonds"
DAMON_MODULES: Final = ("damon_reclaim", "damon_lru_sort", "damon_stat")
"""Kernel modules that start DAMON exclusively (damon_start(), mm/damon/core.c)."""


@probe("damon.sysfs", Group.SOURCES, "DAMON's control files")
def damon_sysfs(host: Host) -> Availability:
    """Whether DAMON can be steered (Documentation/admin-guide/mm/damon/usage.rst)."""
    if not host.tree.exists(KDAMONDS):
        return Availability(
            False,
            f"there is no /{KDAMONDS}",
            "use a kernel with CONFIG_DAMON_SYSFS (Debian 12 backports, Debian 13 have it)",
        )
    if host.live and not host.writable(f"{KDAMONDS}/nr_kdamonds"):
        return Availability(
            False, f"/{KDAMONDS} may not be written by this user", "run as root: the files are its"
        )
    return Availability(True, f"/{KDAMONDS}")


@probe("damon.vaddr", Group.SOURCES, "DAMON on virtual addresses")
def damon_vaddr(host: Host) -> Availability:
    """Whether processes can be watched."""
    return _operations(host, "vaddr", "CONFIG_DAMON_VADDR", "damon_va_check_accesses")


@probe("damon.paddr", Group.SOURCES, "DAMON on physical addresses")
def damon_paddr(host: Host) -> Availability:
    """Whether physical memory can be watched."""
    return _operations(host, "paddr", "CONFIG_DAMON_PADDR", "damon_pa_check_accesses")


def _operations(host: Host, name: str, option: str, symbol: str) -> Availability:
    hint = f"use a kernel with {option}"
    for kdamond in host.tree.names(KDAMONDS):
        shown = host.tree.text(f"{KDAMONDS}/{kdamond}/contexts/0/avail_operations")
        if shown is not None:
            have = ", ".join(shown.split())
            ok = name in shown.split()
            return Availability(ok, f"the kernel offers {have}", "" if ok else hint)
    if host.kernel_config is not None:
        ok = host.kernel_config.get(option) == "y"
        return Availability(ok, f"{option} is {'' if ok else 'not '}set", "" if ok else hint)
    if host.symbols:
        ok = f" {symbol}\n" in host.symbols or f" {symbol}\t" in host.symbols
        where = f"{symbol} is {'' if ok else 'not '}in /proc/kallsyms"
        return Availability(ok, where, "" if ok else hint)
    raise CannotTellError("neither the kernel's configuration nor /proc/kallsyms can be read")


@probe("damon.free", Group.SOURCES, "DAMON is not taken")
def damon_free(host: Host) -> Availability:
    """Whether a kernel module keeps DAMON for itself."""
    for module in DAMON_MODULES:
        path = f"sys/module/{module}/parameters/enabled"
        if (host.tree.text(path) or "N") in ("Y", "1"):
            return Availability(
                False,
                f"{module} is on: while it runs, starting DAMON fails with -EBUSY",
                f"echo N > /{path}",
            )
    return Availability(True, f"none of {', '.join(DAMON_MODULES)} is on")


@probe("damon.tracepoint", Group.SOURCES, "tracepoint damon:damon_aggregated")
def damon_tracepoint(host: Host) -> Availability:
    """Whether DAMON's raw results can be read in one stream."""
    place, problem = host.tracefs()
    if not place:
        return Availability(
            False, f"tracefs: {problem}", "mount -t tracefs tracefs /sys/kernel/tracing (as root)"
        )
    ok = host.tree.exists(f"{place}/events/damon/damon_aggregated")
    where = f"/{place}/events/damon"
    return Availability(ok, where if ok else f"there is no {where}/damon_aggregated")


@probe("module.loaded", Group.SOURCES, "the kernel module tierd.ko")
def module_loaded(host: Host) -> Availability:
    """Whether the module is loaded, or could be."""
    if host.tree.exists("sys/module/tierd"):
        version = host.tree.text("sys/module/tierd/version") or "unknown"
        return Availability(True, f"loaded, version {version}")
    folder = f"lib/modules/{host.release}"
    listed = host.tree.text(f"{folder}/modules.dep") or ""
    if any("/tierd.ko" in line.partition(":")[0] for line in listed.splitlines()):
        return Availability(False, f"installed in /{folder}, not loaded", "modprobe tierd")
    return Availability(
        False,
        "neither loaded nor installed for this kernel",
        "optional: build kmod/ against the kernel's headers and install it",
    )


@probe("neoprof.card", Group.SOURCES, "a NeoProf card")
def neoprof_card(host: Host) -> Availability:
    """Whether the driver has found a card."""
    cards = host.tree.names(CLASS)
    if cards:
        told = [_card(host, f"{CLASS}/{name}", name) for name in cards]
        working = any(works for works, _ in told)
        hint = "" if working else "reset it (docs/neoprof-driver.md), or look at its device"
        return Availability(working, "; ".join(text for _, text in told), hint)
    if not host.tree.exists("sys/module/tierd"):
        return Availability(False, "its driver, tierd.ko, is not loaded")
    return Availability(False, f"the driver has found none (/{CLASS} is empty)")


def _card(host: Host, folder: str, name: str) -> tuple[bool, str]:
    """Whether a card works, and what there is to say of it."""
    words = [host.tree.text(f"{folder}/{file}") or "" for file in ("backend", "state", "why")]
    said = ", ".join(word.strip() for word in words if word.strip())
    return words[1].strip() != "failed", f"{name} ({said})" if said else name
