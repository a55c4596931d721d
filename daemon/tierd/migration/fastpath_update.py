# SPDX-License-Identifier: Apache-2.0
"""Types that the control loop and the native promoter exchange: settings, orders, counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from tierd._native import ffi


def dtype_of(struct: str) -> np.dtype[np.void]:
    """The NumPy type of a struct of the C library, without its padding."""
    ctype = ffi.typeof(f"struct {struct}")
    fields = [(name, field) for name, field in ctype.fields if name != "pad"]
    return np.dtype(
        {
            "names": [name for name, _ in fields],
            "formats": [_number(field.type.cname) for _, field in fields],
            "offsets": [field.offset for _, field in fields],
            "itemsize": ffi.sizeof(ctype),
        }
    )


def _number(ctype: str) -> str:
    return "f4" if ctype == "float" else ctype.removesuffix("_t")


OUTCOME: Final = dtype_of("tierd_outcome")
VICTIM: Final = dtype_of("tierd_victim")
SPAN: Final = dtype_of("tierd_span")
"""Page keys [start, end)."""

OutcomeArray = npt.NDArray[np.void]


def join(parts: Sequence[OutcomeArray]) -> OutcomeArray:
    """`OUTCOME`[n] of all parts, in order; a single part is returned as it is.

    `np.concatenate` of the parts as they are would leave out the padding of `OUTCOME`, so that
    the result could not be viewed as words.
    """
    parts = [part for part in parts if len(part)] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.empty(0, OUTCOME)
    return np.concatenate([part.view(np.uint64) for part in parts]).view(OUTCOME)


@dataclass(frozen=True, slots=True)
class PromoterSettings:
    """Settings of the promoter, `struct tierd_promoter_settings`.

    Attributes:
        interval_ns: poll interval of the ring, at least 1 ms.
        residency_s: migration cooldown: seconds that a moved page stays where it is.
        bounce_s: a promotion this soon after a demotion counts as ping-pong.
        patience_s: how long a promotion waits for free memory or the rate limit.
        margin, confidence: of the watermark policy's rule.
        heat_s: long-run heat of a page with one access a second.
        rate_cap: accesses a second above which heat does not grow.
        visits: accesses for each request to slow memory.
        copy_requests: requests that copying a page into slow memory makes.
        least_rate: requests a second that pay for a page's move and its victim's.
        return_rate: requests a second that pay for them so soon that a page may return within
            `residency_s` of its demotion; 0: no page may.
        expected: victims' heat is a posterior mean. Then a page must save the cost of both moves
            beyond what its victim loses.
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
    visits: float
    copy_requests: float
    least_rate: float
    return_rate: float
    expected: bool


@dataclass(frozen=True, slots=True)
class Way:
    """Targets and free memory of a node.

    Attributes:
        up, down: promotion and demotion targets, best first.
        low_bytes: bytes that stay free on it.
        held_bytes: free memory in CPUs' lists, which MemFree does not count.
    """

    up: tuple[int, ...] = ()
    down: tuple[int, ...] = ()
    low_bytes: int = 0
    held_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Orders:
    """The update of a tick.

    Attributes:
        spans: `SPAN`[n], ranges that may be moved; ascending and apart.
        victims: `VICTIM`[n], demotion candidates on fast nodes, coldest first.
        epochs: card → (start of its epoch, start of the one before, accesses for each count).
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
        counters: all fields but `held`, by name.
        held: rejected pages, by reason.
    """

    counters: Mapping[str, int]
    held: Sequence[int]
