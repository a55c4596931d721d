# SPDX-License-Identifier: Apache-2.0
"""`Traffic`: the exact memory traffic of a watched machine, read from the host."""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd.core.errors import TierdError
from tierd_lab.plugin import DUMP, WINDOW
from tierd_lab.timemodel import Region, parse_region

_MAGIC: Final = 0x4E57504E
_MAGIC_OFFSET: Final = 0x00
_WATCHING: Final = 0x0C
_GUEST_NS: Final = 0x10
_DOORBELL: Final = 0x40
_OP: Final = 0x44
_STATUS: Final = 0x48
_OPS: Final = {"start": 1, "stop": 2, "dump": 3, "clear": 4}
_LOOK_S: Final = 0.002
DEFAULT_TIMEOUT_S: Final = 60.0


class TrafficError(TierdError):
    """The watching plugin did not do what it was asked for."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What went past the last-level cache since the start or the last `clear`.

    Attributes:
        guest_ns: guest time of the dump.
        instructions: guest instructions executed by then, since the boot.
        clock: where guest time is from: "host", "virtual" (QEMU's -icount clock), or
            "instructions" (sleeps are missing: this QEMU does not export its clock).
        reads, writes: lines read from and written back to memory, by guest-physical page
            frame number, 4 KiB pages, uint32.
        node_reads, node_writes: the same, by node.
        outside: requests outside every node.
        cards: per card: kind, cycles_per_100us, reads, writes, unmapped, cycles,
            skipped_cycles.
        region: the last whole region that a program marked, where time is modelled.
    """

    guest_ns: int
    instructions: int
    clock: str
    reads: npt.NDArray[np.uint32]
    writes: npt.NDArray[np.uint32]
    node_reads: dict[int, int]
    node_writes: dict[int, int]
    outside: int
    cards: tuple[dict[str, Any], ...]
    region: Region | None = None

    @property
    def requests(self) -> npt.NDArray[np.uint64]:
        """Reads and writes together, by page frame number, uint64."""
        return self.reads.astype(np.uint64) + self.writes


class Traffic:
    """A running machine's traffic. Made from the folder of its run.

    The plugin answers while the guest executes instructions: every call waits for it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Watch from here on; the cache is empty at first.

        Raises:
            TrafficError: the plugin does not answer.
        """
        self._ask("start", timeout_s)

    def stop(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Watch no more: the guest runs several times as fast.

        Raises:
            TrafficError: the plugin does not answer.
        """
        self._ask("stop", timeout_s)

    def clear(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Set the counts to zero; cards and cache stay as they are.

        While nothing is watched, also forget which processes said whose they are (mark.h).

        Raises:
            TrafficError: the plugin does not answer.
        """
        self._ask("clear", timeout_s)

    def counts(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Counts:
        """The counts of this moment.

        Raises:
            TrafficError: the plugin does not answer.
        """
        self._ask("dump", timeout_s)
        return read_dump(self._folder / DUMP)

    @property
    def watching(self) -> bool:
        """True while memory traffic is watched."""
        return bool(self._word(_WATCHING))

    @property
    def guest_ns(self) -> int:
        """Guest time when the plugin last answered anybody."""
        with (self._folder / WINDOW).open("rb") as file:
            return int(struct.unpack_from("<Q", file.read(_GUEST_NS + 8), _GUEST_NS)[0])

    def hang_up(self) -> None:
        """Make the window look as if the host had gone: nothing is answered any more."""
        with (self._folder / WINDOW).open("r+b") as file:
            file.seek(_MAGIC_OFFSET)
            file.write(bytes(4))

    def _word(self, offset: int) -> int:
        with (self._folder / WINDOW).open("rb") as file:
            return int(struct.unpack_from("<I", file.read(offset + 4), offset)[0])

    def _ask(self, what: str, timeout_s: float) -> None:
        fd = os.open(self._folder / WINDOW, os.O_RDWR)
        try:
            window = mmap.mmap(fd, mmap.PAGESIZE)
        finally:
            os.close(fd)
        with window:
            if struct.unpack_from("<I", window, _MAGIC_OFFSET)[0] != _MAGIC:
                raise TrafficError(
                    f"asking the lab's plugin to {what}: no plugin serves this machine's window",
                    hint="has the machine ended, or has it neither a card nor a [cache] table?",
                )
            struct.pack_into("<I", window, _OP, _OPS[what])
            struct.pack_into("<I", window, _DOORBELL, 1)
            limit = time.monotonic() + timeout_s
            while struct.unpack_from("<I", window, _DOORBELL)[0]:
                if time.monotonic() > limit:
                    raise TrafficError(
                        f"asking the lab's plugin to {what}: no answer within {timeout_s:.0f} s",
                        hint="it answers while the guest runs: is the guest dead?",
                    )
                time.sleep(_LOOK_S)
            status = struct.unpack_from("<i", window, _STATUS)[0]
        if status:
            raise TrafficError(f"asking the lab's plugin to {what}: {os.strerror(-status)}")


def read_dump(stem: Path) -> Counts:
    """The counts in the files `stem`.json and `stem`.pages."""
    summary = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
    pages = np.fromfile(stem.with_suffix(".pages"), dtype="<u4").reshape(-1, 2)
    return Counts(
        guest_ns=summary["guest_ns"],
        instructions=summary["instructions"],
        clock=summary["clock"],
        reads=pages[:, 0],
        writes=pages[:, 1],
        node_reads={int(node): counts["reads"] for node, counts in summary["nodes"].items()},
        node_writes={int(node): counts["writes"] for node, counts in summary["nodes"].items()},
        outside=summary["outside"],
        cards=tuple(summary["cards"]),
        region=parse_region(summary.get("region")),
    )
