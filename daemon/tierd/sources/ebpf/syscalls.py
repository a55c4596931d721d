# SPDX-License-Identifier: Apache-2.0
"""bpf(2) and perf_event_open(2) as Python calls that raise `OSError`.

Sources: include/uapi/linux/bpf.h (enum bpf_cmd, union bpf_attr), include/uapi/linux/
perf_event.h (ioctls), arch/*/entry/syscalls (numbers), capability.h.

The helper imports this module under a bare system Python: the standard library only.
"""

from __future__ import annotations

import ctypes
import enum
import fcntl
import os
import platform
import struct
from typing import Final

from tierd.core.errors import UnavailableError


class Bpf(enum.IntEnum):
    """Commands of bpf(2): enum bpf_cmd."""

    MAP_CREATE = 0
    MAP_UPDATE_ELEM = 2
    MAP_DELETE_ELEM = 3
    PROG_LOAD = 5
    OBJ_GET_INFO_BY_FD = 15
    ENABLE_STATS = 32


class Event(enum.IntEnum):
    """Requests to a perf event: PERF_EVENT_IOC_*."""

    ENABLE = 0x2400
    PERIOD = 0x40082404
    SET_BPF = 0x40042408


class Kernel:
    """Other numbers of the two interfaces."""

    SYSCALLS: Final = {"x86_64": (321, 298), "aarch64": (280, 241), "riscv64": (280, 241)}
    """bpf and perf_event_open by machine."""
    STATS_RUN_TIME: Final = 0
    MAP_TYPE_ARRAY: Final = 2
    PROG_TYPE_PERF_EVENT: Final = 7
    PERF_FLAG_PID_CGROUP: Final = 4
    PERF_FLAG_FD_CLOEXEC: Final = 8


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _syscall(which: int, *arguments: object) -> int:
    numbers = Kernel.SYSCALLS.get(platform.machine())
    if numbers is None:
        raise UnavailableError(f"tierd has no system-call numbers for {platform.machine()}")
    result = int(_libc.syscall(ctypes.c_long(numbers[which]), *arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def bpf(command: int, attributes: bytes | bytearray) -> int:
    """bpf(2); `attributes` is a filled part of union bpf_attr.

    Raises:
        OSError: what the kernel answered.
    """
    buffer = ctypes.create_string_buffer(bytes(attributes), len(attributes))
    return _syscall(0, ctypes.c_long(command), buffer, ctypes.c_ulong(len(attributes)))


def perf_event_open(attributes: bytes, pid: int, cpu: int, *, cgroup: bool = False) -> int:
    """A descriptor (close-on-exec) of a perf event.

    Args:
        pid: the process, -1 for all; with `cgroup` the descriptor of a control group's folder.
        cpu: the CPU, -1 for all.
        cgroup: count what tasks of a control group do.

    Raises:
        OSError: what the kernel answered.
    """
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    flags = Kernel.PERF_FLAG_FD_CLOEXEC | (Kernel.PERF_FLAG_PID_CGROUP if cgroup else 0)
    numbers = map(ctypes.c_long, (pid, cpu, -1))  # no group leader
    return _syscall(1, buffer, *numbers, ctypes.c_ulong(flags))


def make_map() -> int:
    """A descriptor of an array map of one entry: the cheapest use of the system call."""
    return bpf(Bpf.MAP_CREATE, struct.pack("=IIII", Kernel.MAP_TYPE_ARRAY, 4, 4, 1))


def map_update_u32(fd: int, key: int, value: int) -> None:
    """Set a map's entry, both key and value of 32 bits."""
    k = ctypes.c_uint32(key)
    v = ctypes.c_uint32(value)
    bpf(
        Bpf.MAP_UPDATE_ELEM,
        struct.pack("=IxxxxQQQ", fd, ctypes.addressof(k), ctypes.addressof(v), 0),
    )


def map_delete_u32(fd: int, key: int) -> None:
    """Remove a map's entry with a key of 32 bits."""
    k = ctypes.c_uint32(key)
    bpf(Bpf.MAP_DELETE_ELEM, struct.pack("=IxxxxQQQ", fd, ctypes.addressof(k), 0, 0))


def program_runs(fd: int) -> tuple[int, int]:
    """(nanoseconds, runs) of a program while statistics were enabled.

    Source: struct bpf_prog_info; run_time_ns and run_cnt stand at 192 and 200 bytes.
    """
    info = ctypes.create_string_buffer(232)
    bpf(Bpf.OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", fd, len(info), ctypes.addressof(info)))
    spent, runs = struct.unpack_from("=QQ", info, 192)
    return int(spent), int(runs)


def enable_run_statistics() -> int:
    """A descriptor; while it is open the kernel times every BPF program."""
    return bpf(Bpf.ENABLE_STATS, struct.pack("=I", Kernel.STATS_RUN_TIME))


def load_nothing() -> int:
    """A descriptor of a loaded program that returns 0: the cheapest proof that BPF works."""
    # mov r0, 0; exit (instruction encoding: Documentation/bpf/standardization).
    code = ctypes.create_string_buffer(
        struct.pack("=BBhi", 0xB7, 0, 0, 0) + struct.pack("=BBhi", 0x95, 0, 0, 0), 16
    )
    license_text = ctypes.create_string_buffer(b"GPL")
    kind, at = Kernel.PROG_TYPE_PERF_EVENT, map(ctypes.addressof, (code, license_text))
    return bpf(Bpf.PROG_LOAD, struct.pack("=IIQQ24x16s", kind, 2, *at, b"tierd_probe"))


def event_set_program(event_fd: int, program_fd: int) -> None:
    """Let a program run on each sample of an event, once the event is enabled."""
    fcntl.ioctl(event_fd, Event.SET_BPF, program_fd)


def event_attach(event_fd: int, program_fd: int) -> None:
    """Let a program run on each sample of an event, and enable the event."""
    event_set_program(event_fd, program_fd)
    fcntl.ioctl(event_fd, Event.ENABLE, 0)


def event_period(event_fd: int, period: int) -> None:
    """Change a sampling event's period."""
    fcntl.ioctl(event_fd, Event.PERIOD, struct.pack("=Q", period))
