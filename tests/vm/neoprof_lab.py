# SPDX-License-Identifier: Apache-2.0
"""Helpers of the NeoProf driver's checks inside a lab guest: mailbox, memory on a node, cards."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import guest_kmod as lab
import numpy as np
from frames import frames_of

from tierd.core.errors import UnavailableError
from tierd.sources.kmod.neoprof import Card, Cards
from tierd.sources.kmod.netlink import Control
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import Kind

PCI = Path("/sys/bus/pci/devices")
MAIL_DATA = 64 << 10
CXL_NODE = 1
WRITE = np.uint64(1 << 62)
FULL, SMALL, PUBLISHED, INTERRUPTING = 0, 1, 2, 3
"""Numbers of the cards (tests/support/window_server.py); the last is behind a second window."""
TIMEOUT_MS = 20_000
"""A host under load may answer late; only tests of silence wait for less."""
WAIT_S = 120.0

_libc = ctypes.CDLL(None, use_errno=True)
_SET_MEMPOLICY, _MPOL_DEFAULT, _MPOL_BIND = 238, 0, 2


def devices() -> list[Path]:
    """The shared memories in the order of their addresses: window, mailbox, image."""
    return sorted(
        path
        for path in PCI.iterdir()
        if (path / "vendor").read_text().strip() == "0x1af4"
        and (path / "device").read_text().strip() == "0x1110"
    )


class Mailbox:
    """What only the host can do."""

    def __init__(self) -> None:
        device = devices()[1]
        (device / "enable").write_text("1")
        fd = os.open(device / "resource2", os.O_RDWR | os.O_SYNC)
        self._map = mmap.mmap(fd, 4 << 20)
        # Each number by one store: a copy of four bytes may store them twice, and the server,
        # done between the two, would find its own answer for a request.
        self._numbers = np.frombuffer(self._map, "<u4")
        os.close(fd)

    def ask(self, do: str, array: np.ndarray | None = None, **words: Any) -> Any:
        """One request to the host's server, and its answer."""
        if array is not None:
            data = np.ascontiguousarray(array, np.uint64).tobytes()
            self._map[MAIL_DATA : MAIL_DATA + len(data)] = data
        text = json.dumps({"do": do, **words}).encode()
        self._map[8 : 8 + len(text)] = text
        self._numbers[1] = len(text)
        self._numbers[0] = 1
        until(lambda: self._numbers[0] == 0, "the host's server does not answer")
        answer = json.loads(self._map[8 : 8 + int(self._numbers[1])])
        assert not isinstance(answer, dict) or "error" not in answer, answer
        return answer

    def push(
        self,
        card: int,
        pages: Sequence[int] | np.ndarray,
        repeat: int,
        *,
        lines: int = 1,
        **words: Any,
    ) -> None:
        """Each page frame is accessed `repeat` times; WRITE may be added to its address.

        Each time its first `lines` lines, one after the other.
        """
        pfns = np.asarray(pages, np.uint64)
        for start in range(0, len(pfns), 100_000):
            part = pfns[start : start + 100_000] << np.uint64(12)
            part = (part[:, None] + np.arange(lines, dtype=np.uint64) * np.uint64(64)).ravel()
            self.ask("push", part, card=card, count=len(part), repeat=repeat, **words)


_mailbox: list[Mailbox] = []


def host() -> Mailbox:
    """The mailbox; mapped once, before any driver may take the device."""
    if not _mailbox:
        _mailbox.append(Mailbox())
    return _mailbox[0]


def forget_host() -> None:
    """Map the mailbox anew next time: a driver that claimed the device took it away."""
    _mailbox.clear()


def until(true: Callable[[], Any], problem: str, limit_s: float = WAIT_S) -> Any:
    """Wait for a condition; its value."""
    end = time.monotonic() + limit_s
    while not (value := true()):
        assert time.monotonic() < end, problem
        time.sleep(0.002)
    return value


def node_ranges(node: int = CXL_NODE) -> list[tuple[int, int]]:
    """Physical byte ranges of a node, from its memory blocks."""
    block = int(Path("/sys/devices/system/memory/block_size_bytes").read_text(), 16)
    folder = Path(f"/sys/devices/system/node/node{node}")
    numbers = sorted(
        int(match.group(1))
        for path in folder.iterdir()
        if (match := re.fullmatch(r"memory(\d+)", path.name))
    )
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        start = number * block
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], start + block)
        else:
            ranges.append((start, start + block))
    return ranges


def decode_node() -> None:
    """Decoders as of a card that is the node, one of a part of it, and a published one."""
    whole = [{"start": low, "size": high - low} for low, high in node_ranges()]
    part = [{"start": whole[-1]["start"], "size": 512 << 20}]
    cards_ = ((FULL, whole), (SMALL, part), (PUBLISHED, whole), (INTERRUPTING, part))
    for card, decoders in cards_:
        host().ask("decoders", card=card, decoders=decoders)


class Pages:
    """Anonymous memory of this process on a node."""

    def __init__(self, count: int, node: int = CXL_NODE, *, huge: bool = False) -> None:
        size = count * 4096 + (2 << 20)
        self.map = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.offset = -start % (2 << 20)
        self.map.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
        mask = ctypes.c_ulong(1 << node)
        assert _libc.syscall(_SET_MEMPOLICY, _MPOL_BIND, ctypes.byref(mask), 64) == 0
        try:
            for page in range(count):
                self.map[self.offset + page * 4096] = 1
        finally:
            _libc.syscall(_SET_MEMPOLICY, _MPOL_DEFAULT, None, 0)
        self.count = count
        self.vpn = (start + self.offset) >> 12

    @property
    def vpns(self) -> np.ndarray:
        """Virtual page numbers, uint64[count]."""
        return np.arange(self.vpn, self.vpn + self.count, dtype=np.uint64)

    @property
    def pfns(self) -> np.ndarray:
        """Page frames, uint64[count]."""
        found = frames_of(os.getpid(), self.vpn, self.count)
        assert np.all(found), "not all pages are present"
        return found


@contextlib.contextmanager
def cards() -> Iterator[Cards]:
    """A connection for cards for the length of a block."""
    connection = Cards.open()
    try:
        yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def ring(*kinds: Kind) -> Iterator[Ring]:
    """A ring that gets these kinds of records."""
    opened = Ring.open(kinds=kinds)
    try:
        yield opened
    finally:
        opened.close()


@contextlib.contextmanager
def driver(**parameters: Any) -> Iterator[None]:
    """The modules, with this process as target 7, over a window that works."""
    host().ask("magic", on=True)
    host().ask("answering", on=True)
    decode_node()
    with lab.module():
        lab.load_cards(**{"timeout_ms": TIMEOUT_MS, **parameters})
        control = Control.open()
        try:
            control.target_add(7, os.getpid())
            yield
        finally:
            control.close()


def drained(connection: Cards, number: int, more: int = 2) -> Card:
    """The card after `more` drains from now on."""
    before = connection.card(number).stats["drains"]
    return until(
        lambda: (card := connection.card(number)).stats["drains"] >= before + more and card,
        "the card is not drained",
    )


def no_requests(number: int) -> int:
    """The error that reading how many requests a card has seen ends with; 0: it tells."""
    try:
        Path(f"/sys/class/neoprof/neoprof{number}/requests").read_text()
    except OSError as error:
        return error.errno or 0
    return 0


def refused(connection: Cards, number: int, **settings: object) -> str:
    """The reason with which settings are refused; empty if they are not."""
    try:
        connection.set(number, **settings)  # type: ignore[arg-type]
    except UnavailableError as error:
        return str(error)
    return ""
