# SPDX-License-Identifier: Apache-2.0
"""What the kernel shows of this host (CPUs, PMUs, tracepoints), and what it lets tierd do.

Each ability is tried by itself, none is concluded from another.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd.core.access import Availability
from tierd.core.errors import UnavailableError
from tierd.core.process import NUMBERS, has_capability
from tierd.sources.ebpf import loader, syscalls
from tierd.sources.ebpf.perf import EventAttr
from tierd.topology.sysfs import parse_list

CPU_FOLDER: Final = Path("/sys/devices/system/cpu")
PMU_FOLDER: Final = Path("/sys/bus/event_source/devices")
CPUINFO: Final = Path("/proc/cpuinfo")
ROOTS: Final = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
PARANOID: Final = Path("/proc/sys/kernel/perf_event_paranoid")
_CAPABILITIES: Final = "run tierd as root, or with CAP_BPF and CAP_PERFMON"
_PARANOID: Final = (
    "kernel.perf_event_paranoid above 2, a patch of Debian's and Ubuntu's kernels, asks for "
    "CAP_SYS_ADMIN whatever else there is: sysctl kernel.perf_event_paranoid=2, or that capability"
)
_FIELD: Final = re.compile(r"field:[^;]*?(\w+)(?:\[\d*\])?;\s*offset:(\d+);\s*size:(\d+);")
_PAIR: Final = re.compile(r'\{\s*(\d+),\s*"([^"]*)"\s*\}')


def online_cpus(folder: Path = CPU_FOLDER) -> list[int]:
    """CPUs that run now."""
    try:
        return sorted(parse_list((folder / "online").read_text()))
    except (OSError, ValueError):
        return list(range(os.cpu_count() or 1))


def running_cpus(folder: Path = CPU_FOLDER) -> dict[int, int]:
    """CPUs that run now, with a number that is another one when a CPU went and came back.

    The kernel makes a CPU's topology folder anew then; without the folder it is zero.
    """
    marks = {}
    for cpu in online_cpus(folder):
        try:
            marks[cpu] = (folder / f"cpu{cpu}" / "topology").stat().st_ino
        except OSError:
            marks[cpu] = 0
    return marks


def possible_cpus(folder: Path = CPU_FOLDER) -> int:
    """One more than the highest number that a CPU can ever have here."""
    try:
        return max(parse_list((folder / "possible").read_text())) + 1
    except (OSError, ValueError):
        return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Cpu:
    """A CPU as /proc/cpuinfo tells of it."""

    vendor: str
    family: int
    model: int
    name: str = ""


def read_cpu(file: Path = CPUINFO) -> Cpu:
    """This host's CPU. Raises UnavailableError: /proc/cpuinfo does not say (not an x86)."""
    fields: dict[str, str] = {}
    try:
        for line in file.read_text(errors="replace").splitlines():
            name, colon, value = line.partition(":")
            if not colon:
                if fields:
                    break
                continue
            fields[name.strip()] = value.strip()
        return Cpu(
            fields["vendor_id"],
            int(fields["cpu family"]),
            int(fields["model"]),
            fields.get("model name", ""),
        )
    except (OSError, KeyError, ValueError) as error:
        raise UnavailableError(
            "/proc/cpuinfo tells no vendor, family and model: there are event tables for "
            "Intel and AMD only"
        ) from error


@dataclass(frozen=True, slots=True)
class Pmu:
    """A PMU of this host: its number and its folder in sysfs."""

    type: int
    folder: Path

    def has_format(self, name: str) -> bool:
        """Whether the kernel takes a format field of this name."""
        return (self.folder / "format" / name).exists()


def find_pmu(name: str, root: Path = PMU_FOLDER) -> Pmu:
    """A PMU by name. Raises UnavailableError: the kernel has no such PMU."""
    try:
        return Pmu(int((root / name / "type").read_text()), root / name)
    except (OSError, ValueError) as error:
        found = ", ".join(sorted(p.name for p in root.glob("*"))) if root.is_dir() else "none"
        raise UnavailableError(
            f"the kernel shows no PMU {name} (it has: {found})",
            hint="a virtual machine needs a virtual PMU with PEBS or IBS; most have none",
        ) from error


@dataclass(frozen=True, slots=True)
class Tracepoint:
    """One tracepoint.

    Attributes:
        id: its number, the `config` of a perf event.
        fields: (offset, size) in bytes by name.
    """

    id: int
    fields: dict[str, tuple[int, int]]
    format: str

    def symbols(self, field: str) -> dict[int, str]:
        """The names of a field's values, as `__print_symbolic` has them."""
        start = self.format.find(f"__print_symbolic(REC->{field},")
        if start < 0:
            return {}
        end = self.format.find(")", start)
        return {int(n): text for n, text in _PAIR.findall(self.format[start:end])}


def parse_format(text: str) -> Tracepoint:
    """A tracepoint from the text of its `format` file."""
    found = re.search(r"^ID:\s*(\d+)", text, re.MULTILINE)
    fields = {name: (int(offset), int(size)) for name, offset, size in _FIELD.findall(text)}
    _, _, print_format = text.partition("print fmt:")
    return Tracepoint(int(found[1]) if found else -1, fields, print_format)


def find_tracepoint(name: str) -> Tracepoint:
    """The tracepoint `subsystem:event`.

    Raises:
        UnavailableError: tracefs is not mounted or not readable, or has no such event.
    """
    place = name.replace(":", "/")
    for root in ROOTS:
        try:
            return parse_format((root / "events" / place / "format").read_text())
        except FileNotFoundError:
            continue
        except PermissionError as error:
            raise UnavailableError(
                f"tracefs ({root}) cannot be read", hint="run tierd as root"
            ) from error
    if not any((root / "events").is_dir() for root in ROOTS):
        raise UnavailableError(
            "tracefs is not mounted", hint="mount -t tracefs tracefs /sys/kernel/tracing"
        )
    raise UnavailableError(f"this kernel has no tracepoint {name}")


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
                if not has_capability(number)
            ]
            if missing and not has_capability(NUMBERS["CAP_SYS_ADMIN"]):
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
    online = online_cpus()
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
        capable = has_capability(NUMBERS["CAP_PERFMON"])
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
