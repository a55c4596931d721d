# SPDX-License-Identifier: Apache-2.0
"""A NeoProf card in this process, through the C interface of ``neoprof_card.h``."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self

import cffi
import numpy as np
import numpy.typing as npt

from neoprof import regs

# The declarations of fpga/include/neoprof_card.h; a unit test compares the two.
DECLARATIONS = """
typedef struct np_card np_card;
const char *np_card_kind(void);
np_card *np_card_open(unsigned log2_width, unsigned ring_size, unsigned cycles_per_100us);
void np_card_close(np_card *card);
int np_card_push(np_card *card, const uint64_t *requests, size_t count);
int np_card_step(np_card *card, uint64_t cycles);
int np_card_read(np_card *card, uint32_t offset, unsigned size, uint64_t *value);
int np_card_write(np_card *card, uint32_t offset, unsigned size, uint64_t value);
int np_card_settle(np_card *card);
int np_card_reset(np_card *card);
int np_card_irq(np_card *card);
uint64_t np_card_cycles(const np_card *card);
int np_card_peek(np_card *card, unsigned row, uint32_t index, uint32_t *count);
"""

WRITE = 1 << 62
"""Marks a request that writes."""
NONE = 1 << 63
"""An idle slot of a channel."""

LIBRARY_DIR_VARIABLE = "TIERD_NEOPROF_LIBRARY_DIR"
_COUNT_MASK = 0xFFFF
_COUNT_BITS = 16
_BUILD = Path(__file__).resolve().parents[3] / "fpga" / "build"

Kind = Literal["rtl", "model", "rtl-table", "model-table"]


class CardError(Exception):
    """An access to the card failed. Says what was tried, what was found and what to do."""


@dataclass(frozen=True)
class Snapshot:
    """Statistics and histogram of one moment; names as in the register map's snapshot block."""

    sequence: int
    cycles: int
    busy_cycles: int
    read_beats: int
    write_beats: int
    offered: int
    counted: int
    skipped_type: int
    skipped_range: int
    skipped_sample: int
    reports: int
    reports_refused: int
    saturated: int
    epoch: int
    epoch_start: int
    applied_at: int
    skipped_run: int
    displaced: int
    histogram: tuple[int, ...]


def library_path(kind: Kind) -> Path:
    """Return where the card library of a kind is looked for.

    The folder is ``$TIERD_NEOPROF_LIBRARY_DIR`` or the build folder of the source tree.
    """
    folder = os.environ.get(LIBRARY_DIR_VARIABLE)
    return (Path(folder) if folder else _BUILD) / f"libneoprof-{kind}.so"


