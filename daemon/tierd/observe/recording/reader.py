# SPDX-License-Identifier: Apache-2.0
"""`Recording`: reads a file of ticks, as often as one likes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from tierd.core.errors import UnavailableError
from tierd.core.tiermap import TierMap
from tierd.migration.tap import FastPathLog
from tierd.observe.recording import RecordingError, schema
from tierd.observe.recording.fastpath import Spans, decode_fast_path, spans_after
from tierd.observe.recording.frames import Ending, FrameReader, FrameType
from tierd.observe.recording.records import Meta, RecordedCalls, RecordedTarget, RecordedTick


@dataclass(frozen=True, slots=True)
class Gap:
    """Ticks that the recorder had to drop here; heat is not known exactly from here on."""

    ticks: int


@dataclass
class Pass:
    """What one reading of a recording came across besides ticks.

    Attributes:
        targets: every target seen, by number; the latest of each.
        end_reason: what the recorder said last, "" where it did not come to that.
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
            raise RecordingError(f"{path} does not say where it was made; it is cut or damaged")
        self.meta: Meta = schema.META.decode(first[1])

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


class _Frames:
    """What the frames before a tick said that belongs to it."""

    def __init__(self, found: Pass) -> None:
        self._found = found
        self._config: str | None = None
        self._tiers: TierMap | None = None
        self._exchanged: frozenset[int] = frozenset()
        self._calls: RecordedCalls | None = None
        self._fast_path: FastPathLog | None = None
        self._spans: Spans | None = None

    def take(self, kind: FrameType, raw: bytes) -> RecordedTick | Gap | None:
        """One frame; the tick or gap that it is."""
        match kind:
            case FrameType.META:
                self._found.meta = schema.META.decode(raw)
            case FrameType.CONFIG:
                self._config = schema.CONFIG.decode(raw)
            case FrameType.TIERS:
                self._tiers = schema.TIERS.decode(raw)
            case FrameType.TARGETS:
                targets = self._found.targets
                targets.update({each.number: each for each in schema.TARGETS.decode(raw)})
            case FrameType.EXCHANGED:
                self._exchanged = schema.EXCHANGED.decode(raw)
            case FrameType.CALLS:
                self._calls = schema.CALLS.decode(raw)
            case FrameType.FASTPATH:
                self._fast_path = log = decode_fast_path(raw, self._spans)
                self._spans = spans_after(log, self._spans)
            case FrameType.GAP:
                ticks = schema.GAP.decode(raw)["ticks"]
                self._found.missing += ticks
                self._calls = self._fast_path = None
                return Gap(ticks)
            case FrameType.END:
                self._found.end_reason = schema.END.decode(raw)["reason"]
            case FrameType.TICK:
                return self._tick(raw)
        return None

    def _tick(self, raw: bytes) -> RecordedTick:
        if self._config is None or self._tiers is None:
            raise RecordingError("a tick comes before the configuration or the tiers")
        self._found.ticks += 1
        tick = schema.decode_tick(raw, self._config, self._tiers, self._exchanged)
        tick = replace(tick, calls=self._calls, fast_path=self._fast_path)
        self._calls = self._fast_path = None
        return tick


def read(stream: BinaryIO, found: Pass) -> Iterator[RecordedTick | Gap]:
    """Ticks and gaps of a recording in any stream; the rest goes into `found`.

    Raises:
        RecordingError: it is no recording, or a sound frame says what no recorder writes.
    """
    reader, frames = FrameReader(stream), _Frames(found)
    for kind, raw in reader:
        if (one := frames.take(kind, raw)) is not None:
            yield one
    found.ending, found.unknown = reader.ending, reader.unknown
