# SPDX-License-Identifier: Apache-2.0
"""What the control loop and the native promoter tell each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from tierd._native import ffi

OUTCOME: Final = np.dtype(
    {
        "names": [
            "page",
            "time_ns",
            "heat",
            "bar",
            "source",
            "dest",
            "node",
            "order",
            "fate",
            "direction",
            "reason",
        ],
        "formats": ["=u8", "=u8", "=f4", "=f4", "=i2", "=i2", "=i2", "u1", "u1", "u1", "u1"],
        "offsets": [0, 8, 16, 20, 24, 26, 28, 30, 31, 32, 33],
        "itemsize": ffi.sizeof("struct tierd_outcome"),
    }
)
"""struct tierd_outcome."""

VICTIM: Final = np.dtype(
    {
        "names": ["page", "heat", "node", "order"],
        "formats": ["=u8", "=f4", "=i2", "u1"],
        "offsets": [0, 8, 12, 14],
        "itemsize": ffi.sizeof("struct tierd_victim"),
    }
)
"""struct tierd_victim."""

SPAN: Final = np.dtype([("start", "=u8"), ("end", "=u8")])
"""struct tierd_span: page keys [start, end)."""

OutcomeArray = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class PromoterSettings:
    """How the promoter works; see `struct tierd_promoter_settings`.

    Attributes:
        interval_ns: time between two looks into the ring, at least 1 ms.
        quota_bytes_per_s: bytes promoted in any second, at most.
        residency_s: seconds that a moved page stays where it is.
        bounce_s: a page promoted this soon after its demotion has bounced.
        patience_s: how long a page waits for room or quota.
        margin, confidence: of the watermark policy's rule.
        heat_s: heat of a page that is accessed once a second for ever.
        rate_cap: accesses a second beyond which heat does not grow.
        visits: accesses that a request to slow memory stands for.
        copy_requests: that a page's own copy into slow memory makes.
        least_rate: requests a second from which on a page is worth its move and its victim's.
        return_rate: ... worth them so soon that it may come back before `residency_s` is over
            after its demotion; 0: no page may.
        expected: victims' heat is what is to be expected of them, and not what was seen: then a
            page must save, beyond what its victim costs, what both moves take.
    """

    interval_ns: int
    quota_bytes_per_s: int
    residency_s: float
    bounce_s: float
    patience_s: float
    margin: float
    confidence: float
    heat_s: float
    rate_cap: float
    visits: float = 1.0
    copy_requests: float = 64.0
    least_rate: float = 0.0
    return_rate: float = 0.0
    expected: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """What the promoter does with the pages of a node.

    Attributes:
        up, down: nodes that its pages are promoted and demoted to, best first.
        low_bytes: what stays free on it.
        held_bytes: free memory that CPUs hold on to, which MemFree leaves out.
    """

    up: tuple[int, ...] = ()
    down: tuple[int, ...] = ()
    low_bytes: int = 0
    held_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Orders:
    """What the control loop says once a tick.

    Attributes:
        spans: `SPAN`[n], what may be moved; ascending and apart.
        pids: target number → process id.
        victims: `VICTIM`[n], what may leave fast nodes, coldest first.
        epochs: card → start of its epoch, of the one before, accesses a count stands for.
        ways: node → where its pages go.
    """

    spans: npt.NDArray[np.void]
    pids: Mapping[int, int]
    victims: npt.NDArray[np.void]
    epochs: Mapping[int, tuple[int, int, int]]
    ways: Mapping[int, Way] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PromoterStats:
    """Counters since the promoter was made; see `struct tierd_promoter_stats`.

    Attributes:
        counters: each but `held` by its name.
        held: decisions not to move, by reason.
    """

    counters: Mapping[str, int]
    held: Sequence[int]
