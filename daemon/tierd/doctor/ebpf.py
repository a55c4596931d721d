# SPDX-License-Identifier: Apache-2.0
"""Probes: what eBPF and the PMU can do here, each part by itself and the sources as a whole.

A probe may load an empty program, or open an event that is never enabled, and closes it.
"""

from __future__ import annotations

import ctypes.util
import os
import sys
from pathlib import Path
from typing import Final

from tierd.core.access import Availability
from tierd.doctor.findings import CannotTellError, Group, probe
from tierd.doctor.host import Host
from tierd.sources.ebpf import files, syscalls
from tierd.sources.ebpf.perf import EventAttr, Layout, Sample, Type

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
