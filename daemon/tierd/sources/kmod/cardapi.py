# SPDX-License-Identifier: Apache-2.0
"""The part of `kmod/uapi/tierd.h` that is about NeoProf cards, number for number."""

from __future__ import annotations

import enum
from typing import Final

import numpy as np

CARDS_MAX: Final = 64
RANGES_MAX: Final = 32
BINS: Final = 64
WHY_BYTES: Final = 160


class CardState(enum.IntEnum):
    """enum tierd_card_state."""

    STOPPED = 1
    COUNTING = 2
    FAILED = 3


class Track(enum.IntEnum):
    """enum tierd_card_track."""

    READS = 1
    WRITES = 2
    BOTH = 3


class CardFlags(enum.IntFlag):
    """enum tierd_card_flags."""

    CONSERVATIVE = 1
    RANDOM = 2
    PERSIST = 4
    COALESCE = 8


class CardDo(enum.IntFlag):
    """enum tierd_card_do."""

    CLEAR = 1
    RESET = 2


class Features(enum.IntFlag):
    """enum tierd_card_features."""

    HISTOGRAM = 1 << 0
    BANDWIDTH = 1 << 1
    ERROR_BOUND = 1 << 2
    COUNTERS = 1 << 3
    CONSERVATIVE = 1 << 4
    TRACK = 1 << 5
    EPOCH = 1 << 6
    CLEAR = 1 << 7
    COUNT = 1 << 8
    INTERRUPT = 1 << 9
    DOWNSAMPLE = 1 << 10
    COALESCE = 1 << 11


CARD_RANGE: Final = np.dtype(
    [
        ("start", "=u8"),
        ("end", "=u8"),
        ("device", "=u8"),
        ("granularity", "=u4"),
        ("ways", "=u2"),
        ("position", "=u2"),
        ("node", "=i4"),
        ("pad", "=u4"),
    ]
)
"""struct tierd_card_range."""

CARD_GEOMETRY: Final = np.dtype(
    [("capacity", "=u8"), ("features", "=u8")]
    + [
        (name, "=u4")
        for name in (
            "depth",
            "width",
            "counter_bits",
            "channels",
            "bins",
            "slots",
            "unit_sizes",
            "cycles_100us",
            "threshold_max",
            "pad",
        )
    ]
)
"""struct tierd_card_geometry."""

CARD_STATS: Final = (
    "drains",
    "entries",
    "reported",
    "not_target",
    "shared",
    "file",
    "other",
    "gone",
    "busy",
    "outside",
    "overflows",
    "limited",
    "drain_ns",
    "level",
    "level_max",
    "interrupts",
    "accesses",
    "errors",
)
"""struct tierd_card_stats: uint64 each."""

PROFILE_COUNTERS: Final = (
    "valid",
    "time_ns",
    "sequence",
    "cycles",
    "read_beats",
    "write_beats",
    "busy_cycles",
    "offered",
    "counted",
    "skipped_type",
    "skipped_range",
    "skipped_sample",
    "reports",
    "reports_refused",
    "saturated",
    "epoch",
    "epoch_start",
    "applied_at",
)
"""The uint64 fields at the head of struct tierd_profile."""

PROFILE_BOUNDS: Final = (
    "error_low",
    "error_high",
    "error_bin",
    "error_rank",
    "threshold",
    "bins",
)
"""The uint32 fields that follow."""

PROFILE_LATER: Final = ("skipped_run",)
"""The uint64 fields behind the histogram."""

PROFILE: Final = np.dtype(
    [(name, "=u8") for name in PROFILE_COUNTERS]
    + [(name, "=u4") for name in PROFILE_BOUNDS]
    + [("histogram", "=u8", (BINS,))]
    + [(name, "=u8") for name in PROFILE_LATER]
)
"""struct tierd_profile."""
