# SPDX-License-Identifier: Apache-2.0
"""Netlink messages that no kernel sends: answers of the module, process events, uevents.

Each is decoded, or left out, or refused as the error that callers expect.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

from fuzz import inputs, mutated

from tierd.core.errors import TierdError
from tierd.sources.kmod.neoprof import Cards
from tierd.sources.kmod.netlink import Control, node_words
from tierd.sources.kmod.uapi import (
    ATTRIBUTES,
    CARD_GEOMETRY,
    CARD_RANGE,
    CARD_STATS,
    PROFILE,
    STATS,
    TARGET_STATS,
    Command,
)
from tierd.topology.hotplug import concerns_memory
from tierd.workloads.events import ProcessEvents, ProcessEventSocket

ANSWERS, PROCESS, UEVENTS = inputs(200_000), inputs(70_000), inputs(30_000)
FAMILY = 40
NUMBERS = {name: number for number, (name, _) in enumerate(ATTRIBUTES)}
SIZES = {"uint8": 1, "uint16": 2, "uint32": 4}


class Kernel:
    """A socket that gives the answers it was handed, then none."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.sequence = b"\0" * 4

    def sendto(self, data: bytes, address: object) -> int:
        self.sequence = data[8:12]
        return len(data)

    def recv(self, size: int) -> bytes:
        if not self.answers:
            raise TimeoutError("no answer")
        return self.answers.pop(0).replace(b"SEQ!", self.sequence)

    def recvfrom(self, size: int) -> tuple[bytes, tuple[int, int]]:
        if not self.answers:
            raise BlockingIOError
        return self.answers.pop(0), (0, 1)


def attribute(name: str, data: bytes | int) -> bytes:
    number = NUMBERS[f"TIERD_A_{name}"]
    if isinstance(data, int):
        data = data.to_bytes(SIZES[ATTRIBUTES[number][1]], "little")
    return struct.pack("=HH", 4 + len(data), number) + data + bytes(-len(data) % 4)


def message(command: int, *attributes: bytes) -> bytes:
    body = struct.pack("=BBH", command, 1, 0) + b"".join(attributes)
    return struct.pack("=IHH", 16 + len(body), FAMILY, 0) + b"SEQ!" + bytes(4) + body


def acknowledgement(code: int = 0) -> bytes:
    return struct.pack("=IHH", 36, 2, 0) + b"SEQ!" + struct.pack("=Ii", 0, -code) + bytes(16)


def refusal() -> bytes:
    text = struct.pack("=HH", 4 + 8, 1) + b"because\0"
    body = struct.pack("=Ii", 0, -22) + bytes(16) + text
    return struct.pack("=IHH", 12 + len(body), 2, 0x300) + b"SEQ!" + body


def done() -> bytes:
    return struct.pack("=IHH", 20, 3, 2) + b"SEQ!" + bytes(8)


def words(names: Any) -> bytes:
    return struct.pack(f"={len(names)}Q", *range(len(names)))


TARGET = message(
    Command.TARGET_GET,
    attribute("TARGET", 3), attribute("PID", 1234), attribute("TARGET_STATS", words(TARGET_STATS)),
)  # fmt: skip
SCAN = message(
    Command.SCAN_GET,
    *(attribute(name, 400) for name in ("PERIOD_US", "BUDGET_PPM", "FLAGS")),
    *(attribute(name, 2) for name in ("HOT_SCANS", "COLD_SCANS", "REPORT_SCANS")),
    *(attribute(name, node_words([0, 70])) for name in ("HOT_NODES", "COLD_NODES")),
    attribute("STATS", words(STATS)),
)
CARD = message(
    Command.NEOPROF_GET,
    *(attribute(name, b"window\0") for name in ("BACKEND", "DEVICE", "WHY")),
    attribute("CARD", 0), attribute("CARD_STATE", 1),
    attribute("CARD_RANGES", bytes(2 * CARD_RANGE.itemsize)),
    attribute("CARD_GEOMETRY", bytes(CARD_GEOMETRY.itemsize)),
    attribute("CARD_STATS", words(CARD_STATS)),
    *(attribute(name, 1) for name in ("DRAIN_US", "EPOCH_US", "THRESHOLD", "CARD_FLAGS")),
    *(attribute(name, 1) for name in ("TRACK", "UNIT_LOG2", "DOWNSAMPLE", "ERROR_RANK")),
)  # fmt: skip
SNAPSHOT = message(
    Command.NEOPROF_PROFILE_GET, attribute("CARD", 0), attribute("PROFILE", bytes(PROFILE.itemsize))
)
QUESTIONS: list[tuple[type[Kernel], list[bytes], Callable[[Any], Any]]] = [
    (Kernel, [TARGET + TARGET, done()], lambda k: Control(k, FAMILY).targets()),
    (Kernel, [SCAN, acknowledgement()], lambda k: Control(k, FAMILY).scan_get()),
    (Kernel, [CARD, done()], lambda k: Cards(k, FAMILY).cards()),
    (Kernel, [SNAPSHOT, acknowledgement()], lambda k: Cards(k, FAMILY).profile(0)),
    (Kernel, [acknowledgement(3)], lambda k: Control(k, FAMILY).target_del(1)),
    (Kernel, [refusal()], lambda k: Control(k, FAMILY).target_del(1)),
]


