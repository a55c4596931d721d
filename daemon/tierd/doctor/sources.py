# SPDX-License-Identifier: Apache-2.0
"""Probes: who could see accesses (DAMON, BPF, PMU, kernel module, NeoProf).

Owns: the questions of the group "Seeing accesses".
Must not touch: DAMON's settings: what is compiled in is learned from files that can be
read, because `avail_operations` exists only once somebody has made a context.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Final

from tierd.access import Availability
from tierd.doctor import syscalls
from tierd.doctor.findings import CannotTellError, Group, probe
from tierd.doctor.host import Host

KDAMONDS: Final = "sys/kernel/mm/damon/admin/kdamonds"
DAMON_MODULES: Final = ("damon_reclaim", "damon_lru_sort", "damon_stat")
"""Kernel modules that start DAMON exclusively (damon_start(), mm/damon/core.c)."""
PMUS: Final = "sys/bus/event_source/devices"
DISTRIBUTION_BCC: Final = "usr/lib/python3/dist-packages/bcc"
"""Where Debian and Ubuntu put python3-bpfcc."""
NEOPROF_CLASS: Final = "sys/class/neoprof"
"""Devices that the driver of a NeoProf card has made."""


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


@probe("bpf.syscall", Group.SOURCES, "BPF programs")
def bpf_syscall(host: Host) -> Availability:
    """Whether the bpf system call lets this process make a map."""
    _live(host)
    try:
        syscalls.make_bpf_map()
    except OSError as error:
        return Availability(
            False, f"the bpf system call says {error.strerror}", "run as root or with CAP_BPF"
        )
    return Availability(True, "made a map and closed it")


@probe("bpf.btf", Group.SOURCES, "the kernel's types (BTF)")
def bpf_btf(host: Host) -> Availability:
    """Whether types of the running kernel are at hand."""
    ok = host.tree.exists("sys/kernel/btf/vmlinux")
    hint = "" if ok else "use a kernel with CONFIG_DEBUG_INFO_BTF"
    return Availability(ok, f"/sys/kernel/btf/vmlinux is {'' if ok else 'not '}there", hint)


@probe("bpf.bcc", Group.SOURCES, "bcc, which compiles the programs")
def bpf_bcc(host: Host) -> Availability:
    """Whether this interpreter can import bcc (asked without importing its LLVM)."""
    spec = importlib.util.find_spec("bcc") if host.live else None
    places = (spec.submodule_search_locations or []) if spec else []
    if any((Path(place) / "table.py").exists() for place in places):
        return Availability(True, f"this Python finds it in {next(iter(places))}")
    if spec is not None:
        # The name is taken on PyPI by a package that has nothing to do with BPF.
        return Availability(
            False, f"the module bcc in {spec.origin} is another package", "pip uninstall bcc"
        )
    if host.tree.exists(DISTRIBUTION_BCC):
        return Availability(
            False,
            f"/{DISTRIBUTION_BCC} is there, but this Python does not look there",
            "make the environment from /usr/bin/python3 with --system-site-packages",
        )
    return Availability(False, "there is no module bcc", "apt install python3-bpfcc")


@probe("bpf.headers", Group.SOURCES, "kernel headers for bcc and the module")
def bpf_headers(host: Host) -> Availability:
    """Whether bcc can compile: BTF does not replace the headers."""
    build = f"lib/modules/{host.release}/build"
    if host.release and host.tree.exists(f"{build}/Makefile"):
        return Availability(True, f"/{build}")
    if host.tree.exists("sys/kernel/kheaders.tar.xz"):
        return Availability(True, "/sys/kernel/kheaders.tar.xz (enough for bcc)")
    return Availability(
        False,
        f"neither /{build} nor /sys/kernel/kheaders.tar.xz is there",
        f"apt install linux-headers-{host.release or '$(uname -r)'}, or modprobe kheaders",
    )


@probe("pmu.address", Group.SOURCES, "PMU samples with data addresses")
def pmu_address(host: Host) -> Availability:
    """Which hardware event tells the address of a sampled load or store."""
    devices = host.tree.names(PMUS)
    if "ibs_op" in devices:
        return Availability(True, "AMD IBS: event ibs_op")
    for core in ("cpu", "cpu_core"):
        if host.tree.exists(f"{PMUS}/{core}/events/mem-loads"):
            precise = host.tree.text(f"{PMUS}/{core}/caps/max_precise") or "?"
            return Availability(
                True, f"Intel PEBS: event {core}/mem-loads (MEM_* retired), max_precise {precise}"
            )
    if any(name.startswith("arm_spe") for name in devices):
        return Availability(True, "Arm SPE: event arm_spe")
    if "cpu" in devices or "cpu_core" in devices:
        return Availability(
            False,
            "this CPU's PMU has no event with data addresses",
            "DAMON or the kernel module can watch instead",
        )
    return Availability(
        False,
        f"no hardware PMU (have {', '.join(devices) or 'none'}): a virtual machine, most likely",
        "give the guest a virtual PMU with PEBS or IBS, or use DAMON or the module",
    )


@probe("pmu.event", Group.SOURCES, "PMU event that tierd would sample")
def pmu_event(host: Host) -> Availability:
    """The event of the tables in ebpf/events for the CPU at hand, as configured by default."""
    from tierd.sources.pmu import would_use

    return would_use(cpuinfo=host.root / "proc/cpuinfo", pmus=host.root / PMUS)


@probe("bpf.sampling", Group.SOURCES, "eBPF program on the page-fault event")
def bpf_sampling(host: Host) -> Availability:
    """Whether and how tierd's own programs can be loaded."""
    _live(host)
    from tierd.ebpf import probe as ebpf
    from tierd.ebpf.loader import WAYS
    from tierd.sources.faults import fault_event

    return ebpf.sampling("faults", fault_event(), WAYS)


@probe("perf.fault_address", Group.SOURCES, "page-fault event with addresses")
def perf_fault_address(host: Host) -> Availability:
    """Whether the software event that stands in for a PMU can be opened on a whole CPU."""
    _live(host)
    cpu = min(os.sched_getaffinity(0))
    try:
        syscalls.open_fault_event(cpu)
    except OSError as error:
        return Availability(
            False,
            f"perf_event_open says {error.strerror}",
            "run with CAP_PERFMON, or lower kernel.perf_event_paranoid to 0",
        )
    return Availability(True, "opened it on one CPU and closed it")


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
    cards = host.tree.names(NEOPROF_CLASS)
    if cards:
        told = [_card(host, f"{NEOPROF_CLASS}/{name}", name) for name in cards]
        working = any(works for works, _ in told)
        hint = "" if working else "reset it (docs/neoprof-driver.md), or look at its device"
        return Availability(working, "; ".join(text for _, text in told), hint)
    if not host.tree.exists("sys/module/tierd"):
        return Availability(False, "its driver, tierd.ko, is not loaded")
    return Availability(False, f"the driver has found none (/{NEOPROF_CLASS} is empty)")


def _card(host: Host, folder: str, name: str) -> tuple[bool, str]:
    """Whether a card works, and what there is to say of it."""
    words = [host.tree.text(f"{folder}/{file}") or "" for file in ("backend", "state", "why")]
    said = ", ".join(word.strip() for word in words if word.strip())
    return words[1].strip() != "failed", f"{name} ({said})" if said else name


def _live(host: Host) -> None:
    """Raise unless system calls tell something about `host`."""
    if not host.live:
        raise CannotTellError("not tried on a captured tree")
