# SPDX-License-Identifier: Apache-2.0
"""Wrong requests for the control socket, made from right ones."""

from __future__ import annotations

import random

SEEDS = [
    b'{"command":"status"}',
    b'{"command":"status","args":{"hottest":true},"id":7}',
    b'{"command":"pause","args":{"reason":"x"},"id":"a"}',
    b'{"command":"explain","args":{"pid":1,"address":4096}}',
    b'{"command":"explain","args":{"cgroup":"/a/*"}}',
    b'{"command":"set","args":{"key":"migration.rate_limit","value":"1MB/s"}}',
    b'{"command":"resume"}',
    b'{"command":"events"}',
    b'{"command":"version"}',
]
PIECES = [
    b'"', b"{", b"}", b"[", b"]", b":", b",", b"\\", b"\\ud800", b"\x00", b"\xff", b"\xc3\x28",
    b"NaN", b"Infinity", b"-0", b"1e999", b"9" * 400, b"null", b"true", b"[" * 500, b'{"a":' * 50,
    b"command", b"args", b"id", b" ", b"\r", b"\t", b"2147483648", b"-1", b"18446744073709551616",
    b"targets.match", b"topology", b"loop", b".", b"..", b"\\n",
]  # fmt: skip


def mutate(source: random.Random) -> bytes:
    """A valid line with some of its bytes replaced, cut out, doubled or made up."""
    line = bytearray(source.choice(SEEDS))
    for _ in range(source.randrange(4)):
        at = source.randrange(len(line) + 1)
        match source.randrange(5):
            case 0:
                line[at:at] = source.choice(PIECES)
            case 1:
                line[at : at + source.randrange(1, 6)] = source.choice(PIECES)
            case 2:
                del line[at : at + source.randrange(1, 10)]
            case 3:
                line[at:at] = source.randbytes(source.randrange(1, 5))
            case _:
                line[at:at] = line[: source.randrange(20)]
    return bytes(line)
