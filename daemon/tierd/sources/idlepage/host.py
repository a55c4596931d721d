# SPDX-License-Identifier: Apache-2.0
"""The files of idle page tracking on this host, and whether this process may use them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tierd.core import bounds
from tierd.core.access import Availability
from tierd.core.errors import UnavailableError
from tierd.core.linux import PAGEMAP_ENTRY_BYTES, PAGEMAP_FRAME, PAGEMAP_PRESENT
from tierd.core.pagekey import PAGE_SIZE
from tierd.sources.idlepage.native import IdlePages
from tierd.sources.memory_blocks import node_frames

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