def test_the_answers_that_are_changed_are_right_before() -> None:
    for kind, answers, ask in QUESTIONS:
        kernel = kind()
        kernel.answers = list(answers)
        try:
            told = ask(kernel)
        except TierdError:
            assert len(answers) == 1  # a refusal
        else:
            assert told


def test_any_answer_of_the_module_is_an_answer_or_unavailable() -> None:
    draw, counts = random.Random(20_260_103), Counter[str]()
    for _ in range(ANSWERS):
        kind, answers, ask = draw.choice(QUESTIONS)
        kernel = kind()
        which = draw.randrange(len(answers))
        kernel.answers = [
            mutated(data, draw) if index == which else data for index, data in enumerate(answers)
        ]
        try:
            ask(kernel)
            counts["taken"] += 1
        except (TierdError, FileExistsError):
            counts["refused"] += 1
    print(f"netlink, the module's answers: {ANSWERS} inputs, {dict(counts)}")
    assert counts.total() == ANSWERS
    assert min(counts["taken"], counts["refused"]) > ANSWERS / 50


def process_event(what: int, *numbers: int) -> bytes:
    data = struct.pack("=IIQ", what, 0, 12345) + struct.pack("=4i", *numbers) + bytes(8)
    header = struct.pack("=IIIIHH", 1, 1, 5, 0, len(data), 0)
    return struct.pack("=IHHII", 16 + len(header) + len(data), 3, 0, 0, 0) + header + data


def test_any_process_event_is_counted_or_makes_all_be_read_again() -> None:
    draw, kernel, counts = random.Random(20_260_104), Kernel(), Counter[str]()
    connection: Any = kernel
    listener = ProcessEventSocket(connection)
    right = [process_event(what, 10, 10, 11, 11) for what in (1, 2, 4, 0x80000000)]
    for _ in range(PROCESS):
        kernel.answers = [mutated(draw.choice(right) + draw.choice(right), draw)]
        found = listener.drain()
        assert isinstance(found, ProcessEvents)
        counts["lost" if found.lost else "taken"] += 1
    print(f"netlink, process events: {PROCESS} inputs, {dict(counts)}")
    assert min(counts["taken"], counts["lost"]) > PROCESS / 50
    assert listener.overflows == counts["lost"]


def test_any_uevent_concerns_memory_or_not() -> None:
    draw, counts = random.Random(20_260_105), Counter[bool]()
    right = [
        b"online@/devices/system/memory/memory40\0ACTION=online\0SUBSYSTEM=memory\0SEQNUM=9\0",
        b"add@/devices/pci0000:00/0000:00:02.0\0ACTION=add\0SUBSYSTEM=pci\0SEQNUM=10\0",
    ]
    for _ in range(UEVENTS):
        counts[concerns_memory(mutated(draw.choice(right), draw))] += 1
    print(f"netlink, uevents: {UEVENTS} inputs, {dict(counts)}")
    assert min(counts[True], counts[False]) > UEVENTS / 50
