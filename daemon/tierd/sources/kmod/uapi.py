# SPDX-License-Identifier: Apache-2.0
"""The numbers and layouts of `kmod/uapi/tierd.h`, under the header's names without their prefix.

Its macros come through the C library, which includes the header. A test compiles the header and
compares all other numbers, and compares the order of the attributes, commands and structures with
`kmod/tierd.yaml`. What the numbers mean stands in the header. What
only tests use, the owners of page frames, is in `tests/support/frame_owners.py`.
"""

from __future__ import annotations

import enum
from typing import Final

import numpy as np

from tierd._native import lib


def _pairs(text: str) -> list[tuple[str, str]]:
    """Words "name:type" apart."""
    return [(name, kind) for name, kind in (word.split(":") for word in text.split())]


def _struct(fields: str) -> np.dtype[np.void]:
    """Fields in the host's byte order; a type is a letter (u, i) and its bytes."""
    return np.dtype([(name, f"={kind}") for name, kind in _pairs(fields)])


def _names(names: str) -> tuple[str, ...]:
    return tuple(names.split())


FAMILY: Final = "tierd"
VERSION: Final = int(lib.TIERD_GENL_VERSION)
EVENTS: Final = "events"
DEVICE: Final = "dev/tierd"
PARAMETERS: Final = "sys/module/tierd/parameters"

MAX_RANGES: Final = int(lib.TIERD_MAX_RANGES)
MAX_NODES: Final = int(lib.TIERD_MAX_NODES)
HISTORY: Final = int(lib.TIERD_HISTORY)
NODE_WORDS: Final = MAX_NODES // np.iinfo(np.uint64).bits
"""Words of 64 bits of a mask of nodes."""
WHOLE: Final = int(np.iinfo(np.uint8).max)
"""The module's number for a fraction of 1."""
SEEN: Final = np.array([each.bit_count() for each in range(lib.TIERD_HISTORIES)], np.float32)
"""Scans of eight that found an access, float32[history byte]."""

# The netlink family: commands, attributes, and what is in them.

Command = enum.IntEnum(
    "Command",
    "TARGET_ADD TARGET_SET TARGET_DEL TARGET_GET SCAN_SET SCAN_GET EVENT"
    " NEOPROF_GET NEOPROF_SET NEOPROF_PROFILE_GET",
)
Event = enum.IntEnum("Event", "GONE EXEC CLOSING CARD_ADDED CARD_FAILED CARD_GONE SECOND_MMU")
ScanFlags = enum.IntFlag("ScanFlags", "CHANGES DIRTY FLUSH BRIEF")

_ATTRIBUTES: Final = """
    UNSPEC:none PAD:none TARGET:uint16 PID:uint32 RANGES:cdata PERIOD_US:uint32 BUDGET_PPM:uint32
    HOT_SCANS:uint8 COLD_SCANS:uint8 REPORT_SCANS:uint8 FLAGS:uint32 HOT_NODES:cdata
    COLD_NODES:cdata STATS:cdata TARGET_STATS:cdata EVENT:uint8

    CARD:uint32 BACKEND:asciiz DEVICE:asciiz CARD_STATE:uint8 WHY:asciiz CARD_RANGES:cdata
    CARD_GEOMETRY:cdata CARD_STATS:cdata PROFILE:cdata ENABLE:uint8 DRAIN_US:uint32 EPOCH_US:uint32
    THRESHOLD:uint32 TRACK:uint8 UNIT_LOG2:uint8 DOWNSAMPLE:uint8 CARD_FLAGS:uint32
    ERROR_RANK:uint32 CARD_DO:uint32

    SAMPLING_INTERVAL_US:uint32
"""
ATTRIBUTES: Final = tuple((f"TIERD_A_{name}", kind) for name, kind in _pairs(_ATTRIBUTES))
"""enum tierd_attr in its order, each with pyroute2's name of its type."""

STATS: Final = _names(
    "cpu_ns rounds slices tables pages accessed reported dropped lock_busy history_bytes"
    " history_full targets targets_gone targets_exec readers resolved marked"
    " targets_second_mmu"
)
"""struct tierd_stats: uint64 each."""

TARGET_STATS: Final = _names(
    "rounds round_ns round_cpu_ns round_pages round_accessed history_bytes ranges period_ns"
    " sampling_interval_ns"
)
"""struct tierd_target_stats: uint64 each."""

# The ring that /dev/tierd maps, and its records.

RING_MAGIC: Final = int(lib.TIERD_RING_MAGIC)
RING_VERSION: Final = int(lib.TIERD_RING_VERSION)
RING_HEAD: Final = int(lib.TIERD_RING_HEAD)
RING_DATA: Final = int(lib.TIERD_RING_DATA)
IOC_KINDS: Final = int(lib.TIERD_IOC_KINDS)

Kind = enum.IntEnum("Kind", "PAGE ROUND HOT FRAME")
PageFlags = enum.IntFlag("PageFlags", "HOT CHANGED DIRTY ANON SHARED PMD")

INFO: Final = _struct(
    "magic:u4 version:u2 record_size:u2 capacity:u4 closing:u4 tail:u8 dropped:u8 size:u8"
)
"""struct tierd_ring_info."""

RECORD: Final = _struct(
    "page:u8 pfn:u8 time_ns:u8 kind:u1 flags:u1 order:u1 history:u1 node:i2 value:u2"
)
"""struct tierd_record."""

# NeoProf cards.

BINS: Final = int(lib.TIERD_CARD_BINS)

CardState = enum.IntEnum("CardState", "STOPPED COUNTING FAILED")
Track = enum.IntEnum("Track", "READS WRITES BOTH")
CardFlags = enum.IntFlag("CardFlags", "CONSERVATIVE RANDOM PERSIST COALESCE")
CardDo = enum.IntFlag("CardDo", "CLEAR RESET")
Features = enum.IntFlag(
    "Features",
    "HISTOGRAM BANDWIDTH ERROR_BOUND COUNTERS CONSERVATIVE TRACK EPOCH CLEAR COUNT INTERRUPT"
    " DOWNSAMPLE COALESCE",
)

CARD_RANGE: Final = _struct(
    "start:u8 end:u8 device:u8 granularity:u4 ways:u2 position:u2 node:i4 pad:u4"
)
"""struct tierd_card_range."""

CARD_GEOMETRY: Final = _struct(
    "capacity:u8 features:u8 depth:u4 width:u4 counter_bits:u4 channels:u4 bins:u4 slots:u4"
    " unit_sizes:u4 cycles_100us:u4 threshold_max:u4 pad:u4"
)
"""struct tierd_card_geometry."""

CARD_STATS: Final = _names(
    "drains entries reported not_target shared file other gone busy outside overflows limited"
    " drain_ns level level_max interrupts accesses errors"
)
"""struct tierd_card_stats: uint64 each."""

PROFILE_COUNTERS: Final = _names(
    "valid time_ns sequence cycles read_beats write_beats busy_cycles offered counted skipped_type"
    " skipped_range skipped_sample reports reports_refused saturated epoch epoch_start applied_at"
)
"""The uint64 fields at the head of struct tierd_profile."""

PROFILE_BOUNDS: Final = _names("error_low error_high error_bin error_rank threshold bins")
"""The uint32 fields that follow; the histogram and `skipped_run` come behind them."""

PROFILE: Final = np.dtype(
    [(name, "=u8") for name in PROFILE_COUNTERS]
    + [(name, "=u4") for name in PROFILE_BOUNDS]
    + [("histogram", "=u8", (BINS,)), ("skipped_run", "=u8")]
)
"""struct tierd_profile."""
