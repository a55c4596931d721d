# SPDX-License-Identifier: Apache-2.0
"""The system calls that probes try, each on this process's own memory only.

All functions return a result or raise OSError with the kernel's errno.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import platform
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tierd.doctor.findings import CannotTellError

NUMBERS: Final = {
    "x86_64": {"move_pages": 279, "perf_event_open": 298, "bpf": 321, "process_madvise": 440},
    "aarch64": {"move_pages": 239, "perf_event_open": 241, "bpf": 280, "process_madvise": 440},
}
MPOL_MF_MOVE: Final = 2
MADV_COLD: Final = 20
BPF_MAP_CREATE: Final = 0
BPF_MAP_TYPE_ARRAY: Final = 2
PERF_TYPE_SOFTWARE: Final = 1
PERF_COUNT_SW_PAGE_FAULTS: Final = 2
PERF_SAMPLE_ADDR: Final = 1 << 3
PERF_FLAG_FD_CLOEXEC: Final = 8
PM_SCAN_ARG_BYTES: Final = 96
PAGEMAP_SCAN: Final = 3 << 30 | PM_SCAN_ARG_BYTES << 16 | ord("f") << 8 | 16
"""_IOWR('f', 16, struct pm_scan_arg), include/uapi/linux/fs.h, Linux 6.7 and later."""
PAGE_IS_PRESENT: Final = 1 << 3


def call(name: str, *args: int | ctypes.Array[ctypes.c_char] | None) -> int:
    """One system call by name; arguments are numbers or buffers.

    Raises:
        OSError: the kernel refused.
        CannotTellError: its number on this architecture is not known here.
    """
    try:
        number = NUMBERS[platform.machine()][name]
    except KeyError:
        raise CannotTellError(f"no number of {name} for {platform.machine()} is known") from None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    converted = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result = int(libc.syscall(ctypes.c_long(number), *converted))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


@contextlib.contextmanager
def touched_page() -> Iterator[int]:
    """The address of one page of anonymous memory that is present."""
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[0] = 1
        view = ctypes.c_char.from_buffer(memory)
        try:
            yield ctypes.addressof(view)
        finally:
            del view


def page_to(address: int, node: int | None) -> int:
    """Move one own page to `node` (None only asks); the node it is on then, or -errno."""
    pages = ctypes.create_string_buffer(struct.pack("P", address), 8)
    status = ctypes.create_string_buffer(struct.pack("i", -255), 4)
    nodes = None if node is None else ctypes.create_string_buffer(struct.pack("i", node), 4)
    call("move_pages", 0, 1, pages, nodes, status, MPOL_MF_MOVE if nodes else 0)
    return int(struct.unpack("i", status.raw)[0])


def scan_own_page(address: int) -> int:
    """How many ranges PAGEMAP_SCAN finds present in the page at `address`."""
    regions = ctypes.create_string_buffer(24)
    argument = bytearray(
        struct.pack(
            "=12Q",
            PM_SCAN_ARG_BYTES,
            0,  # flags
            address,
            address + mmap.PAGESIZE,
            0,  # walk_end, filled in
            ctypes.addressof(regions),
            1,  # vec_len
            0,  # max_pages: no limit
            0,  # category_inverted
            PAGE_IS_PRESENT,  # category_mask
            0,  # category_anyof_mask
            PAGE_IS_PRESENT,  # return_mask
        )
    )
    with Path("/proc/self/pagemap").open("rb") as pagemap:
        return int(fcntl.ioctl(pagemap, PAGEMAP_SCAN, argument, True))


def advise_own_page(address: int) -> int:
    """process_madvise(MADV_COLD) on one own page; the bytes advised."""
    vector = ctypes.create_string_buffer(struct.pack("PN", address, mmap.PAGESIZE), 16)
    pidfd = os.pidfd_open(os.getpid())
    try:
        return call("process_madvise", pidfd, vector, 1, MADV_COLD, 0)
    finally:
        os.close(pidfd)


def make_bpf_map() -> None:
    """Create an array map of one entry and close it again."""
    attributes = ctypes.create_string_buffer(
        struct.pack("=IIII", BPF_MAP_TYPE_ARRAY, 4, 4, 1) + bytes(56), 72
    )
    os.close(call("bpf", BPF_MAP_CREATE, attributes, 72))


def open_fault_event(cpu: int) -> None:
    """Open the software page-fault event with addresses on one CPU, and close it again."""
    size = 64  # PERF_ATTR_SIZE_VER0
    disabled = 1  # first bit of the flags: it never counts
    attributes = ctypes.create_string_buffer(
        struct.pack(
            "=IIQQQQQIIQ",
            PERF_TYPE_SOFTWARE,
            size,
            PERF_COUNT_SW_PAGE_FAULTS,
            1,  # sample period
            PERF_SAMPLE_ADDR,
            0,  # read format
            disabled,
            0,  # wakeup events
            0,  # breakpoint type
            0,  # config1
        ),
        size,
    )
    os.close(call("perf_event_open", attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC))
