# SPDX-License-Identifier: Apache-2.0
"""`Recording`: reads a file of ticks, as often as one likes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final

from tierd.core.errors import UnavailableError
from tierd.core.tiermap import TierMap
from tierd.migration.tap import FastPathLog
from tierd.observe.recording.calls import decode_calls
from tierd.observe.recording.errors import RecordingError
from tierd.observe.recording.fastpath import Spans, decode_fast_path, spans_after
from tierd.observe.recording.frames import Ending, FrameReader, FrameType
from tierd.observe.recording.records import Meta, RecordedCalls, RecordedTarget, RecordedTick
from tierd.observe.recording.tables import (
    decode_exchanged,
    decode_json,
    decode_meta,
    decode_targets,
    decode_tiers,
)
from tierd.observe.recording.ticks import decode_tick

MAX_TARGETS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Gap:
    """Ticks that the recorder had to drop here; heat is not known exactly from here on."""

    ticks: int


@dataclass
class Pass:
    """What one reading of a recording came across besides ticks.

    Attributes:
        meta: where it was made.
        targets: every target seen, by number; the latest of each.
        ending: how the file ended.
        end_reason: what the recorder said last, "" where it did not come to that.
        ticks: ticks read.
        missing: ticks that the recorder dropped before its end.
        unknown: frames of a type that is not known here.
    """

    meta: Meta | None = None
    targets: dict[int, RecordedTarget] = field(default_factory=dict)
    ending: Ending = field(default_factory=lambda: Ending(False, 0, "not read"))
    end_reason: str = ""
    ticks: int = 0
    missing: int = 0
    unknown: int = 0


class Recording:
    """A recording in a file.

    Args:
        path: the file.

    Raises:
        UnavailableError: it cannot be read.
        RecordingError: it is no recording.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.last = Pass()
        """What the latest complete iteration found."""
        with self._open() as stream:
            first = next(iter(FrameReader(stream)), None)
        if first is None or first[0] is not FrameType.META:
            raise RecordingError(f"{path} does not tell where it was made; it is cut or damaged")
        self.meta = decode_meta(first[1])

    def _open(self) -> BinaryIO:
        try:
            return self._path.open("rb")
        except OSError as error:
            raise UnavailableError(f"cannot read {self._path}: {error.strerror}") from None

    def __iter__(self) -> Iterator[RecordedTick | Gap]:
        """Ticks in order, and gaps between them.

        Raises:
            RecordingError: a sound frame says what no recorder writes.
        """
        with self._open() as stream:
            yield from self._read(stream)

    def _read(self, stream: BinaryIO) -> Iterator[RecordedTick | Gap]:
        self.last = Pass(meta=self.meta)
        yield from read(stream, self.last)


class _Decided:
    """What was decided beside the plan of the tick that comes next."""

    def __init__(self) -> None:
        self.calls: RecordedCalls | None = None
        self._fast_path: FastPathLog | None = None
        self._spans: Spans | None = None

    def set_fast_path(self, raw: bytes) -> None:
        self._fast_path = log = decode_fast_path(raw, self._spans)
        if log is not None:
            self._spans = spans_after(log, self._spans)

    def take(self) -> tuple[RecordedCalls | None, FastPathLog | None]:
        calls, log = self.calls, self._fast_path
        self.calls = self._fast_path = None
        return calls, log


def read(stream: BinaryIO, found: Pass) -> Iterator[RecordedTick | Gap]:
    """Ticks and gaps of a recording in any stream; the rest goes into `found`.

    Raises:
        RecordingError: it is no recording, or a sound frame says what no recorder writes.
    """
    config: str | None = None
    tiers: TierMap | None = None
    exchanged: frozenset[int] = frozenset()
    decided = _Decided()
    frames = FrameReader(stream)
    for kind, raw in frames:
        match kind:
            case FrameType.META:
                found.meta = decode_meta(raw)
            case FrameType.CONFIG:
                config = _text(raw)
            case FrameType.TIERS:
                tiers = decode_tiers(raw)
            case FrameType.TARGETS:
                found.targets.update(decode_targets(raw))
                if len(found.targets) > MAX_TARGETS:
                    raise RecordingError(f"{len(found.targets)} targets in one recording")
            case FrameType.EXCHANGED:
                exchanged = decode_exchanged(raw)
            case FrameType.GAP:
                ticks = decode_json(raw, lambda table: int(table["ticks"]))
                found.missing += ticks
                decided.take()
                yield Gap(ticks)
            case FrameType.END:
                found.end_reason = decode_json(raw, lambda table: str(table["reason"]))
            case FrameType.TICK:
                if config is None or tiers is None:
                    raise RecordingError("a tick comes before the configuration or the tiers")
                found.ticks += 1
                tick = decode_tick(raw, config, tiers, exchanged)
                calls, fast_path = decided.take()
                yield replace(tick, calls=calls, fast_path=fast_path)
            case FrameType.CALLS:
                decided.calls = decode_calls(raw)
            case FrameType.FASTPATH:
                decided.set_fast_path(raw)
    found.ending, found.unknown = frames.ending, frames.unknown


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise RecordingError(f"the configuration is not UTF-8: {error.reason}") from None
