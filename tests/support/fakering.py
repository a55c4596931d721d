# SPDX-License-Identifier: Apache-2.0
"""The kernel module's ring in ordinary memory, written by a test."""

from __future__ import annotations

from typing import Any

import numpy as np

from tierd.sources.kmod import uapi
from tierd.sources.kmod.uapi import INFO, RECORD, Kind, PageFlags


class FakeRing:
    """A ring of `capacity` records; `memory` is what a mapping of /dev/tierd would be."""

    def __init__(self, capacity: int = 4096) -> None:
        size = uapi.RING_DATA + capacity * RECORD.itemsize
        # Aligned as a mapping is; the first bytes of a bytearray need not be.
        self._bytes = np.zeros(size // 8 + 1, np.uint64)
        self.memory: Any = self._bytes.view(np.uint8)[:size]
        self._info: Any = self.memory[: INFO.itemsize].view(INFO)
        self._head: Any = self.memory[uapi.RING_HEAD : uapi.RING_HEAD + 8].view(np.uint64)
        self._records: Any = self.memory[uapi.RING_DATA :].view(RECORD)
        self.capacity = capacity
        self._info["magic"], self._info["version"] = uapi.RING_MAGIC, uapi.RING_VERSION
        self._info["record_size"], self._info["capacity"] = RECORD.itemsize, capacity
        self._info["size"] = size

    @property
    def unread(self) -> int:
        """Records that the reader has not consumed."""
        return int(self._info["tail"][0] - self._head[0])

    @property
    def dropped(self) -> int:
        """Records that found no room."""
        return int(self._info["dropped"][0])

    def close_down(self) -> None:
        """Ask readers to let go."""
        self._info["closing"] = 1

    def put(self, records: Any) -> None:
        """Append `uapi.RECORD`[n]; what does not fit is dropped, and counted."""
        room = self.capacity - self.unread
        tail = int(self._info["tail"][0])
        fits = records[:room]
        self._records[(tail + np.arange(len(fits))) % self.capacity] = fits
        self._info["tail"] += len(fits)
        self._info["dropped"] += len(records) - len(fits)


def hot_records(
    page: Any, count: Any, time_ns: int, *, node: int = 1, card: int = 0, order: int = 0
) -> Any:
    """Records of kind HOT for page keys with these counts."""
    page = np.asarray(page, np.uint64)
    made = np.zeros(len(page), RECORD)
    made["page"], made["value"], made["time_ns"] = page, count, time_ns
    made["kind"], made["node"], made["history"], made["order"] = Kind.HOT, node, card, order
    return made


def page_record(
    page: int, history: int, depth: int, flags: int = PageFlags.HOT, order: int = 0
) -> Any:
    """One record of kind PAGE: `history` of `depth` looks."""
    made = np.zeros(1, RECORD)
    made["page"], made["history"], made["value"] = page, history, depth
    made["kind"], made["flags"], made["order"] = Kind.PAGE, flags, order
    return made
