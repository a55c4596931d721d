# SPDX-License-Identifier: Apache-2.0
"""The files of idle page tracking on this host, and pagemaps, which threads of their own read.

To read a pagemap takes the process's map lock, which a process that waits for a file server may
hold for ever. To open one takes no map lock. It waits while the process executes a program, though,
and that takes the map lock of the memory which the process leaves: a child of vfork leaves its
parent's (mm_access in kernel/fork.c, exec_mmap in fs/exec.c).
"""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tierd.core import bounds
from tierd.core.access import Availability
from tierd.core.errors import NotAnsweringError, SecondMmuError, TargetGoneError, UnavailableError
from tierd.core.linux import PAGEMAP_ENTRY_BYTES, PAGEMAP_FRAME, PAGEMAP_PRESENT
from tierd.core.pagekey import PAGE_SIZE, U64Array
from tierd.sources.idlepage.native import IdlePages, IdleReader
from tierd.topology.node_meminfo import node_frames
from tierd.workloads.bounded_reads import BoundedReads

BITMAP: Final = "sys/kernel/mm/page_idle/bitmap"
FLAGS: Final = "proc/kpageflags"
NOT_BUILT: Final = "idle page tracking is not in this kernel"
NOT_BUILT_HINT: Final = (
    "use a kernel with CONFIG_IDLE_PAGE_TRACKING (Ubuntu's, RHEL's, Fedora's and SUSE's have it,"
    " Debian's have not), or the kernel module"
)
FRAMES_HINT: Final = (
    "give it CAP_SYS_ADMIN (systemctl edit tierd: [Service], CapabilityBoundingSet=CAP_SYS_ADMIN)"
)


def availability(root: Path = Path("/")) -> Availability:
    """Whether the files are there and may be used; `root` is of /sys and /proc."""
    if not (root / BITMAP).exists():
        return Availability(False, NOT_BUILT, NOT_BUILT_HINT)
    for name, mode in ((BITMAP, os.R_OK | os.W_OK), (FLAGS, os.R_OK)):
        if not os.access(root / name, mode):
            return Availability(
                False,
                f"/{name} may not be {'written' if mode & os.W_OK else 'read'}",
                "run as root, where /sys is not mounted read-only",
            )
    if not _frames_shown(root):
        return Availability(False, "the kernel hides page frames from this process", FRAMES_HINT)
    return Availability(True, "accessed bits by idle page tracking")


def _frames_shown(root: Path) -> bool:
    """Whether pagemap tells the frame of a page that this process has just touched."""
    page = bytearray(2 * PAGE_SIZE)
    address = id(page)  # The object itself lies in memory that is present.
    try:
        with (root / "proc/self/pagemap").open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), PAGEMAP_ENTRY_BYTES, address // PAGE_SIZE * 8)
    except OSError:
        return False
    entry = int.from_bytes(data, "little")
    return bool(entry & PAGEMAP_PRESENT and entry & PAGEMAP_FRAME)


def open_pagemap(pid: int) -> int:
    """A process's pagemap, open.

    Raises:
        OSError: there is no such process, or it may not be looked at.
    """
    return os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def idle_pages(root: Path = Path("/")) -> Iterator[IdlePages]:
    """The kernel's idle flags, while the context lasts.

    Raises:
        UnavailableError: the files cannot be opened.
    """
    with contextlib.ExitStack() as files:
        fds = []
        for name, flags in ((BITMAP, os.O_RDWR), (FLAGS, os.O_RDONLY)):
            try:
                fds.append(os.open(root / name, flags | os.O_CLOEXEC))
            except OSError as error:
                absent = name == BITMAP and error.errno == errno.ENOENT
                why = NOT_BUILT if absent else f"/{name}: {error.strerror}"
                raise UnavailableError(why, hint=NOT_BUILT_HINT if absent else "") from error
            files.callback(os.close, fds[-1])
        yield IdlePages(fds[0], fds[1], frame_limit(root), history_limit())


def frame_limit(root: Path) -> int:
    """Frames below it may be shared between targets: twice those that there are."""
    spans = node_frames(root)
    known = spans[-1][1] if spans else os.sysconf("SC_PHYS_PAGES")
    return 2 * known


def history_limit() -> int:
    """What the histories of all of the host's memory take, and a quarter more; not too little."""
    pages = os.sysconf("SC_PHYS_PAGES")
    return max(bounds.IDLE_HISTORY_BYTES, pages * 5 // 4 * 6 // 5)


class Pagemap:
    """An open pagemap. It is closed when nobody has it any more, not even a waiting thread."""

    def __init__(self, pid: int, fd: int) -> None:
        self.pid, self.fd = pid, fd
        weakref.finalize(self, os.close, fd)


def open_bounded(reads: BoundedReads, pid: int, opens: Callable[[int], int]) -> Pagemap:
    """A process's pagemap.

    Raises:
        TargetGoneError: there is no such process.
        NotAnsweringError: there is no answer for now, or the host has no memory or descriptor left.
        SecondMmuError: it may not be looked at, so that its accesses cannot be seen.
    """
    name = f"/proc/{pid}/pagemap"
    try:
        answer: list[Pagemap] = reads.one(pid, None, lambda: [Pagemap(pid, opens(pid))])
    except (FileNotFoundError, ProcessLookupError) as error:
        raise TargetGoneError(f"process {pid} has ended") from error
    except PermissionError as error:
        raise SecondMmuError(f"{name}: {error.strerror}") from error
    except OSError as error:
        raise NotAnsweringError(f"{name}: {error.strerror}") from error
    return answer.pop()  # The thread keeps its answer until it gives another.


class PagemapReads:
    """Reads pagemaps, for one thread.

    Attributes:
        cpu_ns: CPU time of all reads but those that were given up.
    """

    def __init__(self, pages: IdlePages, cpu: Callable[[], int], reads: BoundedReads) -> None:
        self._pages, self._cpu, self._reads = pages, cpu, reads
        self._reader: IdleReader | None = None
        self.cpu_ns = 0

    def read(
        self, pagemap: Pagemap, spans: U64Array, start: int, stop: int, most: int
    ) -> tuple[IdleReader, int]:
        """`IdleReader.read` of a pagemap: what it found, and the error.

        Raises:
            NotAnsweringError: there is no answer for now.
        """
        reader, files = self._reader or self._pages.reader(), [pagemap]
        self._reader = None  # A thread that is left with the read is left with the reader, too.

        def read() -> tuple[int, int]:
            begun_ns = self._cpu()
            error = reader.read(files[0].fd, spans, start, stop, most)
            return error, self._cpu() - begun_ns

        error, used_ns = self._reads.one(pagemap.pid, None, read)
        files.clear()  # The thread keeps the function until it gets another.
        self._reader = reader
        self.cpu_ns += used_ns
        return reader, error

    def close(self) -> None:
        """End the thread that reads."""
        self._reads.close()
