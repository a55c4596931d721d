# SPDX-License-Identifier: Apache-2.0
"""The 64-bit page key: which target, which virtual page.

A key is `target << 48 | virtual page number`. Page numbers are always in units
of 4 KiB (57-bit addresses need 45 bits); `target` is a small number that the
target room hands out and never a process id.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

PAGE_SHIFT: Final = 12
PAGE_SIZE: Final = 1 << PAGE_SHIFT
HUGE_ORDER: Final = 9
"""Order of a folio of 2 MiB."""
HUGE_PAGES: Final = 1 << HUGE_ORDER
VPN_BITS: Final = 48
VPN_MASK: Final = (1 << VPN_BITS) - 1
MAX_TARGETS: Final = 1 << 16

U64Array = npt.NDArray[np.uint64]


def make_keys(target: int, vpn: U64Array) -> U64Array:
    """Keys, uint64[n], of the pages `vpn`, uint64[n], of one target.

    Raises:
        ValueError: `target` does not fit in 16 bits.
    """
    if not 0 <= target < MAX_TARGETS:
        raise ValueError(f"target number {target} is not in 0..{MAX_TARGETS - 1}")
    return vpn | np.uint64(target << VPN_BITS)


def vpn_of(keys: U64Array) -> U64Array:
    """Virtual page numbers, uint64[n], of `keys`, uint64[n]."""
    return keys & np.uint64(VPN_MASK)


def target_of(keys: U64Array) -> U64Array:
    """Target numbers, uint64[n], of `keys`, uint64[n]."""
    return keys >> np.uint64(VPN_BITS)


def small_pages(keys: U64Array, order: npt.NDArray[np.uint8]) -> U64Array:
    """Keys of all 4 KiB pages of folios: first pages uint64[n], sizes 2^order pages, uint8[n]."""
    if not order.any():
        return keys
    size = np.int64(1) << order.astype(np.int64)
    first = np.repeat(np.cumsum(size) - size, size)
    pages: U64Array = np.repeat(keys, size)
    pages += (np.arange(len(first)) - first).astype(np.uint64)
    return pages