class Card:
    """One card. Use as a context manager or call `close`."""

    def __init__(
        self,
        kind: Kind = "model",
        *,
        library: Path | None = None,
        log2_width: int = 0,
        ring_size: int = 0,
        cycles_per_100us: int = 0,
    ) -> None:
        """Open a card; 0 stands for the full-size card's value.

        Raises CardError if the library is missing or was not built with that geometry.
        """
        path = library or library_path(kind)
        self._ffi = cffi.FFI()
        self._ffi.cdef(DECLARATIONS)
        try:
            self._lib: Any = self._ffi.dlopen(str(path))
        except OSError as error:
            raise CardError(
                f"cannot load the card library {path}: {error}; build it with "
                f"'make -C fpga build' or set {LIBRARY_DIR_VARIABLE}"
            ) from error
        self._card: Any = self._lib.np_card_open(log2_width, ring_size, cycles_per_100us)
        if self._card == self._ffi.NULL:
            name = errno.errorcode.get(self._ffi.errno, str(self._ffi.errno))
            raise CardError(
                f"{path} did not open a card with 2^{log2_width} counters, {ring_size} slots and "
                f"{cycles_per_100us} cycles in 100 us: {name}; the RTL is built with one geometry, "
                "use 0 for its own"
            )

    def close(self) -> None:
        """Free the card. May be called twice."""
        if self._card is not None:
            self._lib.np_card_close(self._card)
            self._card = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def kind(self) -> str:
        """Return "rtl" or "model"."""
        name: bytes = self._ffi.string(self._lib.np_card_kind())
        return name.decode()

    @property
    def cycles(self) -> int:
        """Memory clock cycles since the card was opened."""
        return int(self._lib.np_card_cycles(self._card))

    def _check(self, result: int, what: str) -> None:
        if result < 0:
            name = errno.errorcode.get(-result, str(-result))
            raise CardError(f"{self.kind} card: {what}: {name} ({os.strerror(-result)})")

    def push(self, requests: npt.NDArray[np.uint64] | Iterable[int]) -> None:
        """Put requests on the channels, two a memory clock, even elements on channel 0.

        An element is a device physical address, with `WRITE` if it writes; `NONE` leaves the
        channel idle in that cycle.
        """
        array = np.ascontiguousarray(
            requests if isinstance(requests, np.ndarray) else list(requests), dtype=np.uint64
        )
        pointer = self._ffi.from_buffer("uint64_t[]", array)
        self._check(self._lib.np_card_push(self._card, pointer, array.size), "pushing requests")

    def step(self, cycles: int) -> None:
        """Let memory clock cycles pass."""
        self._check(self._lib.np_card_step(self._card, cycles), f"stepping {cycles} cycles")

    def read(self, offset: int, size: int = 8) -> int:
        """Read a register, as a host does. Raises CardError on a bus error or misalignment."""
        value = self._ffi.new("uint64_t *")
        self._check(
            self._lib.np_card_read(self._card, offset, size, value),
            f"read of {size} bytes at 0x{offset:x}",
        )
        return int(value[0])

    def write(self, offset: int, value: int, size: int = 8) -> None:
        """Write a register, as a host does. Raises CardError on a bus error or misalignment."""
        self._check(
            self._lib.np_card_write(self._card, offset, size, value),
            f"write of {size} bytes at 0x{offset:x}",
        )

    def settle(self) -> None:
        """Let time pass until no command is on its way."""
        self._check(self._lib.np_card_settle(self._card), "settling")

    def reset(self) -> None:
        """Pulse the hardware reset and wait for the initialisation."""
        self._check(self._lib.np_card_reset(self._card), "hardware reset")

    @property
    def irq(self) -> bool:
        """Level of the interrupt line."""
        return bool(self._lib.np_card_irq(self._card))

    def peek(self, row: int, index: int) -> int:
        """Return a counter of the sketch. For tests: a host cannot see it."""
        count = self._ffi.new("uint32_t *")
        self._check(
            self._lib.np_card_peek(self._card, row, index, count), f"counter {index} of row {row}"
        )
        return int(count[0])

    # ------------------------------------------------------------ what drivers do
    def start(
        self,
        threshold: int,
        *,
        what: int = 3,
        unit_log2: int = 12,
        downsample: int = 0,
        random: bool = False,
        conservative: bool = False,
        coalesce: bool = False,
        run_window: int = 0,
    ) -> None:
        """Reset the unit and start it in always-on mode over all ranges.

        Raises CardError, with the card's reasons, if it refuses the configuration.
        """
        self.write(regs.CHMU0_CFG0, regs.CHMU0_CFG0_RESET_MASK)
        self.settle()
        for offset in range(0, regs.RANGE_BITMAP_BYTES, 8):
            self.write(regs.RANGE_BITMAP + offset, (1 << 64) - 1)
        self.write(
            regs.VENDOR_CONFIG,
            int(conservative) << regs.VENDOR_CONFIG_CONSERVATIVE_SHIFT
            | int(coalesce) << regs.VENDOR_CONFIG_COALESCE_SHIFT
            | run_window << regs.VENDOR_CONFIG_RUN_WINDOW_SHIFT,
        )
        self.write(
            regs.CHMU0_CFG1,
            unit_log2
            | downsample << regs.CHMU0_CFG1_DOWNSAMPLING_SHIFT
            | 1 << regs.CHMU0_CFG1_MODE_SHIFT,
        )
        self.write(
            regs.CHMU0_CFG0,
            what
            | int(random) << regs.CHMU0_CFG0_RANDOM_DOWNSAMPLING_SHIFT
            | regs.CHMU0_CFG0_ENABLE_MASK
            | threshold << regs.CHMU0_CFG0_THRESHOLD_SHIFT,
        )
        self.settle()
        if not self.read(regs.CHMU0_STATUS) & regs.CHMU0_STATUS_ENABLED_MASK:
            errors = self.read(regs.VENDOR_CONFIG_ERROR)
            raise CardError(
                f"the card refused the configuration: CONFIG_ERROR is 0x{errors:x} "
                "(docs/hardware/registers.md says what each bit means)"
            )

    def snapshot(self) -> Snapshot:
        """Take a snapshot and read it."""
        self.settle()
        self.write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
        self.settle()
        words = [
            self.read(offset)
            for offset in range(regs.SNAPSHOT_SEQUENCE, regs.SNAPSHOT_DISPLACED + 8, 8)
        ]
        bins = tuple(
            self.read(regs.HISTOGRAM_BIN + bin_ * regs.HISTOGRAM_BIN_STRIDE)
            for bin_ in range(regs.HISTOGRAM_BIN_COUNT)
        )
        names = (field.name for field in fields(Snapshot))
        values: dict[str, Any] = dict(zip(names, words, strict=False))
        return Snapshot(**values, histogram=bins)

    def drain(self) -> list[tuple[int, int]]:
        """Take what is in the hot list: (unit number, count when reported), oldest first."""
        self.settle()
        slots = self.read(regs.CHMU0_CAP0) >> regs.CHMU0_CAP0_HOTLIST_SIZE_SHIFT
        pointers = self.read(regs.CHMU0_HOTLIST, 4)
        head, tail = pointers & 0xFFFF, pointers >> regs.CHMU0_HOTLIST_TAIL_SHIFT
        entries = []
        while head != tail:
            entry = self.read(regs.HOTLIST + 8 * head)
            entries.append((entry >> _COUNT_BITS, entry & _COUNT_MASK))
            head = (head + 1) % slots
        self.write(regs.CHMU0_HOTLIST, tail, 2)
        self.settle()
        return entries
