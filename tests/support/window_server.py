# SPDX-License-Identifier: Apache-2.0
"""Plays the host's part of a NeoProf window (fpga/include/neoprof_window.h) without a plugin.

A thread polls the doorbells of a file that a virtual machine maps too (ivshmem-plain) and
serves them with model cards. A second such file, the mailbox, lets the guest's test ask for
what only the host can do: requests to a card's memory, silence, the window's end.
"""

from __future__ import annotations

import json
import mmap
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from doorbell import Doorbell

from neoprof.card import Card, CardError

HEADER = Path(__file__).resolve().parents[2] / "fpga/include/neoprof_window.h"
WINDOW_BYTES = 128 << 10
MAILBOX_BYTES = 4 << 20
MAIL_DATA = 64 << 10
"""Offset of the arrays that go with a mail."""


def _numbers() -> dict[str, int]:
    """The header's plain numbers, by name."""
    found = re.findall(r"#define (NPW_\w+)\s+(0x[0-9a-f]+|\d+)u?\b", HEADER.read_text())
    return {name: int(number, 0) for name, number in found}


NPW = _numbers()


class Registers(Protocol):
    """What a card is to the window."""

    def read(self, offset: int, size: int) -> int: ...
    def write(self, offset: int, value: int, size: int) -> None: ...
    def push(self, requests: Any) -> None: ...


