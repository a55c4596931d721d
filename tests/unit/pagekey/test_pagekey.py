# SPDX-License-Identifier: Apache-2.0
"""Keys of folios and of the pages in them."""

from __future__ import annotations

import numpy as np

from tierd.core.pagekey import small_pages


def test_folios_are_all_their_pages() -> None:
    keys = np.array([1024, 7, 2048], np.uint64)
    found = small_pages(keys, np.array([9, 0, 9], np.uint8))
    assert found.tolist() == [*range(1024, 1536), 7, *range(2048, 2560)]
    assert found.dtype == np.uint64


def test_single_pages_stay_as_they_are() -> None:
    keys = np.array([3, 1], np.uint64)
    assert small_pages(keys, np.zeros(2, np.uint8)).tolist() == [3, 1]
    assert len(small_pages(keys[:0], np.zeros(0, np.uint8))) == 0
