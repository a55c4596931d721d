# SPDX-License-Identifier: Apache-2.0
"""What this host can do: each ability is tried by itself, none concluded from another."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tierd.core.access import Availability
from tierd.core.capabilities import NUMBERS
from tierd.core.errors import UnavailableError
from tierd.sources.ebpf import host, loader, syscalls
from tierd.sources.ebpf.perf import EventAttr

PARANOID: Final = Path("/proc/sys/kernel/perf_event_paranoid")
_CAPABILITIES: Final = "run tierd as root, or with CAP_BPF and CAP_PERFMON"
_PARANOID: Final = (
    "kernel.perf_event_paranoid above 2, a patch of Debian's and Ubuntu's kernels, asks for "
    "CAP_SYS_ADMIN whatever else there is: sysctl kernel.perf_event_paranoid=2, or that capability"
)


def bpf_works() -> Availability:
    """Whether a program can be loaded."""
    try:
        os.close(syscalls.load_nothing())
    except UnavailableError as error:
        return Availability(False, error.message)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            missing = [
                name
                for name, number in (
                    ("CAP_BPF", NUMBERS["CAP_BPF"]),
                    ("CAP_PERFMON", NUMBERS["CAP_PERFMON"]),
                )
                if not syscalls.has_capability(number)
            ]
            if missing and not syscalls.has_capability(NUMBERS["CAP_SYS_ADMIN"]):
                return Availability(
                    False, f"BPF programs need {' and '.join(missing)}", _CAPABILITIES
                )
            return Availability(
                False,
                "the kernel refuses BPF programs to this process, though it has the "
                "capabilities: a seccomp filter, a container or kernel lockdown",
                "see /sys/kernel/security/lockdown and the container's seccomp profile",
            )
        if error.errno == errno.ENOSYS:
            return Availability(False, "this kernel has no BPF (CONFIG_BPF_SYSCALL)")
        return Availability(False, f"the kernel refused a BPF program: {error.strerror}")
    return Availability(True, "BPF programs can be loaded")


def event_works(event: EventAttr) -> Availability:
    """Whether an event can be opened for a whole CPU, and a program attached."""
    online = host.online_cpus()
    try:
        event_fd = syscalls.perf_event_open(event.encode(), -1, online[0] if online else 0)
    except OSError as error:
        return Availability(False, *explain_open(error))
    try:
        program = syscalls.load_nothing()
        try:
            # Attached and never enabled: no sample is taken.
            syscalls.event_set_program(event_fd, program)
        finally:
            os.close(program)
    except OSError as error:
        return Availability(
            False, f"the kernel does not run BPF programs on this event: {error.strerror}"
        )
    finally:
        os.close(event_fd)
    return Availability(True, "the event can be sampled")


def explain_open(error: OSError) -> tuple[str, str]:
    """(reason, hint) of a refused perf_event_open(2); see its manual page, ERRORS."""
    if error.errno in (errno.EPERM, errno.EACCES):
        try:
            level = PARANOID.read_text().strip()
        except OSError:
            level = "unknown"
        capable = syscalls.has_capability(NUMBERS["CAP_PERFMON"])
        state = "there" if capable else "missing"
        return (
            f"perf events of a whole CPU are refused (kernel.perf_event_paranoid is {level}, "
            f"CAP_PERFMON is {state})",
            _PARANOID if capable and level.isdecimal() and int(level) > 2 else _CAPABILITIES,
        )
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return ("this CPU or kernel does not have the event", "")
    if error.errno == errno.EBUSY:
        return ("another program has the PMU for itself", "stop perf or the other profiler")
    if error.errno == errno.EMFILE:
        return ("too many open files", "raise LimitNOFILE of the unit")
    return (f"the kernel refused the event: {error.strerror}", "")


def sampling(program: str, event: EventAttr, wanted: Sequence[str]) -> Availability:
    """Whether `program` can be loaded and run on `event` here."""
    works = bpf_works()
    if not works.ok:
        return works
    works = event_works(event)
    if not works.ok:
        return works
    usable, reasons = loader.ways(program, wanted)
    if not usable:
        told = "; ".join(f"{way}: {reason}" for way, reason in reasons.items())
        return Availability(
            False,
            f"the program {program} cannot be loaded: {told}",
            "install python3-bpfcc and the kernel's headers, or build the objects",
        )
    return Availability(True, f"{program} program by {usable[0]}")
