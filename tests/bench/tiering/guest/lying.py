# SPDX-License-Identifier: Apache-2.0
"""`tierd` whose cards and scanner take hot pages for cold ones, and cold ones for hot.

usage: lying.py COMMAND... : as tierd

Each page is taken for the one that lies as far from the end of its process's ranges as the page
lies from their beginning. So the source names a page that has nothing to do with the page that was
accessed, and where few pages are hot, it hardly ever names a hot one. The lie is told to the loop
and not to the fast path, which reads the card itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tierd.cli import main
from tierd.core.access import AccessBatch, WatchedTarget
from tierd.core.pagekey import VPN_BITS, VPN_MASK
from tierd.sources.neoprof import NeoProfSource


def exchanged(batch: AccessBatch, targets: Sequence[WatchedTarget]) -> AccessBatch:
    """The batch with each page of a target replaced by its mirror image."""
    page = batch.page.copy()
    for target in targets:
        own = np.flatnonzero(batch.page >> np.uint64(VPN_BITS) == target.target)
        start = np.array([each.start for each in target.ranges], np.int64)
        size = np.array([each.end for each in target.ranges], np.int64) - start
        before = np.cumsum(size) - size
        vpn = (batch.page[own] & np.uint64(VPN_MASK)).astype(np.int64)
        at = np.searchsorted(start, vpn, side="right") - 1
        inside = (at >= 0) & (vpn < (start + size)[at])
        own, vpn, at = own[inside], vpn[inside], at[inside]
        mirror = size.sum() - 1 - (before[at] + vpn - start[at])
        into = np.searchsorted(before, mirror, side="right") - 1
        told = (start[into] + mirror - before[into]).astype(np.uint64)
        page[own] = np.uint64(target.target << VPN_BITS) | told
    return replace(batch, page=page, node=None)


def lies(source: NeoProfSource) -> list[AccessBatch]:
    """What the source tells, exchanged."""
    return [exchanged(batch, source._targets) for batch in told(source)]


if __name__ == "__main__":
    told = NeoProfSource.poll
    NeoProfSource.poll = lies  # type: ignore[method-assign]
    sys.exit(main())
