# SPDX-License-Identifier: Apache-2.0
"""A process that waits for a file server while it holds the lock of its memory maps.

    python tests/support/stuck.py FOLDER MIB

A FUSE server answers all but writes. The process holds MIB of memory, prints "held PID SERVER" and
waits for a line on its input. Then one thread of it writes to a file of that server, another maps
the file shared: the kernel waits for the write to end before the file may be mapped, with the map
lock held for writing. It prints "stuck" then. When the server is killed it goes on, and prints
"free". Needs root; see fuse(4) and Documentation/filesystems/fuse.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT_INODE, FILE_INODE = 1, 2
LOOKUP, FORGET, GETATTR, OPEN, WRITE, INIT, BATCH_FORGET = 1, 2, 3, 14, 16, 26, 42
DIRECT_IO, DIRECT_IO_MMAP = 1, 1 << 36
"""fuse.h: an answer to open, and the flag of init that lets such files be mapped shared."""
INIT_EXT = 1 << 30
PARALLEL_WRITES = 1 << 6
LATE = -38


def attributes(inode: int) -> bytes:
    """struct fuse_attr."""
    mode = 0o040755 if inode == ROOT_INODE else 0o100644
    return struct.pack("<6Q10I", inode, 1 << 20, 2048, *([0] * 6), mode, 1, 0, 0, 0, 4096, 0)


def serve(device: int) -> None:
    """Answer until the file system is gone."""
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError:
            os._exit(0)
        _, operation, unique, node = struct.unpack_from("<IIQQ", request)
        error, answer = 0, b""
        if operation == INIT:
            # Version, read-ahead, flags, limits of requests, largest write, flags above the 32nd.
            answer = struct.pack("<IIIIHHIIHHI", 7, 41, 0, INIT_EXT | 1, 12, 9, 1 << 16, 1, 0, 0,
                                 DIRECT_IO_MMAP >> 32) + bytes(24)  # fmt: skip
        elif operation == LOOKUP:
            answer = struct.pack("<QQQQII", FILE_INODE, 0, 10, 10, 0, 0) + attributes(FILE_INODE)
        elif operation == GETATTR:
            answer = struct.pack("<QII", 10, 0, 0) + attributes(node)
        elif operation == OPEN:
            answer = struct.pack("<QIi", 7, DIRECT_IO | PARALLEL_WRITES, 0)
        elif operation in (FORGET, BATCH_FORGET, WRITE):
            continue
        else:
            error = LATE
        os.write(device, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)


def quietly(function: Callable[..., Any], *arguments: Any) -> None:
    """Call it; that the server went is no error here."""
    with contextlib.suppress(OSError):
        function(*arguments)


def wait_in(thread: threading.Thread, place: str) -> None:
    """Wait until a thread of this process waits in a function of the kernel's FUSE."""
    wchan = Path(f"/proc/self/task/{thread.native_id}/wchan")
    while not wchan.read_text().startswith(place):
        time.sleep(0.01)


def main() -> None:
    """See above."""
    folder, mib = sys.argv[1], int(sys.argv[2])
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"stuck", os.fsencode(folder), b"fuse", 6, options) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    server = os.fork()
    if server == 0:
        serve(device)
    os.close(device)
    held = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, mib << 20, mmap.PAGESIZE):
        held[at] = 1
    print("held", os.getpid(), server, flush=True)
    sys.stdin.readline()
    file = os.open(f"{folder}/file", os.O_RDWR)
    writer = threading.Thread(target=quietly, args=(os.pwrite, file, bytes(4096), 0))
    writer.start()
    wait_in(writer, "request_wait_answer")
    # Python's own mmap would keep the interpreter's lock.
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    arguments = (None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    mapper = threading.Thread(target=libc.mmap, args=arguments)
    mapper.start()
    wait_in(mapper, "fuse_")
    print("stuck", flush=True)
    mapper.join()
    print("free", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
