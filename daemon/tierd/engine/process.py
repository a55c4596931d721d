# SPDX-License-Identifier: Apache-2.0
"""The service's own process: it keeps its memory resident, and drops capabilities."""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import os
import resource
from pathlib import Path
from typing import Final

from tierd.config.model import Config
from tierd.core import bounds, linux
from tierd.core.logfmt import logfmt
from tierd.core.process import NUMBERS, held, keep_only
from tierd.sources.kmod.genl import codec
from tierd.sources.kmod.uapi import DEVICE

log = logging.getLogger(__name__)


def keep_heap() -> bool:
    """Let malloc keep freed memory; False where the C library does not support that.

    Each tick needs some MiB for a short time. By default malloc asks the kernel for each large
    piece and returns it at once. Then the kernel clears 2 MiB pages for it, takes them from the
    fast node, which is kept nearly full, and compacts that node to find them
    (docs/research/lab-notebook/trials.md). It holds for the whole process, so call it before much
    has been allocated. It also turns 2 MiB pages off (`PR_SET_THP_DISABLE`), which would be
    cleared whole and use up fast memory.
    """
    # malloc.h and linux/prctl.h
    mmap_threshold, trim_threshold, arena_max, thp_disable = -3, -1, -8, 41
    kept = min(bounds.HEAP_KEEP_BYTES, (1 << 31) - 1)
    libc = ctypes.CDLL(None)
    # The threshold is the largest that malloc takes on 64-bit systems: half of an arena.
    options = (mmap_threshold, 32 << 20), (trim_threshold, kept), (arena_max, 1)
    if not all(libc.mallopt(option, value) for option, value in options):
        return False
    off = libc.prctl(thp_disable, 1, 0, 0, 0) == 0
    # Zeros are written to all of it; the heap keeps it when it is freed.
    bytearray(bounds.HEAP_CLAIM_BYTES)
    return bool(off)


def load_all(device: Path = Path("/", DEVICE)) -> None:
    """Load modules that would otherwise be loaded in the middle of a tick.

    `numpy.unique` asks for `numpy.ma` when it is called first, which takes a slow CPU 150 ms: the
    loop would rest for many ticks to keep to its share of a CPU. The first message to the kernel
    module needs pyroute2's coder, which is loaded here only where the module is: on other hosts it
    would only cost memory. If the module is loaded later, one tick is longer.

    Args:
        device: a file that is there while the kernel module is loaded.
    """
    importlib.import_module("numpy.ma")
    if device.exists():
        codec()


def rest_collector() -> None:
    """Exempt all present objects from cycle collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(bounds.GC_OBJECTS)


def stay_resident() -> bool:
    """Lock the present mappings in memory; False where that is not allowed.

    It needs an unlimited RLIMIT_MEMLOCK, because a locked stack could not grow beyond the limit
    once CAP_IPC_LOCK has been dropped.
    """
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    try:
        if resource.getrlimit(resource.RLIMIT_MEMLOCK) != unlimited:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, unlimited)
    except (OSError, ValueError) as error:
        return _not(str(error))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(linux.MLOCK_ON_FAULT) != 0:
        return _not(os.strerror(ctypes.get_errno()))
    return True


def _not(why: str) -> bool:
    log.info('event=mlock_failed reason="%s"', why)
    return False


ALWAYS: Final = frozenset(
    ("CAP_DAC_READ_SEARCH", "CAP_NET_ADMIN", "CAP_SYS_PTRACE", "CAP_SYS_NICE")
)
"""For reading and moving pages of other processes, and for events of their start and end."""
SAMPLING: Final = frozenset(
    ("CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN", "CAP_IPC_LOCK", "CAP_SYS_RESOURCE")
)
"""For attaching BPF programs; some kernels need the last three in place of the others."""
PHYSICAL: Final = frozenset(("CAP_SYS_ADMIN",))
"""For reading physical addresses."""
_NEEDS: Final = {
    "pmu": SAMPLING,
    "faults": SAMPLING,
    "neoprof": PHYSICAL,
    "scan": PHYSICAL,
    "idlepage": PHYSICAL,
}


def needed(config: Config) -> frozenset[str]:
    """Capabilities that a running service may need again, to attach a source anew."""
    names = set(ALWAYS)
    for source in config.sources.order:
        names |= _NEEDS.get(source, frozenset())
    if config.migration_tracing.enabled:
        names |= SAMPLING
    return frozenset(names)


def lacking(config: Config) -> frozenset[str]:
    """Capabilities that `config` needs and this thread does not have."""
    have = held()
    return frozenset(name for name in needed(config) if not have >> NUMBERS[name] & 1)


def settle(config: Config) -> None:
    """Drop and log what is not needed again; called when sources are attached."""
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
