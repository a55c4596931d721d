# SPDX-License-Identifier: Apache-2.0
"""Facts about processes; this thread's memory policy and capabilities."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from tierd._native import ffi, lib
from tierd.core import linux
from tierd.core.linux import NODES
from tierd.core.logfmt import logfmt
from tierd.core.tiermap import parse_meminfo

log = logging.getLogger(__name__)


class ProcessFacts(Protocol):
    """Facts of one process.

    Each may raise `TargetGoneError` when the process has ended.
    """

    @property
    def pid(self) -> int:
        """The process number."""

    @property
    def exe(self) -> str:
        """The path of the program, as /proc/PID/exe has it."""

    @property
    def cmdline(self) -> str:
        """The arguments, separated by spaces."""

    @property
    def cgroup(self) -> str:
        """The path of the control group below the mount point of cgroup v2."""

    @property
    def uid(self) -> int:
        """The effective user number."""

    @property
    def rss_bytes(self) -> int:
        """Resident memory."""


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


NUMBERS: Final = {
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_NET_ADMIN": 12,
    "CAP_IPC_LOCK": 14,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_SYS_RESOURCE": 24,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""include/uapi/linux/capability.h."""
_LAST: Final = Path("/proc/sys/kernel/cap_last_cap")


def held() -> int:
    """This thread's permitted capabilities, as a mask."""
    _, permitted, _ = _get()
    return permitted


def has_capability(number: int) -> bool:
    """Whether this thread has a capability in effect."""
    return bool(_get()[0] >> number & 1)


def keep_only(names: Iterable[str]) -> int:
    """Drop for good all capabilities of this thread but those named; returns the mask left.

    Raises:
        OSError: the kernel refused.
    """
    mask = sum(1 << NUMBERS[name] for name in names)
    effective, permitted, inheritable = _get()
    libc = ctypes.CDLL(None, use_errno=True)
    # A program that root executes gets the bounding set. Only CAP_SETPCAP may make that smaller;
    # systemd has done so.
    for number in range(int(_LAST.read_text()) + 1):
        if not mask >> number & 1:
            libc.prctl(linux.PR_CAPBSET_DROP, number, 0, 0, 0)
    _set(effective & mask, permitted & mask, inheritable & mask)
    return permitted & mask


def give_up_all(*but: str) -> None:
    """Drop all capabilities but `but`, for a thread that serves clients; a failure is logged."""
    try:
        keep_only(but)
    except OSError as error:
        log.warning(logfmt(event="privileges_kept", reason=error.strerror))


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def _get() -> tuple[int, int, int]:
    """(effective, permitted, inheritable) of this thread."""
    data = (_Data * 2)()
    _call("capget", data)
    low, high = data
    return (
        low.effective | high.effective << 32,
        low.permitted | high.permitted << 32,
        low.inheritable | high.inheritable << 32,
    )


def _set(effective: int, permitted: int, inheritable: int) -> None:
    parts = [
        _Data(*(mask >> shift & 0xFFFFFFFF for mask in (effective, permitted, inheritable)))
        for shift in (0, 32)
    ]
    _call("capset", (_Data * 2)(*parts))


def _call(name: str, data: ctypes.Array[_Data]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(ctypes.byref(_Header(linux.CAPABILITY_VERSION, 0)), data):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
