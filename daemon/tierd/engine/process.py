# SPDX-License-Identifier: Apache-2.0
"""The service's own process: its memory stays resident, and it drops capabilities."""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import os
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tierd._native import lib
from tierd.config import Config
from tierd.core.logfmt import logfmt
from tierd.core.process import NUMBERS
from tierd.core.tuning import PACING

log = logging.getLogger(__name__)

CURRENT_ON_FAULT: Final = 1 | 4
"""MCL_CURRENT and MCL_ONFAULT (uapi/asm-generic/mman.h): no page is read in for it."""


def keep_heap() -> bool:
    """Let memory that is given back be used again; False where the C library knows no such thing.

    For the whole process, and before much has been allocated. It has no 2 MiB pages from then on
    (`PR_SET_THP_DISABLE`): each is cleared whole, and taken where memory is scarcest.
    """
    return bool(lib.tierd_keep_heap(PACING.heap_keep_bytes, PACING.heap_claim_bytes))


def load_all() -> None:
    """Load what would else be loaded in the middle of a pass.

    `numpy.unique` asks for `numpy.ma` when it is called first, which takes a slow CPU 150 ms.
    """
    importlib.import_module("numpy.ma")


def rest_collector() -> None:
    """Leave what is there now out of looks for cycles, and look less often; after `load_all`."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(PACING.gc_threshold_objects)


def stay_resident() -> bool:
    """Let no page of what is mapped now leave memory again; False where that is not allowed.

    Only with an unlimited RLIMIT_MEMLOCK: a locked stack could not grow beyond the limit
    when CAP_IPC_LOCK has been given up.
    """
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    try:
        if resource.getrlimit(resource.RLIMIT_MEMLOCK) != unlimited:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, unlimited)
    except (OSError, ValueError) as error:
        return _not(str(error))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(CURRENT_ON_FAULT) != 0:
        return _not(os.strerror(ctypes.get_errno()))
    return True


def _not(why: str) -> bool:
    log.info('event=mlock_failed reason="%s"', why)
    return False


ALWAYS: Final = frozenset(
    ("CAP_DAC_READ_SEARCH", "CAP_NET_ADMIN", "CAP_SYS_PTRACE", "CAP_SYS_NICE")
)
"""Seeing and moving pages of other processes, and hearing of their start and end."""
SAMPLING: Final = frozenset(
    ("CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN", "CAP_IPC_LOCK", "CAP_SYS_RESOURCE")
)
"""Attaching eBPF programs; the last three stand in for the others on some kernels."""
PHYSICAL: Final = frozenset(("CAP_SYS_ADMIN",))
"""What tells physical addresses."""
_NEEDS: Final = {"pmu": SAMPLING, "faults": SAMPLING, "neoprof": PHYSICAL, "scan": PHYSICAL}
_VERSION: Final = 0x20080522
_CAPBSET_DROP: Final = 24
_LAST: Final = Path("/proc/sys/kernel/cap_last_cap")


def needed(config: Config) -> frozenset[str]:
    """What a running service may need again: a source that comes back is attached anew."""
    names = set(ALWAYS)
    for source in config.sources.order:
        names |= _NEEDS.get(source, frozenset())
    if config.migration_tracing.enabled:
        names |= SAMPLING
    return frozenset(names)


def lacking(config: Config) -> frozenset[str]:
    """What `config` needs and this thread has not, or has no longer."""
    have = held()
    return frozenset(name for name in needed(config) if not have >> NUMBERS[name] & 1)


def held() -> int:
    """This thread's permitted capabilities, as a mask."""
    _, permitted, _ = _get()
    return permitted


def keep_only(names: Iterable[str]) -> int:
    """Give up, for good, all capabilities of this thread but those named; the mask that is left.

    Raises:
        OSError: the kernel refused, which it has no reason for.
    """
    mask = sum(1 << NUMBERS[name] for name in names)
    effective, permitted, inheritable = _get()
    libc = ctypes.CDLL(None, use_errno=True)
    # A program that root executes gets what is in the bounding set. Without CAP_SETPCAP it
    # cannot be made smaller, and systemd has done so.
    for number in range(int(_LAST.read_text()) + 1):
        if not mask >> number & 1:
            libc.prctl(_CAPBSET_DROP, number, 0, 0, 0)
    _set(effective & mask, permitted & mask, inheritable & mask)
    return permitted & mask


def give_up_all(*but: str) -> None:
    """For a thread that talks to clients: keep nothing, or `but`; where that fails, it goes on."""
    try:
        keep_only(but)
    except OSError as error:
        log.warning(logfmt(event="privileges_kept", reason=error.strerror))


def settle(config: Config) -> None:
    """Sources are attached: give up what is not needed again, and say so."""
    before = held()
    if not before:
        return
    try:
        left = keep_only(needed(config))
    except OSError as error:
        log.warning(logfmt(event="privileges_kept", reason=error.strerror))
        return
    kept = ",".join(sorted(name for name, number in NUMBERS.items() if left >> number & 1))
    dropped = (before & ~left).bit_count()
    log.info(logfmt(event="privileges_dropped", capabilities=dropped, kept=kept or "none"))


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
    if getattr(libc, name)(ctypes.byref(_Header(_VERSION, 0)), data):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
