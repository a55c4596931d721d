# SPDX-License-Identifier: Apache-2.0
"""Who may have how much of a neighbour's memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tierd_gpu.links import F64Array

I64Array = npt.NDArray[np.int64]


def divide(space: int, need: I64Array, weight: F64Array) -> I64Array:
    """int64[n] chunks for each of n tenants: weighted max-min fair.

    Nobody gets more than it needs (`need`), what one leaves goes to the others, and
    nobody with a weight gets less than its weighted share while it needs it. Weight 0
    gets nothing. The sum never exceeds `space`.
    """
    granted = np.zeros(len(need), np.int64)
    left = max(0, space)
    active = (weight > 0) & (need > 0)
    while left > 0 and active.any():
        total = weight[active].sum()
        share = np.floor(left * weight / total).astype(np.int64)
        if not share[active].any():
            # Fewer chunks than tenants: one each, the widest link first.
            for index in np.argsort(-weight, kind="stable"):
                if active[index] and left > 0:
                    granted[index] += 1
                    left -= 1
            break
        given = np.where(active, np.minimum(share, need - granted), 0)
        granted += given
        left -= int(given.sum())
        active &= granted < need
    return granted
