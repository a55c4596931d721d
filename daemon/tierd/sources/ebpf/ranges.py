# SPDX-License-Identifier: Apache-2.0
"""Which page keys lie in what is watched, and which target a process is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tierd.core.access import WatchedTarget
from tierd.core.pagekey import PAGE_SHIFT, VPN_BITS, VPN_MASK, U64Array


class Watched:
    """The watched targets and their ranges."""

    def __init__(self, targets: Sequence[WatchedTarget]) -> None:
        self.targets = {each.pid: each.target for each in targets if each.ranges}
        pairs = sorted(
            ((each.target << VPN_BITS) + r.start, (each.target << VPN_BITS) + r.end)
            for each in targets
            for r in each.ranges
        )
        table = np.array(pairs, np.uint64).reshape(-1, 2)
        self._starts, self._ends = table[:, 0].copy(), table[:, 1].copy()
        pids = sorted(self.targets)
        self._pids = np.array(pids, np.uint32)
        self._numbers = np.array([self.targets[pid] for pid in pids], np.uint64)

    def inside(self, keys: U64Array) -> npt.NDArray[np.bool_]:
        """Which keys, uint64[n], lie in a watched range."""
        if not len(self._starts):
            return np.zeros(len(keys), np.bool_)
        at = np.searchsorted(self._starts, keys, side="right")
        known = at > 0
        result: npt.NDArray[np.bool_] = known & (keys < self._ends[np.maximum(at, 1) - 1])
        return result

    def known(self, pid: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """Which process ids, uint32[n], are watched."""
        if not len(self._pids):
            return np.zeros(len(pid), np.bool_)
        at = np.minimum(np.searchsorted(self._pids, pid), len(self._pids) - 1)
        result: npt.NDArray[np.bool_] = self._pids[at] == pid
        return result

    def keys(self, pid: npt.NDArray[np.uint32], address: U64Array) -> U64Array:
        """Page keys, uint64[n], of samples of watched processes."""
        at = np.searchsorted(self._pids, pid)
        vpn = (address >> np.uint64(PAGE_SHIFT)) & np.uint64(VPN_MASK)
        return vpn | self._numbers[at] << np.uint64(VPN_BITS)
