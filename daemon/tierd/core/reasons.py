# SPDX-License-Identifier: Apache-2.0
"""Why a page was moved, or was not: the reasons of both paths, and the words for them."""

from __future__ import annotations

import enum
from typing import Final


class Reason(enum.IntEnum):
    """Why a decision about a page came out as it did.

    `daemon/native/tierd_promoter.h` repeats those that the fast path has, up to `NOT_WORTH`.
    """

    HOTTER_THAN_THE_COLDEST = 0
    """Promoted: hotter by enough than the page that it may push out, or there was room."""
    MAKES_ROOM = 1
    """Demoted: among the coldest of a fast tier that is short of room."""
    NOT_MOVABLE = 2
    """Held back: outside the ranges of its process that may be moved, or no target's."""
    MOVED_LATELY = 3
    """Held back: moved less than the least residency ago."""
    NOT_HOTTER = 4
    """Held back: not hotter by enough than the coldest page of the fast tier."""
    NO_ROOM = 5
    """Held back: no room on the fast tier, and no page known that could make some."""
    OVER_QUOTA = 6
    """Held back: the bytes that may move in this second were spent."""
    PART_OF_HUGE = 7
    """Left to the next tick: it is part of a 2 MiB folio, which is moved whole."""
    OVERFLOW = 8
    """Held back: more hot pages were reported in one interval than are looked at."""
    NOT_WORTH = 9
    """Held back: what it would save does not pay for the moves in `policy.break_even_time`."""
    TOP_TIER = 10
    """Stays: nothing is promoted from its tier, and it is not among the coldest."""
    FAST_PATH = 11
    """Left to the fast path, which exchanges the node's 4 KiB pages between ticks."""
    GROUP_LIMIT = 12
    """Held back: a limit of its group."""


WORDS: Final = {
    Reason.HOTTER_THAN_THE_COLDEST: "hotter by enough than the coldest page of the fast tier",
    Reason.MAKES_ROOM: "among the coldest of its tier, which was short of room",
    Reason.NOT_MOVABLE: "outside the ranges of its process that may be moved",
    Reason.MOVED_LATELY: "moved less than the least residency ago",
    Reason.NOT_HOTTER: "not hotter by enough than the coldest page of the fast tier",
    Reason.NO_ROOM: "no room on the fast tier, and no page known that could make some",
    Reason.OVER_QUOTA: "the bytes that may move in a second were spent",
    Reason.PART_OF_HUGE: "part of a 2 MiB folio, which the next tick moves whole",
    Reason.OVERFLOW: "more hot pages were reported in one interval than are looked at",
    Reason.NOT_WORTH: "asked for too seldom to pay for its moves (policy.break_even_time)",
    Reason.TOP_TIER: "nothing is promoted from its tier, and it is not among the coldest",
    Reason.FAST_PATH: "left to the fast path, which moves what cards report between ticks",
    Reason.GROUP_LIMIT: "a limit of its group",
}
