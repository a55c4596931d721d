# SPDX-License-Identifier: Apache-2.0
"""The numbers and layouts of `kmod/uapi/tierd.h`, number for number (a test compares them)."""

from __future__ import annotations

import enum
from typing import Final

import numpy as np

FAMILY: Final = "tierd"
VERSION: Final = 1
EVENTS: Final = "events"
DEVICE: Final = "dev/tierd"
PARAMETERS: Final = "sys/module/tierd/parameters"

MAX_RANGES: Final = 4000
MAX_NODES: Final = 1024
HISTORY: Final = 8
NO_TARGET: Final = 0xFFFF
RESOLVE_MAX: Final = 1 << 20


class Command(enum.IntEnum):
    """enum tierd_cmd."""

    TARGET_ADD = 1
    TARGET_SET = 2
    TARGET_DEL = 3
    TARGET_GET = 4
    SCAN_SET = 5
    SCAN_GET = 6
    EVENT = 7
    NEOPROF_GET = 8
    NEOPROF_SET = 9
    NEOPROF_PROFILE_GET = 10


ATTRIBUTES: Final = (
    ("TIERD_A_UNSPEC", "none"),
    ("TIERD_A_PAD", "none"),
    ("TIERD_A_TARGET", "uint16"),
    ("TIERD_A_PID", "uint32"),
    ("TIERD_A_RANGES", "cdata"),
    ("TIERD_A_PERIOD_US", "uint32"),
    ("TIERD_A_BUDGET_PPM", "uint32"),
    ("TIERD_A_HOT_SCANS", "uint8"),
    ("TIERD_A_COLD_SCANS", "uint8"),
    ("TIERD_A_REPORT_SCANS", "uint8"),
    ("TIERD_A_FLAGS", "uint32"),
    ("TIERD_A_HOT_NODES", "cdata"),
    ("TIERD_A_COLD_NODES", "cdata"),
    ("TIERD_A_STATS", "cdata"),
    ("TIERD_A_TARGET_STATS", "cdata"),
    ("TIERD_A_EVENT", "uint8"),
    ("TIERD_A_CARD", "uint32"),
    ("TIERD_A_BACKEND", "asciiz"),
    ("TIERD_A_DEVICE", "asciiz"),
    ("TIERD_A_CARD_STATE", "uint8"),
    ("TIERD_A_WHY", "asciiz"),
    ("TIERD_A_CARD_RANGES", "cdata"),
    ("TIERD_A_CARD_GEOMETRY", "cdata"),
    ("TIERD_A_CARD_STATS", "cdata"),
    ("TIERD_A_PROFILE", "cdata"),
    ("TIERD_A_ENABLE", "uint8"),
    ("TIERD_A_DRAIN_US", "uint32"),
    ("TIERD_A_EPOCH_US", "uint32"),
    ("TIERD_A_THRESHOLD", "uint32"),
    ("TIERD_A_TRACK", "uint8"),
    ("TIERD_A_UNIT_LOG2", "uint8"),
    ("TIERD_A_DOWNSAMPLE", "uint8"),
    ("TIERD_A_CARD_FLAGS", "uint32"),
    ("TIERD_A_ERROR_RANK", "uint32"),
    ("TIERD_A_CARD_DO", "uint32"),
    ("TIERD_A_EXPOSURE_US", "uint32"),
)
"""enum tierd_attr, in its order, with pyroute2's names of the types."""


class ScanFlags(enum.IntFlag):
    """enum tierd_scan_flags."""

    CHANGES = 1
    DIRTY = 2
    FLUSH = 4
    BRIEF = 8


class Event(enum.IntEnum):
    """enum tierd_event."""

    GONE = 1
    EXEC = 2
    CLOSING = 3
    CARD_ADDED = 4
    CARD_FAILED = 5
    CARD_GONE = 6


STATS: Final = (
    "cpu_ns",
    "rounds",
    "slices",
    "tables",
    "pages",
    "accessed",
    "reported",
    "dropped",
    "lock_busy",
    "history_bytes",
    "history_full",
    "targets",
    "targets_gone",
    "targets_exec",
    "readers",
    "resolved",
)
"""struct tierd_stats: uint64 each."""

TARGET_STATS: Final = (
    "rounds",
    "round_ns",
    "round_cpu_ns",
    "round_pages",
    "round_accessed",
    "history_bytes",
    "ranges",
    "period_ns",
    "exposure_ns",
)
"""struct tierd_target_stats: uint64 each."""

RING_MAGIC: Final = 0x64726974
RING_VERSION: Final = 2
RING_HEAD: Final = 4096
RING_DATA: Final = 8192

INFO: Final = np.dtype(
    [
        ("magic", "=u4"),
        ("version", "=u2"),
        ("record_size", "=u2"),
        ("capacity", "=u4"),
        ("closing", "=u4"),
        ("tail", "=u8"),
        ("dropped", "=u8"),
        ("size", "=u8"),
    ]
)
"""struct tierd_ring_info."""

RECORD: Final = np.dtype(
    [
        ("page", "=u8"),
        ("pfn", "=u8"),
        ("time_ns", "=u8"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("order", "u1"),
        ("history", "u1"),
        ("node", "=i2"),
        ("value", "=u2"),
    ]
)
"""struct tierd_record."""


class Kind(enum.IntEnum):
    """enum tierd_record_kind."""

    PAGE = 1
    ROUND = 2
    HOT = 3
    FRAME = 4


class PageFlags(enum.IntFlag):
    """enum tierd_page_flags."""

    HOT = 1
    CHANGED = 2
    DIRTY = 4
    ANON = 8
    SHARED = 16
    PMD = 32


class OwnerStatus(enum.IntEnum):
    """enum tierd_owner_status."""

    GONE = 0
    MAPPED = 1
    SHARED = 2
    FILE = 3
    OTHER = 4
    BUSY = 5


OWNER: Final = np.dtype(
    [("vpn", "=u8"), ("pid", "=u4"), ("target", "=u2"), ("order", "u1"), ("status", "u1")]
)
"""struct tierd_owner."""

IOC_RESOLVE: Final = 0x40187481
"""_IOW('t', 0x81, struct tierd_resolve)."""

IOC_KINDS: Final = 0x40047482
"""_IOW('t', 0x82, __u32)."""
RING_KINDS: Final = 1 << Kind.PAGE | 1 << Kind.ROUND
"""Kinds a ring gets until it asks for others."""
