# SPDX-License-Identifier: Apache-2.0
"""A socket that plays the kernel's part of tierd's netlink family, and its messages."""

from __future__ import annotations

import struct

from tierd.sources.kmod.uapi import ATTRIBUTES

FAMILY = 40
NUMBER = {name.removeprefix("TIERD_A_"): index for index, (name, _) in enumerate(ATTRIBUTES)}


class Kernel:
    """Answers what a test says and keeps what was asked.

    Where an answer holds `SEQ!`, the number of the request takes its place.
    """

    def __init__(self, silence: OSError) -> None:
        self.asked: list[bytes] = []
        self.answers: list[bytes] = []
        self.silence = silence
        """Raised when no answer is left."""

    def sendto(self, data: bytes, address: object) -> int:
        self.asked.append(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        if not self.answers:
            raise self.silence
        sequence = self.asked[-1][8:12] if self.asked else bytes(4)
        return self.answers.pop(0).replace(b"SEQ!", sequence)

    def close(self) -> None:
        pass


def attribute(name: str, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), NUMBER[name]) + data + bytes(-len(data) % 4)


def message(command: int, *attributes: bytes, kind: int = FAMILY) -> bytes:
    body = struct.pack("=BBH", command, 1, 0) + b"".join(attributes)
    return struct.pack("=IHH", 16 + len(body), kind, 2) + b"SEQ!" + bytes(4) + body


def acknowledgement(code: int = 0, reason: str = "") -> bytes:
    text = reason.encode() + b"\0"
    tlv = struct.pack("=HH", 4 + len(text), 1) + text + bytes(-len(text) % 4) if reason else b""
    flags = 0x300 if reason else 0x100
    head = struct.pack("=IHH", 36 + len(tlv), 2, flags) + b"SEQ!"
    return head + struct.pack("=Ii", 0, -code) + bytes(16) + tlv


def done() -> bytes:
    return struct.pack("=IHH", 20, 3, 2) + b"SEQ!" + bytes(8)
