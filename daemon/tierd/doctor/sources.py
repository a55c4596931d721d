# SPDX-License-Identifier: Apache-2.0
"""Probes: who could see accesses: DAMON, kernel module, NeoProf, eBPF and the PMU.

What DAMON can do is learned from files that can be read: `avail_operations` exists only once
somebody has made a context. A probe of eBPF may load an empty program, or open an event that
is never enabled, and closes it.
"""

from __future__ import annotations

import ctypes.util
import os
import sys
from pathlib import Path
from typing import Final

from tierd.core.access import Availability
from tierd.doctor.findings import CannotTellError, Group, Host, probe
from tierd.sources.ebpf import files, syscalls
from tierd.sources.ebpf.perf import EventAttr, Layout, Sample, Type
from tierd.sources.hmu_devices import CLASS
from tierd.sources.idlepage import host as idlepage

KDAMONDS: Final = "sys/kernel/mm/damon/admin/kdamonds"
ABILITIES: Final = {
    "can_flush": "it cannot flush the TLB here (from kernel 6.19 on that needs INVPCID): no "
    "sampling interval, no dirty bits",
    "mark_young": "it does not tell reclaim which pages were accessed (switched off, or a kernel "
    "without CONFIG_PAGE_IDLE_FLAG): to reclaim and DAMON they look less used than they are",
}
"""Parameters of the module that are N where it cannot do something, and what that is."""
HISTORY_FULL: Final = "sys/module/tierd/parameters/history_full"
KVM: Final = "anon_inode:kvm-vm"
"""What a descriptor of a virtual machine is a link to."""
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
    if host.live and (why := host.write_refusal(f"{KDAMONDS}/nr_kdamonds")):
        return Availability(False, why, "run as root, outside of profiles that forbid it")
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
    if not ok:
        return Availability(False, f"there is no {where}/damon_aggregated")
    if host.live and (why := _instance_refusal(host, place)):
        return Availability(False, why, "run as root, outside of profiles and lockdown")
    return Availability(True, where)


def _instance_refusal(host: Host, place: str) -> str:
    """Why no trace instance of one's own can be made and read; "" if one can, which is removed."""
    instance = host.tree.path(f"{place}/instances/tierd-doctor")
    try:
        instance.mkdir()
        try:
            event = instance / "events/damon/damon_aggregated/enable"
            for file, flags in ((event, os.O_WRONLY), (instance / "trace_pipe", os.O_RDONLY)):
                os.close(os.open(file, flags | os.O_CLOEXEC | os.O_NONBLOCK))
        finally:
            instance.rmdir()
    except OSError as error:
        return f"no trace instance can be made below /{place}: {host.who_refuses(error)}"
    return ""


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


@probe("module.abilities", Group.SOURCES, "what tierd.ko can do on this machine")
def module_abilities(host: Host) -> Availability:
    """Whether all that the module can do works with this kernel and CPU."""
    if not host.tree.exists("sys/module/tierd"):
        return Availability(False, "tierd.ko is not loaded")
    lacks = [
        text
        for name, text in ABILITIES.items()
        if host.tree.text(f"sys/module/tierd/parameters/{name}") == "N"
    ]
    if (host.tree.text(HISTORY_FULL) or "0") != "0":
        lacks.append(
            "it does not look at all pages: raise its parameter history_bytes, or set it to 0"
        )
    if lacks:
        return Availability(False, "; ".join(lacks), "see docs/reference/kmod.md")
    return Availability(True, "all")


@probe("idlepage.kernel", Group.SOURCES, "idle page tracking in the kernel")
def idlepage_kernel(host: Host) -> Availability:
    """Whether accessed bits can be seen page by page without the module."""
    if host.tree.exists(idlepage.BITMAP):
        return Availability(True, f"/{idlepage.BITMAP}")
    return Availability(False, idlepage.NOT_BUILT, idlepage.NOT_BUILT_HINT)


@probe("idlepage.files", Group.SOURCES, "its files, for this process", live=True)
def idlepage_files(host: Host) -> Availability:
    """Whether this process may mark pages, and is told their frames."""
    return idlepage.availability(host.root)


@probe("scan.guests", Group.SOURCES, "processes whose accesses accessed bits do not show")
def scan_guests(host: Host) -> Availability:
    """Whether virtual machines run: KVM's guests have page tables of their own."""
    found = [pid for pid in host.processes if _runs_guest(host, pid)]
    if not found:
        return Availability(True, "no virtual machine's process is in sight")
    return Availability(
        False,
        f"{len(found)} run virtual machines (process {found[0]}): scan leaves their pages alone",
        "another source (idlepage, pmu, damon) sees them",
    )


def _runs_guest(host: Host, pid: int) -> bool:
    folder = host.root / f"proc/{pid}/fd"
    try:
        return any(str(each.readlink()) == KVM for each in folder.iterdir())
    except OSError:
        return False


