# SPDX-License-Identifier: Apache-2.0
"""The guest's side of the card window from user space, for tests without a driver.

Protocol: `fpga/include/neoprof_window.h`, whose numbers are read from that file.
Registers: `neoprof.regs`. Works on any mapping of the window: the PCI device in a
guest, or the file behind it on the host.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import time
from pathlib import Path

import numpy as np

_HEADER = Path(__file__).resolve().parents[2] / "fpga/include/neoprof_window.h"
PCI = Path("/sys/bus/pci/devices")


def header_numbers() -> dict[str, int]:
    """The plain numbers that the header defines."""
    pattern = re.compile(r"#define (NPW_\w+) (0x[0-9a-f]+|\d+)u?\b")
    found = {name: int(text, 0) for name, text in pattern.findall(_HEADER.read_text())}
    assert "NPW_MAGIC" in found
    return found


N = header_numbers()
BYTES = N["NPW_CARD_BASE"] + N["NPW_CARDS_MAX"] * N["NPW_CARD_STRIDE"]


class WindowError(OSError):
    """The window answered with an error, or does not answer."""


def find_device() -> Path:
    """The PCI device of the window in this guest, with its memory switched on.

    Raises:
        WindowError: there is none.
    """
    for device in sorted(PCI.iterdir()):
        ids = [int((device / name).read_text(), 16) for name in ("vendor", "device")]
        if ids == [N["NPW_PCI_VENDOR"], N["NPW_PCI_DEVICE"]]:
            if not (device / "driver").exists():  # a driver has switched it on
                (device / "enable").write_text("1")
            return device / f"resource{N['NPW_PCI_BAR']}"
    raise WindowError(errno.ENODEV, "no PCI device 1af4:1110 in this machine")


class Window:
    """The window, mapped from `path` (default: this guest's PCI device)."""

    def __init__(self, path: Path | None = None, timeout_s: float = 20.0) -> None:
        fd = os.open(path or find_device(), os.O_RDWR | os.O_SYNC)
        try:
            self._map = mmap.mmap(fd, BYTES, mmap.MAP_SHARED)
        finally:
            os.close(fd)
        self._words = np.frombuffer(self._map, dtype=np.uint32)
        self._quads = np.frombuffer(self._map, dtype=np.uint64)
        self._timeout_s = timeout_s

    @property
    def alive(self) -> bool:
        """True while the host serves the window."""
        return int(self._words[N["NPW_MAGIC_OFFSET"] // 4]) == N["NPW_MAGIC"]

    @property
    def version(self) -> int:
        """Version of the protocol."""
        return int(self._words[N["NPW_VERSION_OFFSET"] // 4])

    @property
    def cards(self) -> int:
        """Cards in the window."""
        return int(self._words[N["NPW_CARDS_OFFSET"] // 4])

    @property
    def watching(self) -> bool:
        """True while memory traffic is watched."""
        return bool(self._words[N["NPW_LAB_WATCHING"] // 4])

    @property
    def guest_ns(self) -> int:
        """Guest time, as the cards know it, at the last answer."""
        return int(self._quads[N["NPW_LAB_GUEST_NS"] // 8])

    def _ring(self, doorbell: int, status: int, what: str) -> None:
        if not self.alive:
            raise WindowError(errno.ENODEV, f"{what}: the host of the window has gone")
        self._words[doorbell // 4] = N["NPW_DOORBELL_POSTED"]
        limit = time.monotonic() + self._timeout_s
        turns = 0
        while self._words[doorbell // 4] != N["NPW_DOORBELL_IDLE"]:
            if not self.alive:
                raise WindowError(errno.ENODEV, f"{what}: the host of the window has gone")
            if time.monotonic() > limit:
                raise WindowError(errno.ETIMEDOUT, f"{what}: no answer in {self._timeout_s} s")
            turns += 1
            if turns > 100:
                time.sleep(0.0005)
        error = -int(self._words[status // 4].astype(np.int32))
        if error:
            raise WindowError(error, f"{what}: {os.strerror(error)}")

    def _post(self, card: int, op: int, offset: int, size: int, count: int = 0) -> int:
        base = N["NPW_CARD_BASE"] + card * N["NPW_CARD_STRIDE"]
        for name, value in (
            ("NPW_OP", op),
            ("NPW_OFFSET", offset),
            ("NPW_SIZE", size),
            ("NPW_COUNT", count),
        ):
            self._words[(base + N[name]) // 4] = value
        self._ring(
            base + N["NPW_DOORBELL"], base + N["NPW_STATUS"], f"card {card}, register {offset:#x}"
        )
        return base

    def read(self, card: int, offset: int, size: int = 8) -> int:
        """A register of a card."""
        base = self._post(card, N["NPW_OP_READ"], offset, size)
        return int(self._quads[(base + N["NPW_VALUE"]) // 8])

    def write(self, card: int, offset: int, value: int, size: int = 8) -> None:
        """Write a register of a card."""
        base = N["NPW_CARD_BASE"] + card * N["NPW_CARD_STRIDE"]
        self._quads[(base + N["NPW_VALUE"]) // 8] = value
        self._post(card, N["NPW_OP_WRITE"], offset, size)

    def read_block(self, card: int, offset: int, count: int) -> list[int]:
        """`count` registers of 8 bytes in a row."""
        most = N["NPW_BUFFER_BYTES"] // 8
        values: list[int] = []
        while len(values) < count:
            now = min(most, count - len(values))
            base = self._post(card, N["NPW_OP_READ_BLOCK"], offset + 8 * len(values), 8, now)
            begin = (base + N["NPW_BUFFER"]) // 8
            values += self._quads[begin : begin + now].tolist()
        return values

    def hdm(self, card: int) -> bytes:
        """The HDM decoder capability structure of a card, at its largest."""
        begin = N["NPW_CARD_BASE"] + card * N["NPW_CARD_STRIDE"] + N["NPW_HDM"]
        return bytes(self._map[begin : begin + 0x10 + 0x20 * 10])

    def lab(self, name: str) -> None:
        """An operation of the lab's mailbox: START, STOP, DUMP, CLEAR or SPEED."""
        self._words[N["NPW_LAB_OP"] // 4] = N[f"NPW_LAB_{name}"]
        self._ring(N["NPW_LAB_DOORBELL"], N["NPW_LAB_STATUS"], f"lab operation {name}")

    def set_speed(
        self, node: int, *, latency_ps: int, bandwidth: int, every: int = 0, delay_ps: int = 0
    ) -> None:
        """Give a node another latency and bandwidth (MB/s).

        One demand miss in `every` takes `delay_ps` longer; 0: none.
        """
        words = {"NODE": node, "LATENCY_PS": latency_ps, "BANDWIDTH": bandwidth}
        words |= {"EVERY": every, "DELAY_PS": delay_ps}
        for name, value in words.items():
            self._words[N[f"NPW_LAB_{name}"] // 4] = value
        self.lab("SPEED")
