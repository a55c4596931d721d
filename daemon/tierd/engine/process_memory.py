# SPDX-License-Identifier: Apache-2.0
"""The service's own pages stay in memory, and are not gone through for nothing.

Who fills fast memory takes it from the page cache, too, and the programs' text is a part of
that. A loop that waits for its own text to be read again, which the kernel drops as fast as
it is read, is late for seconds, just when the promoter needs victims.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import os
import resource
from typing import Final

from tierd._native import lib
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