@probe("neoprof.card", Group.SOURCES, "a NeoProf card")
def neoprof_card(host: Host) -> Availability:
    """Whether the driver has found a card."""
    cards = host.tree.names(CLASS)
    if cards:
        told = [_card(host, f"{CLASS}/{name}", name) for name in cards]
        working = any(works for works, _ in told)
        hint = "" if working else "reset it (docs/hardware/driver.md), or look at its device"
        return Availability(working, "; ".join(text for _, text in told), hint)
    if not host.tree.exists("sys/module/tierd_neoprof"):
        return Availability(False, "its driver is not loaded", "modprobe tierd_neoprof")
    return Availability(False, f"the driver has found none (/{CLASS} is empty)")


def _card(host: Host, folder: str, name: str) -> tuple[bool, str]:
    """Whether a card works, and what there is to say of it."""
    words = [host.tree.text(f"{folder}/{file}") or "" for file in ("backend", "state", "why")]
    said = ", ".join(word.strip() for word in words if word.strip())
    return words[1].strip() != "failed", f"{name} ({said})" if said else name


PMUS: Final = "sys/bus/event_source/devices"
DISTRIBUTION_BCC: Final = "usr/lib/python3/dist-packages/bcc"
"""Where Debian and Ubuntu put python3-bpfcc."""
PROGRAMS: Final = ("pmu", "faults", "migrations")


@probe("bpf.syscall", Group.SOURCES, "BPF programs", live=True)
def bpf_syscall(host: Host) -> Availability:
    """Whether the bpf system call lets this process make a map."""
    try:
        os.close(syscalls.make_map())
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
    """Whether the helper finds a Python with bcc (asked without importing its LLVM)."""
    if not host.live:
        if host.tree.exists(DISTRIBUTION_BCC):
            return Availability(True, f"/{DISTRIBUTION_BCC}")
        raise CannotTellError("a captured tree has no Python that could be asked")
    python = files.find_bcc_python()
    if python is None:
        return Availability(
            False,
            "neither this Python nor the distribution's has BPF's module bcc",
            "apt install python3-bpfcc (PyPI's bcc is another package)",
        )
    own = python == Path(sys.executable)
    return Availability(True, "this Python has it" if own else f"the helper runs {python}")


@probe("bpf.headers", Group.SOURCES, "kernel headers for bcc")
def bpf_headers(host: Host) -> Availability:
    """Whether bcc can compile: BTF does not replace the headers; another kernel's do."""
    found = files.find_headers(host.root, host.release) if host.release else None
    if found is None:
        return Availability(
            False,
            f"neither /lib/modules/{host.release}/build nor /sys/kernel/kheaders.tar.xz is there, "
            "nor another kernel's headers in /usr/src",
            f"apt install linux-headers-{host.release or '$(uname -r)'}, or modprobe kheaders",
        )
    if found.native:
        return Availability(True, f"the running kernel's ({found.release})")
    return Availability(
        True,
        f"those of {found.release}, in /usr/src: enough for tierd's programs, which use only what "
        "the kernel promises to keep; not for the module",
    )


@probe("bpf.prebuilt", Group.SOURCES, "compiled programs, where bcc is not", live=True)
def bpf_prebuilt(host: Host) -> Availability:
    """Whether libbpf could load objects in bcc's place."""
    missing = [name for name in PROGRAMS if files.find_object(name) is None]
    if missing:
        return Availability(
            False, f"no object of {', '.join(missing)}", "make -C ebpf (it needs clang)"
        )
    if ctypes.util.find_library("bpf") is None:
        return Availability(False, "the objects are there, libbpf is not", "apt install libbpf1")
    return Availability(True, f"objects of {', '.join(PROGRAMS)}, and libbpf")


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


@probe("perf.fault_address", Group.SOURCES, "page-fault event with addresses", live=True)
def perf_fault_address(host: Host) -> Availability:
    """Whether the software event that stands in for a PMU can be opened on a whole CPU."""
    event = EventAttr(Type.SOFTWARE, Layout.PAGE_FAULTS, 1, Sample.ADDR)
    try:
        os.close(syscalls.perf_event_open(event.encode(), -1, min(os.sched_getaffinity(0))))
    except OSError as error:
        return Availability(
            False,
            f"perf_event_open says {error.strerror}",
            "run with CAP_PERFMON, or lower kernel.perf_event_paranoid to 0",
        )
    return Availability(True, "opened it on one CPU and closed it")


@probe("bpf.sampling", Group.SOURCES, "page faults as a source", live=True)
def bpf_sampling(host: Host) -> Availability:
    """What the source itself says: the event, BPF on it, and a way to load the program."""
    from tierd.sources.faults import FaultSource

    return FaultSource().available()


@probe("bpf.pmu", Group.SOURCES, "PMU samples as a source", live=True)
def bpf_pmu(host: Host) -> Availability:
    """What the source itself says: an event for this CPU, BPF on it, and a way to load."""
    from tierd.sources.pmu import PmuSource

    return PmuSource().available()


@probe("bpf.migrations", Group.SOURCES, "watching what others migrate", live=True)
def bpf_migrations(host: Host) -> Availability:
    """What the watch itself says: the tracepoint, and a way to load the program."""
    from tierd.sources.migrations import MigrationWatch

    return MigrationWatch().available()
