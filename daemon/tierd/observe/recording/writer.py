# SPDX-License-Identifier: Apache-2.0
"""Writes a recording: whole frames, one `write` each, up to a bound."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tierd.core.errors import UnavailableError
from tierd.migration.tap import FastPathLog
from tierd.observe.recording import schema
from tierd.observe.recording.fastpath import Spans, encode_fast_path, spans_after
from tierd.observe.recording.frames import MAX_RAW, FrameType, file_header, pack_frame
from tierd.observe.recording.records import Meta, RecordedCalls, RecordedTarget, RecordedTick

END_BYTES: Final = 1024
"""Kept free for the frame that says how the recording ended."""
LIMIT_REACHED: Final = "the size limit was reached"
_REFERRED: Final = {
    FrameType.CONFIG: schema.CONFIG,
    FrameType.TIERS: schema.TIERS,
    FrameType.TARGETS: schema.TARGETS,
    FrameType.EXCHANGED: schema.EXCHANGED,
}
"""What ticks refer to: written before the first one, and where it changes."""


class RecordingWriter:
    """One recording in the making.

    Args:
        path: a file that must not exist yet; made for its owner only.
        limit_bytes: the file does not grow beyond this.

    Raises:
        UnavailableError: the file cannot be made.
    """

    def __init__(self, path: Path, limit_bytes: int, meta: Meta) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._fd = os.open(path, flags, 0o600)
        except FileExistsError:
            raise UnavailableError(
                f"{path} is there already", hint="a recording never replaces a file"
            ) from None
        except OSError as error:
            raise UnavailableError(f"cannot make {path}: {error.strerror}") from None
        self._limit = limit_bytes - END_BYTES
        self._known: dict[FrameType, Any] = {FrameType.EXCHANGED: frozenset()}
        """What frames said that hold for the ticks after them."""
        self._spans: Spans | None = None
        self.ticks = 0
        """Ticks written."""
        self.bytes = 0
        """Bytes written."""
        self.too_large = 0
        """Ticks that no frame could hold."""
        try:
            self._put(file_header())
            self._put(pack_frame(FrameType.META, schema.META.encode(meta)))
        except OSError as error:
            os.close(self._fd)
            raise UnavailableError(f"cannot write {path}: {error.strerror}") from None

    def gap(self, ticks: int) -> None:
        """Ticks are missing here. Raises OSError: the file cannot be written."""
        self._put(pack_frame(FrameType.GAP, schema.GAP.encode({"ticks": ticks})))

    def tick(self, tick: RecordedTick, targets: Sequence[RecordedTarget]) -> str:
        """Write a tick, and before it what changed of what it refers to, and was decided with it.

        Returns:
            "" or why nothing more can be written.

        Raises:
            OSError: the file cannot be written.
        """
        now = {
            FrameType.CONFIG: tick.config,
            FrameType.TIERS: tick.tiers,
            FrameType.TARGETS: targets,
            FrameType.EXCHANGED: tick.exchanged,
        }
        frames = [
            pack_frame(kind, _REFERRED[kind].encode(value))
            for kind, value in now.items()
            if kind not in self._known or value != self._known[kind]
        ]
        frames += self._decided(tick.calls, tick.fast_path)
        raw = schema.encode_tick(tick)
        if len(raw) > MAX_RAW:
            self.too_large += 1
            self.gap(1)
            return ""
        frames.append(pack_frame(FrameType.TICK, raw))
        if self.bytes + sum(map(len, frames)) > self._limit:
            return LIMIT_REACHED
        for frame in frames:
            self._put(frame)
        self._known = now
        if tick.fast_path is not None:
            self._spans = spans_after(tick.fast_path, self._spans)
        self.ticks += 1
        return ""

    def _decided(self, calls: RecordedCalls | None, log: FastPathLog | None) -> list[bytes]:
        """Frames of what components beside the policy decided; what is too large is dropped."""
        frames = []
        if calls is not None and (calls.calls or calls.dropped):
            raw = schema.CALLS.encode(calls)
            if len(raw) > MAX_RAW:
                raw = schema.CALLS.encode(RecordedCalls((), calls.dropped + len(calls.calls)))
            frames.append(pack_frame(FrameType.CALLS, raw))
        if log is not None and (len(log.columns["call"]) or log.dropped):
            raw = encode_fast_path(log, self._spans)
            if len(raw) > MAX_RAW:
                lost = {name: column[:0] for name, column in log.columns.items()}
                raw = encode_fast_path(FastPathLog(lost, (), max(1, log.dropped)), None)
            frames.append(pack_frame(FrameType.FASTPATH, raw))
        return frames

    def close(self, reason: str, dropped: int, dropped_calls: int = 0) -> None:
        """Say how the recording ended, and let go of the file."""
        end = {
            "reason": reason[:200],
            "ticks": self.ticks,
            "dropped_ticks": dropped,
            "dropped_calls": dropped_calls,
        }
        # Where that cannot be written, the file reads as one that was cut.
        with contextlib.suppress(OSError):
            self._put(pack_frame(FrameType.END, schema.END.encode(end)))
            os.fsync(self._fd)
        os.close(self._fd)

    def _put(self, data: bytes) -> None:
        """Write all of it, or leave the file as it was.

        Raises:
            OSError: the file cannot be written.
        """
        start = self.bytes
        left = memoryview(data)
        try:
            while left:
                written = os.write(self._fd, left)
                self.bytes += written
                left = left[written:]
        except OSError:
            self.bytes = start
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, start)
                os.lseek(self._fd, start, os.SEEK_SET)
            raise
