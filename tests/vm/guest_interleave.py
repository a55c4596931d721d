# SPDX-License-Identifier: Apache-2.0
"""Run a program whose new pages are spread by the kernel's weights: `guest_interleave.py COMMAND`.

MPOL_WEIGHTED_INTERLEAVE over nodes 0 to 2 (Linux 6.9), which Debian 12's numactl does not know.
"""

from __future__ import annotations

import ctypes
import os
import sys

SET_MEMPOLICY, WEIGHTED_INTERLEAVE, NODES = 238, 6, 0b111


def main() -> None:
    """Does not return."""
    libc = ctypes.CDLL(None, use_errno=True)
    mask = ctypes.c_ulong(NODES)
    if libc.syscall(SET_MEMPOLICY, WEIGHTED_INTERLEAVE, ctypes.byref(mask), 64):
        raise OSError(ctypes.get_errno(), "set_mempolicy(MPOL_WEIGHTED_INTERLEAVE)")
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
