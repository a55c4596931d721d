# SPDX-License-Identifier: Apache-2.0
"""`IdlePages`: the kernel's idle flags of page frames, and histories of pages; the work is C."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tierd._native import ffi, lib
from tierd.core.errors import UnavailableError
from tierd.core.pagekey import U64Array
from tierd.sources.kmod.ring import RecordArray
from tierd.sources.kmod.uapi import RECORD

MOST_UNITS: Final = int(lib.TIERD_IDLE_UNITS)
"""Pages, and 2 MiB that are mapped as a whole, that one step handles at most."""
END: Final = int(np.iinfo(np.uint64).max)
"""Of a step that goes on to the end of the process's ranges."""


def _checked(error: int, what: str) -> None:
    if error:
        raise UnavailableError(f"{what}: {os.strerror(-error)}")


class IdlePages:
    """The two files of the kernel, opened elsewhere.

    Args:
        bitmap: /sys/kernel/mm/page_idle/bitmap.
        flags: /proc/kpageflags.
        frames: page frames below it may be shared between targets.
        history_bytes: most memory of histories.
        calls: `struct tierd_idle_calls *` that stands for the kernel in a test.

    Raises:
        UnavailableError: there is no memory.
    """

    def __init__(
        self, bitmap: int, flags: int, frames: int, history_bytes: int, calls: Any = ffi.NULL
    ) -> None:
        made = ffi.new("struct tierd_idle **")
        error = lib.tierd_idle_new(bitmap, flags, frames, history_bytes, calls, made)
        if error:  # Nothing can be reserved for frames: each target sees its own accesses.
            error = lib.tierd_idle_new(bitmap, flags, 0, history_bytes, calls, made)
        _checked(error, "idle page tracking")
        self._calls = calls
        self.cdata = ffi.gc(made[0], lib.tierd_idle_free)
        self._stats = lib.tierd_idle_stats(self.cdata)
        self.record: RecordArray = np.zeros(MOST_UNITS, RECORD)
        self._record = ffi.from_buffer("struct tierd_hot_record[]", self.record)

    def place(self, spans: Sequence[tuple[int, int, int]]) -> None:
        """Say which nodes have which frames: (first, end, node), ascending and apart."""
        frames = np.array([each[:2] for each in spans], np.uint64).reshape(-1, 2)
        node = np.array([each[2] for each in spans], np.int16)
        error = lib.tierd_idle_nodes(
            self.cdata,
            ffi.from_buffer("struct tierd_span[]", frames),
            ffi.from_buffer("int16_t[]", node),
            len(node),
        )
        _checked(error, "nodes of page frames")

    def reader(self) -> IdleReader:
        """What reads pagemaps; another thread may use it, as it shares nothing with this.

        Raises:
            UnavailableError: there is no memory.
        """
        return IdleReader(self._calls)

    def scan(self, histories: IdleHistories, reader: IdleReader, step: Any) -> int:
        """Mark or check what was read last, as a `struct tierd_idle_step` says.

        Returns:
            0 or a negative errno; records are in `record`.
        """
        given = histories.cdata, reader.cdata, step
        return int(lib.tierd_idle_scan(self.cdata, *given, self._record))

    @property
    def stats(self) -> dict[str, int]:
        """struct tierd_idle_stats by field name."""
        return {name: int(getattr(self._stats, name)) for name in STATS}


STATS: Final = tuple(name for name, _ in ffi.typeof("struct tierd_idle_stats").fields)


class IdleReader:
    """Finds pages of processes, and their frames; `IdlePages.reader` makes one."""

    def __init__(self, calls: Any) -> None:
        made = ffi.new("struct tierd_idle_reader **")
        _checked(lib.tierd_idle_reader_new(calls, made), "a reader of pagemaps")
        self._calls = calls
        self.cdata = ffi.gc(made[0], lib.tierd_idle_reader_free)

    def read(self, pagemap: int, spans: U64Array, start: int, stop: int, most: int) -> int:
        """Read which pages are present in spans of page numbers; it may wait for ever.

        Args:
            start, stop: page numbers to begin and to end with.
            most: units, up to `MOST_UNITS`.

        Returns:
            0 or a negative errno; ESRCH: the process has ended, EPERM: page frames are hidden.
        """
        given = ffi.from_buffer("struct tierd_span[]", spans), len(spans)
        return int(lib.tierd_idle_read(self.cdata, pagemap, *given, start, stop, most))


def spans_of(ranges: Sequence[tuple[int, int]]) -> U64Array:
    """Ranges of page numbers, ascending and apart, as the C code takes them: uint64[n, 2]."""
    return np.array(ranges, np.uint64).reshape(-1, 2)


class IdleHistories:
    """Histories of one process's pages."""

    def __init__(self, pages: IdlePages) -> None:
        made = ffi.new("struct tierd_idle_histories **")
        _checked(lib.tierd_idle_histories_new(pages.cdata, made), "histories")
        self.cdata = ffi.gc(made[0], lib.tierd_idle_histories_free)

    def set_ranges(self, spans: U64Array) -> None:
        """Its ranges of page numbers."""
        error = lib.tierd_idle_ranges(
            self.cdata, ffi.from_buffer("struct tierd_span[]", spans), len(spans)
        )
        _checked(error, "ranges")

    def forget(self) -> None:
        """Forget all."""
        lib.tierd_idle_forget(self.cdata)

    def sweep(self, scan: int) -> None:
        """Forget the pages that the scan of this number did not meet."""
        lib.tierd_idle_sweep(self.cdata, scan)

    def close(self) -> None:
        """Free all, before the pages do."""
        ffi.release(self.cdata)
