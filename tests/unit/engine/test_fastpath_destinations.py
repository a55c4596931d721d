# SPDX-License-Identifier: Apache-2.0
"""What of a tick's plan the quota leaves to it."""

from __future__ import annotations

import numpy as np
import pytest
from policies import watermarks

from tierd.core.migration import Direction, MigrationPlan
from tierd.core.pagekey import PAGE_SIZE
from tierd.core.tiermap import (
    MemoryKind,
    MemoryNode,
    NodeUsage,
    Provenance,
    Quantity,
    Tier,
    TierMap,
)
from tierd.engine.fastpath.update import paths, ways, within_quota

HUGE = 512 * PAGE_SIZE


def plan(demoted: int, promoted: int, order: int = 0) -> MigrationPlan:
    """Demotions, then promotions, pages numbered in that order."""
    n = demoted + promoted
    direction = np.full(n, Direction.PROMOTE, np.uint8)
    direction[:demoted] = Direction.DEMOTE
    return MigrationPlan(
        page=np.arange(n, dtype=np.uint64),
        order=np.full(n, order, np.uint8),
        source=np.ones(n, np.int16),
        dest=np.zeros(n, np.int16),
        direction=direction,
        heat=np.ones(n, np.float32),
        notes={"rate_limit": 3},
    )


def test_what_fits_is_left_as_it_is() -> None:
    made = plan(10, 20)
    assert within_quota(made, 20 * PAGE_SIZE) == (made, 0)
    assert within_quota(plan(10, 0), 0)[1] == 0


@pytest.mark.parametrize(
    ("demoted", "left", "kept"),
    [
        # 20 are to come in. The last go first, and with each the demotion that made its room.
        (20, 15, [*range(15), *range(20, 35)]),
        (5, 18, [*range(3), *range(5, 23)]),
        (5, 2, [5, 6]),
        (0, 7, list(range(7))),
        (20, 0, []),
    ],
)
def test_promotions_beyond_the_quota_wait_and_what_made_room_for_them(
    demoted: int, left: int, kept: list[int]
) -> None:
    allowed, waiting = within_quota(plan(demoted, 20), left * PAGE_SIZE)
    assert allowed.page.tolist() == kept
    assert waiting == 20 - left
    assert allowed.notes == {"rate_limit": 3}
    assert len(allowed.dest) == len(allowed.heat) == len(kept)


def test_a_huge_folio_comes_in_whole_or_not_at_all() -> None:
    allowed, waiting = within_quota(plan(0, 4, order=9), 2 * HUGE + PAGE_SIZE)
    assert allowed.page.tolist() == [0, 1]
    assert waiting == 2 * 512


def test_the_native_path_stops_before_ticks_have_to_relieve_a_node() -> None:
    total, policy = 1 << 30, watermarks()
    figures = (Quantity(118, Provenance.HMAT), Quantity(1e11, Provenance.HMAT))
    node = MemoryNode(0, total, frozenset(), MemoryKind.DRAM, *figures)
    tiers = TierMap((Tier(0, "dram", MemoryKind.DRAM, (0,), total, *figures),), {0: node})
    usage = NodeUsage(total, total // 2, 0)
    way = ways(paths(tiers), {0: usage}, policy, {})[0]
    assert (
        usage.low_bytes(policy.low_watermark) < way.low_bytes < int(policy.high_watermark * total)
    )
