# SPDX-License-Identifier: Apache-2.0
"""Recordings as files: whole, cut anywhere, damaged, bounded; and what the recorder drops."""

from __future__ import annotations

import io
import logging
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from madeup_host import MadeUpHost, record, two_tiers

from tierd.config.whole import loads
from tierd.core.access import AccessBatch
from tierd.core.errors import UnavailableError
from tierd.core.migration import MigrationPlan
from tierd.hotness.table import HeatTable
from tierd.observe.recording import RecordingError, recorder, schema, writer
from tierd.observe.recording.frames import (
    FRAME,
    HEADER,
    FrameReader,
    FrameType,
    file_header,
    pack_frame,
)
from tierd.observe.recording.reader import Gap, Pass, Recording, read
from tierd.observe.recording.recorder import Recorder
from tierd.observe.recording.records import KEPT, HeatOp, RecordedTick, RecordingHeat
from tierd.observe.recording.session import recording
from tierd.observe.tick_record import TickRecord


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a small recording."""
    path = tmp_path_factory.mktemp("recording") / "a.rec"
    record(path, 1, ticks=6, samples=30, pages=300)
    return path.read_bytes()


def ticks_of(data: bytes) -> tuple[list[RecordedTick | Gap], Pass]:
    found = Pass()
    return list(read(io.BytesIO(data), found)), found


def same(one: Any, other: Any) -> bool:
    """Equal, arrays bit for bit."""
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())
    if hasattr(one, "__dataclass_fields__"):
        names = [each.name for each in fields(one)]
        return type(one) is type(other) and all(
            same(getattr(one, name), getattr(other, name)) for name in names
        )
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


class Tap:
    """Sees what the recorder was told."""

    def __init__(self) -> None:
        self.ticks: list[TickRecord] = []

    def on_tick(self, tick: TickRecord) -> None:
        self.ticks.append(tick)


def test_a_tick_comes_back_as_it_was(tmp_path: Path) -> None:
    made = Recorder(tmp_path / "a.rec", 1 << 30)
    host = MadeUpHost(3, loads(""), recorder=made)
    tap, told = Tap(), []
    host.service.work.observers.append(tap)
    host.heat._tap = lambda op: (told.append(op), made.take(op))[1]
    host.run(12)
    made.close()
    read_back = [tick for tick in Recording(tmp_path / "a.rec") if isinstance(tick, RecordedTick)]
    assert len(read_back) == len(tap.ticks) == 12
    assert any(tick.report is not None and tick.moved for tick in read_back)
    for recorded, tick in zip(read_back, tap.ticks, strict=True):
        for name in ("number", "time_ns", "end_ns", "source", "located", "walked", "targets",
                     "groups", "usage", "budget", "plan", "report", "ms", "tiers",
                     "exchanged"):  # fmt: skip
            assert same(getattr(recorded, name), getattr(tick, name)), name
        assert loads(recorded.config) == tick.config
        assert same(recorded.batches, list(tick.batches))
    assert [op.arguments[0].source for op in told if op.method == "ingest"] == ["made-up"] * 24
    assert Recording(tmp_path / "a.rec").meta.host["machine"] == os.uname().machine


@pytest.mark.parametrize(
    "told",
    [
        HeatOp("fade", (-2.5,)),
        HeatOp("fade", (3.0,)),
        HeatOp("hold", (np.array([[5, 6], [9, 1 << 50]], np.uint64), True)),
        HeatOp("limit", (np.array([3, 70], np.uint64), np.array([1, 500], np.uint64))),
        HeatOp(
            "ingest",
            (
                AccessBatch(
                    np.array([5, 6], np.uint64),
                    np.ones(2, np.float32),
                    1,
                    "ring",
                    node=np.array([2, -1], np.int16),
                ),
            ),
        ),
    ],
    ids=["heat that grows", "heat that fades", "what is held", "what is limited", "nodes"],
)
def test_what_heat_was_told_comes_back(tmp_path: Path, told: HeatOp) -> None:
    made = Recorder(tmp_path / "a.rec", 1 << 30)
    made.take(told)
    made.on_tick(tick(0))
    made.close()
    (read_back,) = Recording(tmp_path / "a.rec")
    assert isinstance(read_back, RecordedTick)
    assert same(list(read_back.ops), [told])


def test_every_change_of_heat_is_told(tmp_path: Path) -> None:
    """A new method of the heat table must be told to recorders, or known to change nothing."""
    queries = {"hottest", "folios", "coldest", "unplaced", "lookup", "where",
               "stats", "least", "half_life_s", "of"}  # fmt: skip
    by_way_of_another = {"forget_target"}
    public = {name for name in vars(HeatTable) if not name.startswith("_")}
    assert public == queries | by_way_of_another | KEPT.keys()


def test_arrays_that_are_views_are_copied() -> None:
    told: list[Any] = []
    heat = RecordingHeat(told.append, capacity_pages=100, half_life_s=1.0)
    memory = np.arange(20, dtype=np.uint64)
    heat.ingest(AccessBatch(memory[5:10], np.ones(5, np.float32), 1, "ring"))
    memory[:] = 0
    assert told[-1].arguments[0].page.tolist() == [5, 6, 7, 8, 9]


def test_a_file_cut_anywhere_is_read_to_the_last_whole_frame(whole: bytes) -> None:
    ends = [len(ticks_of(whole[:n])[0]) for n in range(HEADER.size, len(whole), 211)]
    assert ends == sorted(ends)
    assert {0, 1, 5} <= set(ends)
    sizes = set()
    for size in range(HEADER.size, len(whole), 97):
        ticks, found = ticks_of(whole[:size])
        assert found.ending.offset <= size
        sizes.add(found.ending.offset)
        if not found.ending.whole:
            assert "cut inside a frame" in found.ending.reason
        assert ticks_of(whole[: found.ending.offset])[1].ending.whole
        assert len(ticks) == found.ticks
    assert ticks_of(whole)[1].end_reason == "closed"


@pytest.mark.parametrize("at", [0.3, 0.6, 0.9])
def test_a_damaged_byte_ends_reading_where_it_is(whole: bytes, at: float) -> None:
    position = int(len(whole) * at)
    data = bytearray(whole)
    data[position] ^= 0x10
    ticks, found = ticks_of(bytes(data))
    assert not found.ending.whole
    assert found.ending.offset <= position
    assert found.ending.reason
    assert len(ticks) < 6


@pytest.mark.parametrize(
    "data",
    [b"", b"TIERDREC", b"x" * 400, HEADER.pack(b"TIERDREC", 2, 16, 7)],
    ids=["empty", "short", "something else", "damaged"],
)
def test_what_is_no_recording_is_one_clear_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(RecordingError):
        Recording(tmp_path / "x")


@pytest.mark.parametrize("version", [1, 9])
def test_another_version_is_told(whole: bytes, version: int) -> None:
    start = HEADER.pack(b"TIERDREC", version, 16, 0)[:-4]
    with pytest.raises(RecordingError, match=f"version {version}, and version 3 is known"):
        ticks_of(start + struct.pack("<I", zlib.crc32(start)) + whole[HEADER.size :])


def test_frames_of_unknown_type_are_passed_over(whole: bytes) -> None:
    future = bytearray(pack_frame(FrameType.END, b"what a newer tierd says"))
    future[8] = 99
    crc = zlib.crc32(bytes(future[FRAME.size :]), zlib.crc32(bytes(future[: FRAME.size - 4])))
    future[FRAME.size - 4 : FRAME.size] = struct.pack("<I", crc)
    ticks, found = ticks_of(whole[: HEADER.size] + bytes(future) + whole[HEADER.size :])
    assert len(ticks) == 6
    assert found.unknown == 1


def test_a_bomb_is_not_unpacked() -> None:
    packed = bytearray(pack_frame(FrameType.END, bytes(1 << 20)))
    packed[4:8] = struct.pack("<I", 100)
    crc = zlib.crc32(bytes(packed[FRAME.size :]), zlib.crc32(bytes(packed[: FRAME.size - 4])))
    packed[FRAME.size - 4 : FRAME.size] = struct.pack("<I", crc)
    with pytest.raises(RecordingError, match="100 bytes"):
        list(FrameReader(io.BytesIO(file_header() + packed)))


def test_tiers_come_back_equal() -> None:
    tiers = two_tiers((1000, 2000))
    data = schema.TIERS.encode(tiers)
    assert schema.TIERS.decode(data) == tiers
    for wrong in (b"", b"[" * 100_000, data[:-1], data + b"\0", data.replace(b"dram", b"drum")):
        with pytest.raises(RecordingError):
            schema.TIERS.decode(wrong)
    ranks = replace(tiers, tiers=tiers.tiers[::-1])
    with pytest.raises(RecordingError, match="ranks"):
        schema.TIERS.decode(schema.TIERS.encode(ranks))


def test_the_file_ends_at_its_bound_and_says_so(tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, "tierd"):
        _, stats = record(tmp_path / "a.rec", 1, ticks=40, limit=60_000)
    assert (tmp_path / "a.rec").stat().st_size == stats.bytes <= 60_000
    assert stats.ended == writer.LIMIT_REACHED
    assert 0 < stats.ticks < 40
    assert stats.ticks + stats.dropped_ticks == 40
    assert "recording_ended" in caplog.text
    recorded = Recording(tmp_path / "a.rec")
    assert len(list(recorded)) == stats.ticks
    assert recorded.last.ending.whole
    assert recorded.last.end_reason == writer.LIMIT_REACHED


def test_a_recording_belongs_to_its_owner_and_replaces_nothing(tmp_path: Path) -> None:
    record(tmp_path / "a.rec", 1, ticks=1)
    assert (tmp_path / "a.rec").stat().st_mode & 0o777 == 0o600
    with pytest.raises(UnavailableError, match="is there already"):
        Recorder(tmp_path / "a.rec", 1 << 20)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnavailableError):
        Recorder(tmp_path / "link", 1 << 20)
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(UnavailableError, match="No such file"):
        Recorder(tmp_path / "no" / "folder", 1 << 20)


def tick(number: int, time_ns: int = 0) -> TickRecord:
    return TickRecord(number, time_ns, time_ns, "s", (), 0, 0, 0, two_tiers((10, 10)), {}, None,
                      MigrationPlan.empty(), None, {}, loads(""))  # fmt: skip


def test_who_exchanged_pages_comes_back_with_each_tick(tmp_path: Path) -> None:
    nodes = [frozenset(), frozenset({1}), frozenset({1}), frozenset({1, 3}), frozenset()]
    made = Recorder(tmp_path / "a.rec", 1 << 30)
    for number, each in enumerate(nodes):
        made.on_tick(replace(tick(number), exchanged=each))
    made.close()
    read_back = [tick for tick in Recording(tmp_path / "a.rec") if isinstance(tick, RecordedTick)]
    assert [each.exchanged for each in read_back] == nodes


def test_no_such_nodes_exchange_pages() -> None:
    with pytest.raises(RecordingError, match="1024 is not between"):
        schema.EXCHANGED.decode(schema.EXCHANGED.encode({1, 1024}))


@pytest.mark.parametrize(
    "calls",
    [b"[" * 100_000, b"{}", b'[["a", [], {}]]', b'[["a", [], [[[[[]]]]]]]', b'[["a", 1, []]]',
     b"[[1, [], []]]", b'[["a", []]]', b'[["a", [1e400], [123456789012345678901]]]'],
)  # fmt: skip
def test_calls_that_nobody_made_are_refused(calls: bytes) -> None:
    dropped = schema.U64.encode(0)
    assert schema.CALLS.decode(dropped + b'[["a", [1, null], [true, [["b"]]]]]').calls
    with pytest.raises(RecordingError):
        schema.CALLS.decode(dropped + calls)


def test_what_the_writer_cannot_keep_up_with_is_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_PENDING_BYTES", 100_000)
    made = Recorder(tmp_path / "a.rec", 1 << 30)
    heat = RecordingHeat(made.take, capacity_pages=1000, half_life_s=1.0)
    made.on_tick(tick(1))
    # One tick's worth of changes that is beyond the bound by itself.
    page = np.arange(20_000, dtype=np.uint64)
    heat.ingest(AccessBatch(page, np.ones(20_000, np.float32), 1, "flood"))
    made.on_tick(tick(2))
    made.on_tick(tick(3))
    stats = made.close()
    assert (stats.ticks, stats.dropped_ticks) == (2, 1)
    found = list(Recording(tmp_path / "a.rec"))
    assert [each.ticks if isinstance(each, Gap) else each.number for each in found] == [1, 1, 3]


def test_a_tick_beyond_a_frame_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_RAW", 3000)
    made = Recorder(tmp_path / "a.rec", 1 << 30)
    heat = RecordingHeat(made.take, capacity_pages=1000, half_life_s=1.0)
    made.on_tick(tick(1))
    heat.ingest(AccessBatch(np.arange(4000, dtype=np.uint64),
                            np.ones(4000, np.float32), 1, "large"))  # fmt: skip
    made.on_tick(tick(2))
    made.on_tick(tick(3))
    assert made.close().dropped_ticks == 1
    assert [type(each) for each in Recording(tmp_path / "a.rec")] == [
        RecordedTick,
        Gap,
        RecordedTick,
    ]


def test_a_disk_that_fails_ends_the_recording_and_not_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    made = Recorder(tmp_path / "a.rec", 1 << 30)
    host = MadeUpHost(1, loads(""), recorder=made)
    host.run(3)
    while made.stats().ticks < 3:
        os.sched_yield()
    real, calls = os.write, []

    def half(fd: int, data: Any) -> int:
        if fd != made._writer._fd:
            return real(fd, data)
        calls.append(fd)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(fd, bytes(data)[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    host.run(3)
    with caplog.at_level(logging.WARNING, "tierd"):
        stats = made.close()
    monkeypatch.undo()
    assert host.service.totals.ticks == 6
    assert stats.ticks == 3
    assert stats.dropped_ticks >= 1
    found = Recording(tmp_path / "a.rec")
    assert len(list(found)) == 3
    assert found.last.ending.whole


def test_a_recording_ends_after_its_time_and_tells_once(tmp_path: Path) -> None:
    told: list[int] = []
    made = Recorder(
        tmp_path / "a.rec", 1 << 30, duration_ns=10, on_end=lambda: told.append(1)
    )  # fmt: skip
    for number in range(6):
        made.on_tick(tick(number, 4 * number))
    stats = made.close()
    assert (stats.ticks, stats.dropped_ticks, stats.ended) == (3, 0, recorder.TIME_IS_UP)
    assert told == [1]
    found = Recording(tmp_path / "a.rec")
    assert len(list(found)) == 3
    assert found.last.end_reason == recorder.TIME_IS_UP


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Any]:
    text = f'[record]\nenabled = true\nfolder = "{tmp_path / "kept"}"\nkeep = 3\n'
    return loads(text)


def test_the_folder_keeps_so_many_recordings_and_touches_nothing_else(
    kept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    for second in range(6):
        name = f"tierd-20260101T00000{second}Z.rec"
        monkeypatch.setattr("tierd.observe.recording.session.file_name", lambda name=name: name)
        with recording(kept) as made:
            assert made is not None
            made.on_tick(tick(1))
        if not second:
            (folder / "tierd-notes.rec").write_text("mine")
    assert sorted(each.name for each in folder.iterdir()) == [
        "tierd-20260101T000003Z.rec",
        "tierd-20260101T000004Z.rec",
        "tierd-20260101T000005Z.rec",
        "tierd-notes.rec",
    ]
    assert folder.stat().st_mode & 0o777 == 0o700
    with recording(kept) as first, recording(kept) as second:
        assert first is not None
        assert second is not None
        assert first.path != second.path


def test_nothing_is_recorded_unless_asked_for() -> None:
    with recording(loads("")) as made:
        assert made is None


def test_reading_takes_no_more_than_a_frame_says(whole: bytes) -> None:
    """A tick before its tables, and tables of a wrong shape, are errors of their own."""
    frames = list(FrameReader(io.BytesIO(whole)))
    raw = next(raw for kind, raw in frames if kind is FrameType.TICK)
    start = whole[: HEADER.size]
    with pytest.raises(RecordingError, match="before the configuration"):
        ticks_of(start + pack_frame(FrameType.TICK, raw))
    for kind in (FrameType.META, FrameType.TIERS, FrameType.TARGETS, FrameType.GAP):
        with pytest.raises(RecordingError):
            ticks_of(start + pack_frame(kind, b'{"ticks": "many"}'))
    with pytest.raises(RecordingError):
        ticks_of(start + pack_frame(FrameType.CONFIG, b"\xff"))
    meta = schema.META.decode(next(raw for kind, raw in frames if kind is FrameType.META))
    assert meta.dry_run is False
    assert replace(Pass(), ticks=1).ticks == 1
