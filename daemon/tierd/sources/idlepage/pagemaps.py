# SPDX-License-Identifier: Apache-2.0
"""Pagemaps of processes, opened and read by threads that can be left behind.

To read one takes the process's map lock, which a process that waits for a file server may hold for
ever. To open one takes no map lock. It waits while the process executes a program, though, and that
takes the map lock of the memory which the process leaves: a child of vfork leaves its parent's
(mm_access in kernel/fork.c, exec_mmap in fs/exec.c).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

from tierd.core.errors import NotAnsweringError, SecondMmuError, TargetGoneError
from tierd.core.pagekey import U64Array
from tierd.sources.idlepage.native import IdlePages, IdleReader
from tierd.workloads.bounded_reads import BoundedReads


class Pagemap:
    """An open pagemap. It is closed when nobody has it any more, be it a thread that waits in it.

    Args:
        pid: of the process.
        fd: the descriptor.
    """

    def __init__(self, pid: int, fd: int) -> None:
        self.pid, self.fd = pid, fd
        weakref.finalize(self, os.close, fd)


def open_pagemap(reads: BoundedReads, pid: int, opens: Callable[[int], int]) -> Pagemap:
    """A process's pagemap.

    Args:
        reads: makes the call.
        pid: of the process.
        opens: opens the file.

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

    Args:
        pages: what it reads for.
        cpu: CPU time of the calling thread, in ns.
        reads: makes the calls.

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
