# SPDX-License-Identifier: Apache-2.0
"""Facts about processes, and this one's memory policy."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tierd._native import ffi, lib
from tierd.core.linux import NODES
from tierd.core.tiermap import parse_meminfo

log = logging.getLogger(__name__)


class ProcessFacts(Protocol):
    """Facts of one process.

    Each may raise `TargetGoneError` when the process has ended.
    """

    @property
    def pid(self) -> int:
        """The process number."""
        ...

    @property
    def exe(self) -> str:
        """The path of the program, as /proc/PID/exe has it."""
        ...

    @property
    def cmdline(self) -> str:
        """The arguments, separated by spaces."""
        ...

    @property
    def cgroup(self) -> str:
        """The path of the control group below the mount point of cgroup v2."""
        ...

    @property
    def uid(self) -> int:
        """The effective user number."""
        ...

    @property
    def rss_bytes(self) -> int:
        """Resident memory."""
        ...


def roomiest_node(root: Path = Path("/")) -> int | None:
    """The node with the most free memory, None where the host does not tell of two."""
    free: dict[int, int] = {}
    for meminfo in (root / NODES).glob("node[0-9]*/meminfo"):
        with contextlib.suppress(OSError):
            if found := parse_meminfo(meminfo.read_text(encoding="utf-8")):
                free[int(meminfo.parent.name.removeprefix("node"))] = found[1]
    return max(free, key=lambda node: (free[node], -node)) if len(free) > 1 else None


@contextlib.contextmanager
def preferring(node: int | None) -> Iterator[bool]:
    """What this thread allocates within, or the kernel for it, comes from `node` if it has room.

    Yields:
        Whether it is so; without a node, or where the kernel refuses, all is as it was.
    """
    before = ffi.new("struct tierd_mempolicy *")
    prefers = node is not None and lib.tierd_mempolicy_prefer(node, before) == 0
    try:
        yield prefers
    finally:
        # Only a node that has gone since can be refused: then the kernel's own policy it is.
        if prefers and (error := lib.tierd_mempolicy_restore(before)) != 0:
            log.warning('event=mempolicy_lost reason="%s"', os.strerror(-error))
            lib.tierd_mempolicy_restore(ffi.new("struct tierd_mempolicy *"))
