# SPDX-License-Identifier: Apache-2.0
"""The events that a trace is made of: `struct rp_event` of replay.h."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

EVENT = np.dtype(
    [("index", "<u4"), ("pages", "<u2"), ("kind", "u1"), ("write", "u1"), ("value", "<u8")]
)
Events = npt.NDArray[np.void]
ACCESS, ALLOC, FREE, COMPUTE, KERNEL = range(5)


def make(rows: list[tuple[int, int, int, int, int]]) -> Events:
    """Events from (index, pages, kind, write, value)."""
    return np.array(rows, EVENT)
