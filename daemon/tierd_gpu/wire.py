# SPDX-License-Identifier: Apache-2.0
"""The messages between daemon and GPU clients."""

from __future__ import annotations

import enum
import errno
from typing import Final

import numpy as np
import numpy.typing as npt

VERSION: Final = 4
MAX_BYTES: Final = 16384
MAX_GPUS: Final = 16
Records = npt.NDArray[np.void]


class Kind(enum.IntEnum):
    """What a message is; below 16 from the client, above from the daemon."""

    HELLO = 1
    CHUNKS = 2
    USE = 3
    STATE = 4
    ALIVE = 5
    SHOW = 6
    LOAN = 7
    WELCOME = 17
    GPUS = 18
    MOVE = 19
    LEASE = 21
    PING = 22
    REFUSED = 23
    TENANTS = 24
    GRANT = 25


class StateFlag(enum.IntFlag):
    """Flags of moves and states."""

    URGENT = 1
    IN_PLACE = 2


class Role(enum.IntFlag):
    """What a client does with GPU memory."""

    BORROW = 1
    LEND = 2


HEADER: Final = np.dtype([("type", "<u2"), ("count", "<u2"), ("bytes", "<u4")])
HELLO: Final = np.dtype(
    [
        ("version", "<u4"),
        ("role", "<u4"),
        ("max_chunks", "<u4"),
        ("visible", "<u4"),
        ("uuid", "u1", 16),
        ("name", "S32"),
        ("visible_uuid", "u1", (MAX_GPUS, 16)),
    ]
)
CHUNKS: Final = np.dtype([("first", "<u4"), ("count", "<u4"), ("live", "<u4"), ("rsv", "<u4")])
USE: Final = np.dtype([("chunk", "<u4"), ("pages", "<u2"), ("rsv", "<u2"), ("time_ns", "<u8")])
STATE: Final = np.dtype(
    [
        ("chunk", "<u4"),
        ("place", "<i2"),
        ("flags", "u1"),
        ("status", "u1"),
        ("sequence", "<u4"),
        ("rsv", "<u4"),
        ("time_ns", "<u8"),
    ]
)
ALIVE: Final = np.dtype(
    [
        ("time_ns", "<u8"),
        ("uses_dropped", "<u8"),
        ("states_dropped", "<u8"),
        ("moves_dropped", "<u8"),
        ("launches", "<u8"),
        ("launches_untold", "<u8"),
        ("spans_dropped", "<u8"),
    ]
)
WELCOME: Final = np.dtype(
    [("version", "<u4"), ("session", "<u4"), ("heartbeat_ms", "<u4"), ("rsv", "<u4")]
)
GPU: Final = np.dtype([("uuid", "u1", 16)])
MOVE: Final = np.dtype([("chunk", "<u4"), ("dest", "<i2"), ("flags", "<u2"), ("sequence", "<u4")])
LEASE: Final = np.dtype([("device", "<i4"), ("chunks", "<u4"), ("borrowed_bytes", "<u8")])
LOAN: Final = np.dtype([("device", "<i4"), ("rsv", "<u4"), ("wanted", "<u8"), ("held", "<u8")])
"""What a program says of its loan on a GPU: bytes."""
GRANT: Final = np.dtype([("device", "<i4"), ("due_ms", "<u4"), ("granted", "<u8")])
"""What it may hold there, and when what is above that must be gone."""
PING: Final = np.dtype([])
REFUSED: Final = np.dtype([("status", "<u4"), ("rsv", "<u4"), ("text", "S56")])
TENANT: Final = np.dtype(
    [
        ("session", "<u4"),
        ("uid", "<u4"),
        ("home", "<i4"),
        ("role", "<u4"),
        ("chunks", "<u8"),
        ("at_home", "<u8"),
        ("on_peers", "<u8"),
        ("on_host", "<u8"),
        ("uses", "<u8"),
        ("launches", "<u8"),
        ("launches_untold", "<u8"),
        ("moves", "<u8"),
        ("dropped", "<u8"),
        ("name", "S32"),
    ]
)
"""One client, for whoever asks (`SHOW`, which needs no HELLO); only the daemon speaks of it."""

LAYOUTS: Final = {
    Kind.HELLO: HELLO,
    Kind.CHUNKS: CHUNKS,
    Kind.USE: USE,
    Kind.STATE: STATE,
    Kind.ALIVE: ALIVE,
    Kind.SHOW: PING,
    Kind.LOAN: LOAN,
    Kind.WELCOME: WELCOME,
    Kind.GPUS: GPU,
    Kind.MOVE: MOVE,
    Kind.LEASE: LEASE,
    Kind.PING: PING,
    Kind.REFUSED: REFUSED,
    Kind.TENANTS: TENANT,
    Kind.GRANT: GRANT,
}


class WireError(Exception):
    """Why a peer is not talked to any more: a message that is not one, or what it asks for.

    Attributes:
        status: errno, which the peer is told.
    """

    def __init__(self, text: str, status: int = errno.EPROTO) -> None:
        super().__init__(text)
        self.status = status


def most(kind: Kind) -> int:
    """Records of a kind that fit in a message."""
    return (MAX_BYTES - HEADER.itemsize) // max(1, LAYOUTS[kind].itemsize)


def encode(kind: Kind, records: Records) -> list[bytes]:
    """The messages that carry `records`, as many as they need; none for no records."""
    each, room = LAYOUTS[kind].itemsize, most(kind)
    messages = []
    for start in range(0, len(records), room):
        part = records[start : start + room]
        head = np.array([(int(kind), len(part), HEADER.itemsize + len(part) * each)], HEADER)
        messages.append(head.tobytes() + part.tobytes())
    return messages


def bare(kind: Kind) -> bytes:
    """A message without records: PING asks a client for a sign of life, SHOW for the tenants."""
    return np.array([(int(kind), 0, HEADER.itemsize)], HEADER).tobytes()


def refused(status: int, text: str) -> bytes:
    """The message that says why the connection ends."""
    (message,) = encode(Kind.REFUSED, np.array([(status, 0, text.encode()[:55])], REFUSED))
    return message


def decode(message: bytes) -> tuple[Kind, Records]:
    """The kind of a message and its records.

    Raises:
        WireError: not a whole message of a known kind.
    """
    if not HEADER.itemsize <= len(message) <= MAX_BYTES:
        raise WireError(f"{len(message)} bytes")
    head = np.frombuffer(message, HEADER, 1)[0]
    try:
        kind = Kind(int(head["type"]))
    except ValueError:
        raise WireError(f"kind {head['type']}") from None
    if kind is Kind.HELLO and int(head["count"]) and len(message) >= HEADER.itemsize + 4:
        # Before its size, which depends on it.
        version = int(np.frombuffer(message, "<u4", 1, HEADER.itemsize)[0])
        if version != VERSION:
            raise WireError(f"version {version}, not {VERSION}", errno.EPROTONOSUPPORT)
    each = LAYOUTS[kind].itemsize
    count = int(head["count"])
    if int(head["bytes"]) != len(message) or len(message) != HEADER.itemsize + count * each:
        raise WireError(f"{kind.name}: {count} records in {len(message)} bytes")
    if not each:
        return kind, np.empty(0, LAYOUTS[kind])
    return kind, np.frombuffer(message, LAYOUTS[kind], count, HEADER.itemsize)
