# SPDX-License-Identifier: Apache-2.0
"""Writes a recording: whole frames, one `write` each, up to a bound."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tierd.core.errors import UnavailableError
from tierd.core.tiermap import TierMap
from tierd.migration.tap import FastPathLog
from tierd.observe.recording.calls import encode_calls
from tierd.observe.recording.fastpath import Spans, encode_fast_path, spans_after
from tierd.observe.recording.frames import MAX_RAW, FrameType, file_header, pack_frame
from tierd.observe.recording.records import (
    HeatOp,
    Meta,
    RecordedCalls,
    RecordedTarget,
    RecordedTick,
)
from tierd.observe.recording.tables import (
    encode_exchanged,
    encode_json,
    encode_meta,
    encode_targets,
    encode_tiers,
)
from tierd.observe.recording.ticks import encode_tick
from tierd.observe.tick_record import TickRecord

END_BYTES: Final = 1024
"""Kept free for the frame that says how the recording ended."""
_NO_CALLS: Final = RecordedCalls()
LIMIT_REACHED: Final = "the size limit was reached"


class RecordingWriter:
    """One recording in the making.

    Args:
        path: a file that must not exist yet; made for its owner only.
        limit_bytes: the file does not grow beyond this.
        meta: the first frame.

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
        self._config = ""
        self._tiers: TierMap | None = None
        self._targets: Sequence[RecordedTarget] | None = None
        self._exchanged: frozenset[int] = frozenset()
        self._spans: Spans | None = None
        self.ticks = 0
        """Ticks written."""
        self.bytes = 0
        """Bytes written."""
        self.too_large = 0
        """Ticks that no frame could hold."""
        try:
            self._put(file_header())
            self._put(pack_frame(FrameType.META, encode_meta(meta)))
        except OSError as error:
            os.close(self._fd)
            raise UnavailableError(f"cannot write {path}: {error.strerror}") from None

    def gap(self, ticks: int) -> None:
        """Ticks are missing here.

        Raises:
            OSError: the file cannot be written.
        """
        self._put(pack_frame(FrameType.GAP, encode_json({"ticks": ticks})))

    def tick(
        self,
        tick: TickRecord,
        ops: Sequence[HeatOp],
        moved: bool,
        config: str,
        targets: Sequence[RecordedTarget],
        *,
        late: Sequence[HeatOp] = (),
        calls: RecordedCalls = _NO_CALLS,
        fast_path: FastPathLog | None = None,
    ) -> str:
        """Write a tick, and before it what changed of what it refers to, and was decided with it.

        Returns:
            "" or why nothing more can be written.

        Raises:
            OSError: the file cannot be written.
        """
        frames = []
        if config != self._config:
            frames.append(pack_frame(FrameType.CONFIG, config.encode()))
        if self._tiers is None or (tick.tiers is not self._tiers and tick.tiers != self._tiers):
            frames.append(pack_frame(FrameType.TIERS, encode_tiers(tick.tiers)))
        if targets != self._targets:
            frames.append(pack_frame(FrameType.TARGETS, encode_targets(targets)))
        if tick.exchanged != self._exchanged:
            frames.append(pack_frame(FrameType.EXCHANGED, encode_exchanged(tick.exchanged)))
        frames += self._decided(calls, fast_path)
        raw = encode_tick(
            RecordedTick(
                number=tick.number,
                time_ns=tick.time_ns,
                end_ns=tick.end_ns,
                source=tick.source,
                located=tick.located,
                walked=tick.walked,
                targets=tick.targets,
                ops=tuple(ops),
                config=config,
                tiers=tick.tiers,
                usage=tick.usage,
                budget=tick.budget,
                plan=tick.plan,
                report=tick.report,
                moved=moved,
                ms=tick.ms,
                groups=tick.groups,
                traffic=tick.traffic,
                late=tuple(late),
            )
        )
        if len(raw) > MAX_RAW:
            self.too_large += 1
            self.gap(1)
            return ""
        frames.append(pack_frame(FrameType.TICK, raw))
        if self.bytes + sum(map(len, frames)) > self._limit:
            return LIMIT_REACHED
        for frame in frames:
            self._put(frame)
        self._config, self._tiers, self._targets = config, tick.tiers, targets
        self._exchanged = tick.exchanged
        if fast_path is not None:
            self._spans = spans_after(fast_path, self._spans)
        self.ticks += 1
        return ""

    def _decided(self, calls: RecordedCalls, fast_path: FastPathLog | None) -> list[bytes]:
        """Frames of what components beside the policy decided."""
        frames = []
        if calls.calls or calls.dropped:
            raw = encode_calls(calls)
            if len(raw) > MAX_RAW:
                raw = encode_calls(RecordedCalls((), calls.dropped + len(calls.calls)))
            frames.append(pack_frame(FrameType.CALLS, raw))
        if fast_path is not None and (len(fast_path.columns["call"]) or fast_path.dropped):
            raw = encode_fast_path(fast_path, self._spans)
            if len(raw) > MAX_RAW:
                lost = {name: column[:0] for name, column in fast_path.columns.items()}
                raw = encode_fast_path(FastPathLog(lost, (), max(1, fast_path.dropped)), None)
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
            self._put(pack_frame(FrameType.END, encode_json(end)))
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