class PublishedCard:
    """The published design's registers over exact counts: what its driver may rely on."""

    EDGES = np.array([(8 << b // 8) - 8 + (b % 8 << b // 8) for b in range(64)])
    WIDTH = 512 << 10

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.hot: list[int] = []
        self.words: list[int] = []
        self.sums = np.zeros(64, np.int64)
        self.threshold = 0xFFFF
        self.resets = self.reads = self.writes = 0

    def read(self, offset: int, size: int) -> int:
        """Read a 32-bit register; two of them are popped by it."""
        if size != 4:
            raise CardError("32-bit registers only")
        if offset == 0x300:
            return self.hot.pop(0) if self.hot else 0
        if offset == 0x800:
            return self.words.pop(0) if self.words else 0
        values = {0x200: len(self.hot), 0x500: self.reads + self.writes + 1000}
        values |= {0x600: self.reads, 0x700: self.writes, 0x900: len(self.words)}
        return values.get(offset, 0)

    def write(self, offset: int, value: int, size: int) -> None:
        """Write a 32-bit register."""
        if size != 4:
            raise CardError("32-bit registers only")
        if offset == 0x200:
            self.resets += 1
            self.hot.clear()
            self.sums[:] = 0
            self.reads = self.writes = 0
        if offset in (0x200, 0x300):
            self.counts.clear()
        if offset == 0x300:
            self.threshold = value & 0xFFFF
        if offset == 0x600:
            values = np.fromiter(self.counts.values(), np.int64, len(self.counts))
            bins = np.bincount(np.searchsorted(self.EDGES, values, "right") - 1, minlength=64)
            bins[0] += self.WIDTH - len(self.counts)
            self.sums += bins  # the design adds to what an earlier one left
            self.words = self.sums.tolist()

    def push(self, requests: Any) -> None:
        """Count reads; writes only move the bandwidth."""
        for request in np.asarray(requests, np.uint64).tolist():
            if request >> 62:
                self.writes += 1
                continue
            self.reads += 1
            page = request >> 12
            count = self.counts[page] = self.counts.get(page, 0) + 1
            if count == self.threshold + 1 and len(self.hot) < 16384:
                self.hot.append(page)


class Memory:
    """A file that host and guest map."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        with path.open("wb") as file:
            file.truncate(size)
        with path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), size)
        # Each number by one store: struct.pack_into() writes zeros first, and the guest, which
        # sees a doorbell of 0 at once, would lose its next request to the second store.
        self._views = {4: np.frombuffer(self.map, "<u4"), 8: np.frombuffer(self.map, "<u8")}

    def get(self, offset: int, size: int = 4) -> int:
        """A number at an offset that is a multiple of its size."""
        return int(self._views[size][offset // size])

    def put(self, offset: int, value: int, size: int = 4) -> None:
        """Write a number."""
        self._views[size][offset // size] = value & ((1 << 8 * size) - 1)


class WindowServer:
    """Serves two windows and a mailbox in `folder` until `close`.

    The first window has all cards but the last one, which is behind the second, a window
    with an interrupt.
    """

    def __init__(self, folder: Path, cards: list[Registers]) -> None:
        self.window = Memory(folder / "window", WINDOW_BYTES)
        self.mailbox = Memory(folder / "mailbox", MAILBOX_BYTES)
        self.image = Memory(folder / "image", 1 << 20)
        self.second = Memory(folder / "second", WINDOW_BYTES)
        self.doorbell = Doorbell(folder / "doorbell", self.second.path)
        self.cards = cards
        self.places = [(self.window, n) for n in range(len(cards) - 1)] + [(self.second, 0)]
        self._irq = False
        self.decoders: list[list[dict[str, int]]] = [[] for _ in cards]
        self.answering = True
        self.served = 0
        self.failure: BaseException | None = None
        self._reset()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def qemu_args(self) -> tuple[str, ...]:
        """QEMU's options that give a machine the devices, in the order of their addresses."""
        words: list[str] = []
        for memory in (self.window, self.mailbox, self.image):
            name, size = memory.path.name, len(memory.map)
            backend = f"memory-backend-file,id=np{name},size={size},mem-path={memory.path}"
            words += ["-object", f"{backend},share=on"]
            words += ["-device", f"ivshmem-plain,memdev=np{name}"]
        words += ["-chardev", f"socket,id=npdoorbell,path={self.doorbell.path}"]
        words += ["-device", "ivshmem-doorbell,vectors=1,chardev=npdoorbell"]
        return tuple(words)

    def close(self) -> None:
        """Stop serving."""
        self._end.set()
        self._thread.join()
        self.doorbell.close()

    # ------------------------------------------------------------ the window
    def _reset(self) -> None:
        for memory, count in ((self.window, len(self.cards) - 1), (self.second, 1)):
            memory.put(NPW["NPW_VERSION_OFFSET"], NPW["NPW_VERSION"])
            memory.put(NPW["NPW_CARDS_OFFSET"], count)
            memory.put(NPW["NPW_MAGIC_OFFSET"], NPW["NPW_MAGIC"])

    def _part(self, number: int) -> tuple[Memory, int]:
        memory, place = self.places[number]
        return memory, NPW["NPW_CARD_BASE"] + place * NPW["NPW_CARD_STRIDE"]

    def _interrupt(self) -> None:
        """Message-signalled: one when the last card's line rises."""
        irq = bool(getattr(self.cards[-1], "irq", False))
        if irq and not self._irq:
            self.doorbell.ring()
        self._irq = irq

    def _serve(self) -> None:
        idle = 0
        try:
            while not self._end.is_set():
                worked = self._mail()
                if self.answering:
                    for number, card in enumerate(self.cards):
                        worked |= self._request(number, card)
                if worked:
                    self._interrupt()
                idle = 0 if worked else idle + 1
                # Two cores are shared with the machine that waits for the answer.
                time.sleep(0 if idle < 50 else 0.0002)
        except BaseException as error:
            self.failure = error
            raise

    def _request(self, number: int, card: Registers) -> bool:
        window, part = self._part(number)
        if window.get(part + NPW["NPW_DOORBELL"]) != NPW["NPW_DOORBELL_POSTED"]:
            return False
        op, offset = (window.get(part + NPW[f"NPW_{name}"]) for name in ("OP", "OFFSET"))
        size, count = (window.get(part + NPW[f"NPW_{name}"]) for name in ("SIZE", "COUNT"))
        status = 0
        try:
            if op == NPW["NPW_OP_READ"]:
                window.put(part + NPW["NPW_VALUE"], card.read(offset, size), 8)
            elif op == NPW["NPW_OP_WRITE"]:
                value = window.get(part + NPW["NPW_VALUE"], 8)
                card.write(offset, value & ((1 << 8 * size) - 1), size)
            else:
                values = b"".join(
                    card.read(offset + i * size, size).to_bytes(size, "little")
                    for i in range(count)
                )
                start = part + NPW["NPW_BUFFER"]
                window.map[start : start + len(values)] = values
        except CardError:
            status = -5
        window.put(part + NPW["NPW_STATUS"], status)
        window.put(part + NPW["NPW_DOORBELL"], NPW["NPW_DOORBELL_IDLE"])
        self.served += 1
        return True

    def set_decoders(self, number: int, decoders: list[dict[str, int]]) -> None:
        """HDM decoders of a card: start, size, ways (encoded), granularity, control, skip."""
        window, part = self._part(number)
        at = part + NPW["NPW_HDM"]
        counts = [1, 2, 4, 6, 8, 10]
        window.map[at : at + 0x400] = bytes(0x400)
        window.put(at, next(i for i, n in enumerate(counts) if n >= len(decoders)))
        window.put(at + 4, 2)
        for index, decoder in enumerate(decoders):
            here = at + 0x10 + 0x20 * index
            control = 1 << 10 | 1 << 9 | decoder.get("control", 0)
            for offset, value in ((0, decoder["start"]), (8, decoder["size"])):
                window.put(here + offset, value & 0xFFFFFFFF)
                window.put(here + offset + 4, value >> 32)
            window.put(here + 0x10, control)
            window.put(here + 0x14, decoder.get("skip", 0))
        self.decoders[number] = decoders

    def to_device(self, number: int, host: np.ndarray) -> np.ndarray:
        """Device addresses of host addresses; those that are not the card's come out behind."""
        device = np.full(len(host), 1 << 39, np.uint64)
        start = 0
        for decoder in self.decoders[number]:
            start += decoder.get("skip", 0)
            inside = (host >= decoder["start"]) & (host < decoder["start"] + decoder["size"])
            device[inside] = host[inside] - np.uint64(decoder["start"]) + np.uint64(start)
            start += decoder["size"]
        return device

    # ------------------------------------------------------------ the mailbox
    def _mail(self) -> bool:
        if not self.mailbox.get(0):
            return False
        length = self.mailbox.get(4)
        asked = json.loads(self.mailbox.map[8 : 8 + length])
        actions: dict[str, Callable[..., Any]] = {
            "push": self._do_push,
            "decoders": self._do_decoders,
            "answering": self._do_answering,
            "magic": self._do_magic,
            "image": self._do_image,
            "published": self._do_published,
        }
        try:
            answer = actions[asked.pop("do")](**asked)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        text = json.dumps(answer).encode()
        self.mailbox.map[8 : 8 + len(text)] = text
        self.mailbox.put(4, len(text))
        self.mailbox.put(0, 0)
        return True

    def _array(self, count: int) -> np.ndarray:
        return np.frombuffer(self.mailbox.map, np.uint64, count, MAIL_DATA).copy()

    def _do_push(self, card: int, count: int, repeat: int, device: bool = False) -> int:
        """Requests to host addresses (or the card's own), in turn, `repeat` times."""
        addresses = self._array(count)
        flags = addresses & np.uint64(1 << 62)
        addresses &= np.uint64((1 << 62) - 1)
        if not device:
            addresses = self.to_device(card, addresses)
        self.cards[card].push(np.tile(addresses | flags, repeat))
        return count * repeat

    def _do_decoders(self, card: int, decoders: list[dict[str, int]]) -> bool:
        self.set_decoders(card, decoders)
        return True

    def _do_answering(self, on: bool) -> bool:
        self.answering = on
        return True

    def _do_magic(self, on: bool) -> bool:
        for window in (self.window, self.second):
            window.put(NPW["NPW_MAGIC_OFFSET"], NPW["NPW_MAGIC"] if on else 0)
        return True

    def _do_image(self, offset: int, count: int) -> bool:
        """Copy an array to the memory that stands for a card's registers."""
        data = self._array(count).tobytes()
        self.image.map[offset : offset + len(data)] = data
        return True

    def _do_published(self, card: int) -> dict[str, int]:
        published = self.cards[card]
        assert isinstance(published, PublishedCard)
        return {"resets": published.resets, "threshold": published.threshold}


def model_cards() -> list[Registers]:
    """Full-size, small (its hot list overflows soon), published; and one that interrupts."""
    small, interrupting = (Card("model", log2_width=10, ring_size=64) for _ in range(2))
    return [Card("model"), small, PublishedCard(), interrupting]
