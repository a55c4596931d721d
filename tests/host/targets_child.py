# SPDX-License-Identifier: Apache-2.0
"""A process with one mapping of each sort; run by the host tests, and to capture fixtures.

Prints one JSON object, name → first page number (4 KiB) of a mapping of PAGES pages,
and the mappings the kernel refused with their errno; ends when its input does.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import mmap
import os
import platform
import sys
from pathlib import Path

PAGES = 64
SIZE = PAGES * 4096
MBIND = {"x86_64": 237, "aarch64": 235}
# include/uapi/linux/mempolicy.h
POLICIES = {"prefer": 1, "bind": 2, "interleave": 3, "local": 4, "prefer_many": 5, "weighted": 6}

libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

places: dict[str, int] = {}
refused: dict[str, int] = {}


def place(name: str, protection: int, flags: int, descriptor: int = -1) -> int:
    """Map PAGES pages with an unmapped page on both sides, so that nothing merges."""
    guard = libc.mmap(None, SIZE + 8192, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    libc.munmap(ctypes.c_void_p(guard), ctypes.c_size_t(SIZE + 8192))
    fixed = 0x10
    address = libc.mmap(guard + 4096, SIZE, protection, flags | fixed, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        refused[name] = ctypes.get_errno()
        return 0
    if protection & mmap.PROT_WRITE:
        ctypes.memset(address, 1, SIZE)
    elif protection & mmap.PROT_READ:
        ctypes.string_at(address, SIZE)
    places[name] = address >> 12
    return int(address)


def main() -> None:
    """Make every mapping, say where it is, and wait."""
    folder = Path(sys.argv[1])
    rw, private = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    place("plain", rw, private)
    place("none", 0, private)
    for name, mode in POLICIES.items():
        address = place(name, rw, private)
        mask = ctypes.c_ulong(0 if name == "local" else 1)
        number = MBIND[platform.machine()]
        arguments = (ctypes.c_ulong(address), ctypes.c_ulong(SIZE), mode)
        pointer = None if name == "local" else ctypes.byref(mask)
        count = 0 if name == "local" else 64
        if libc.syscall(number, *arguments, pointer, ctypes.c_ulong(count), 0) != 0:
            refused[name] = ctypes.get_errno()
            places.pop(name)
    if "lock" in sys.argv and libc.mlock(place("locked", rw, private), SIZE) != 0:
        refused["locked"] = ctypes.get_errno()
    odd = folder / "a file\nwith [heap] in  it (deleted)"
    odd.write_bytes(b"x" * SIZE)
    with odd.open("r+b") as file:
        place("file_shared", rw, mmap.MAP_SHARED, file.fileno())
        place("file_read_only", mmap.PROT_READ, mmap.MAP_PRIVATE, file.fileno())
    memory = os.memfd_create("[vdso]")
    os.ftruncate(memory, SIZE)
    place("memfd", rw, mmap.MAP_SHARED, memory)
    place("anonymous_shared", rw, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    program = folder / "program"
    program.write_bytes(b"x" * SIZE)
    with program.open("r+b") as file:
        place("program_code", mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, file.fileno())
        place("program_data", mmap.PROT_READ, mmap.MAP_PRIVATE, file.fileno())
    both = folder / "both"
    both.write_bytes(b"x" * SIZE)
    with both.open("r+b") as file:
        place("common", mmap.PROT_READ, mmap.MAP_SHARED, file.fileno())
        ready, tell = os.pipe()
        child = os.fork()
        if child == 0:
            place("again", mmap.PROT_READ, mmap.MAP_SHARED, file.fileno())
            os.write(tell, b"x")
            os.read(0, 1)
            os._exit(0)
        os.read(ready, 1)
    print(json.dumps({"places": places, "refused": refused}), flush=True)
    os.read(0, 1)
    os.waitpid(child, 0)


main()
