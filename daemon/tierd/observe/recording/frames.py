# SPDX-License-Identifier: Apache-2.0
"""The outer layer of a recording: a file header, then frames with a checksum each.

Layout (little-endian; docs/research/recording.md): the file starts with `HEADER`; every frame is
`FRAME` and then `stored` bytes, which are `raw` bytes after decompression. The CRC-32
(zlib's) covers the frame's header before it and the stored bytes.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from tierd.observe.recording import RecordingError

MAGIC: Final = b"TIERDREC"
VERSION: Final = 3
HEADER: Final = struct.Struct("<8sHHI")
"""Magic, version, size of this header, CRC-32 of what is before it."""
FRAME: Final = struct.Struct("<IIBBHI")
"""Stored bytes, raw bytes, type, coding, zero, CRC-32."""
MAX_RAW: Final = 16 << 20
"""No frame is longer than this before compression: what a reader must have room for."""
LEVEL: Final = 1
"""zlib's fastest: the loop's host has better uses for its CPUs."""


class FrameType(enum.IntEnum):
    """What a frame holds; readers pass over types that they do not know."""

    META = 1
    CONFIG = 2
    TIERS = 3
    TARGETS = 4
    TICK = 5
    GAP = 6
    END = 7
    EXCHANGED = 8
    CALLS = 9
    FASTPATH = 10


class Coding(enum.IntEnum):
    """How the stored bytes give the raw ones."""

    PLAIN = 0
    ZLIB = 1


@dataclass(frozen=True, slots=True)
class Ending:
    """How reading came to its end.

    Attributes:
        whole: True where the file ends after a whole frame.
        offset: bytes that were read and sound.
        reason: why no more was read, "" where `whole`.
    """

    whole: bool
    offset: int
    reason: str = ""


def file_header() -> bytes:
    """The first bytes of every recording."""
    start = HEADER.pack(MAGIC, VERSION, HEADER.size, 0)[:-4]
    return start + struct.pack("<I", zlib.crc32(start))


def pack_frame(kind: FrameType, raw: bytes) -> bytes:
    """One frame. Raises ValueError: `raw` is longer than `MAX_RAW`."""
    if len(raw) > MAX_RAW:
        raise ValueError(f"a frame of {len(raw)} bytes; no more than {MAX_RAW} are allowed")
    stored, coding = zlib.compress(raw, LEVEL), Coding.ZLIB
    if len(stored) >= len(raw):
        stored, coding = raw, Coding.PLAIN
    start = FRAME.pack(len(stored), len(raw), kind, coding, 0, 0)[:-4]
    return start + struct.pack("<I", zlib.crc32(stored, zlib.crc32(start))) + stored


class FrameReader:
    """Reads frames from a stream; iterate once, then look at `ending`.

    Raises:
        RecordingError: the stream does not start as a recording of this version, or a
            frame whose checksum is right says what cannot be.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.ending = Ending(False, 0, "not read yet")
        self.unknown = 0
        """Frames passed over because their type is not known here."""
        found = stream.read(HEADER.size)
        if len(found) < HEADER.size or found[:8] != MAGIC:
            raise RecordingError("this is no recording of tierd: it does not start as one")
        _, version, size, crc = HEADER.unpack(found)
        if crc != zlib.crc32(found[:-4]):
            raise RecordingError("the recording's first bytes are damaged")
        if version != VERSION or size != HEADER.size:
            raise RecordingError(
                f"this recording has format version {version}, and version {VERSION} is known",
                hint="use the tierd that wrote it",
            )
        self._offset = HEADER.size

    def __iter__(self) -> Iterator[tuple[FrameType, bytes]]:
        while True:
            start = self._stream.read(FRAME.size)
            if not start:
                self.ending = Ending(True, self._offset)
                return
            if len(start) < FRAME.size:
                self._end("the file is cut inside a frame")
                return
            stored, raw, kind, coding, zero, crc = FRAME.unpack(start)
            if stored > MAX_RAW or raw > MAX_RAW or zero != 0 or coding > Coding.ZLIB:
                self._end("a frame's header is damaged")
                return
            body = self._stream.read(stored)
            if len(body) < stored:
                self._end("the file is cut inside a frame")
                return
            if zlib.crc32(body, zlib.crc32(start[:-4])) != crc:
                self._end("a frame's checksum is wrong")
                return
            self._offset += FRAME.size + stored
            if kind in _KNOWN:
                yield FrameType(kind), _raw(body, raw, coding)
            else:
                self.unknown += 1

    def _end(self, reason: str) -> None:
        self.ending = Ending(False, self._offset, reason)


_KNOWN: Final = frozenset(FrameType)


def _raw(body: bytes, raw: int, coding: int) -> bytes:
    if coding == Coding.ZLIB:
        unpacking = zlib.decompressobj()
        try:
            # One byte more than declared tells of a stream that goes on.
            body = unpacking.decompress(body, raw + 1)
        except zlib.error as error:
            raise RecordingError(f"a frame cannot be decompressed: {error}") from None
    if len(body) != raw:
        raise RecordingError(f"a frame does not have the {raw} bytes that its header says")
    return body
