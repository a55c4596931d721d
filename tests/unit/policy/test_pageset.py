# SPDX-License-Identifier: Apache-2.0
"""What page sets come to: bytes by node."""

from __future__ import annotations

import numpy as np
import pytest

from tierd.core.migration import filled
from tierd.core.pagekey import PAGE_SIZE
from tierd.policy.pageset import bytes_on


@pytest.mark.parametrize(
    ("node", "order", "found"),
    [
        ([], [], {}),
        ([2, 0, 2], [0, 0, 0], {0: PAGE_SIZE, 2: 2 * PAGE_SIZE}),
        ([2, 0, 2], [9, 0, 0], {0: PAGE_SIZE, 2: 513 * PAGE_SIZE}),
    ],
)
def test_folios_count_with_their_sizes_by_node(
    node: list[int], order: list[int], found: dict[int, int]
) -> None:
    assert bytes_on(np.array(node, np.int16), np.array(order, np.uint8)) == found


def test_an_array_is_filled_with_one_value() -> None:
    assert filled(3, -1, np.int16).tolist() == [-1, -1, -1]
    assert filled(0, 7, np.uint8).dtype == np.uint8
