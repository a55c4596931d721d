# SPDX-License-Identifier: Apache-2.0
"""Capabilities of this thread."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tierd.core import linux
from tierd.core.logfmt import logfmt

log = logging.getLogger(__name__)

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
