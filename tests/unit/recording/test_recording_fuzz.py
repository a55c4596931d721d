# SPDX-License-Identifier: Apache-2.0
"""Recordings that nobody wrote: read, or refused with one error.

Most are damaged as disks and networks damage; the rest have right checksums, as somebody
who means harm would give them. Nothing but `RecordingError` may come out, and what a
reader allocates is bounded by what it was given.
"""

from __future__ import annotations

import io
import json
import math
import random
import resource
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import golden
import pytest
from fuzz import inputs, mutated
from madeup_host import record, two_tiers

from tierd.observe.recording import RecordingError, schema
from tierd.observe.recording.fastpath import decode_fast_path, spans_after
from tierd.observe.recording.frames import FRAME, HEADER, FrameReader, FrameType, pack_frame
from tierd.observe.recording.reader import Pass, Recording, read
from tierd.observe.recording.records import HeatOp, RecordedTick
from tierd.replay.decided import Decided
from tierd.replay.policy import Replay
from tierd.replay.world import World

RULES = """
[[rule]]
name = "first"
match = { exe = "a" }
fast_min = "30%"
[[rule]]
name = "second"
match = { exe = "b" }
fast_max = "10%"
rate_limit = "20MB/s"
"""
VALUES = (0, 1, -1, 0.5, 1e300, -1e-300, math.nan, math.inf, None, True, "", "neoprof", [], [[1]],
          1 << 40, (1 << 62) - 1, 1 << 63, [[0, 1, 2, 3, 4, 5]])  # fmt: skip
DAMAGED, FORGED_TICKS, FORGED_TABLES = inputs(170_000), inputs(50_000), inputs(20_000)
FORGED_PARTS, REPLAYED_PARTS = inputs(60_000), inputs(4_000)
FORGED_FILES, REPLAYED = inputs(12_000), inputs(2_000)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[FrameType, bytes]]:
    path = tmp_path_factory.mktemp("fuzz") / "a.rec"
    record(path, 3, text=RULES, ticks=4, samples=6, pages=40, fast_pages=10, targets=3)
    return list(FrameReader(io.BytesIO(path.read_bytes())))


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("fuzz") / "b.rec"
    record(path, 3, ticks=0)
    return path.read_bytes()[: HEADER.size]


@pytest.fixture(scope="module")
def decided() -> list[tuple[FrameType, bytes]]:
    """The first frames of what is decided beside the policy, of a golden recording."""
    with (golden.FOLDER / "cards.rec").open("rb") as stream:
        kinds = (FrameType.CALLS, FrameType.FASTPATH)
        return [each for each in FrameReader(stream) if each[0] in kinds][:16]


def forged_decisions(kind: FrameType, raw: bytes, draw: random.Random) -> bytes:
    """Other bytes, or other values of calls."""
    if kind is FrameType.FASTPATH or draw.random() < 0.2:
        return mutated(raw, draw)
    head = len(schema.U64.encode(0))
    calls = json.loads(raw[head:])
    for _ in range(draw.choice((1, 1, 3))):
        values = draw.choice(calls)[1]
        if values:
            values[draw.randrange(len(values))] = draw.choice(VALUES)
    return raw[:head] + json.dumps(calls).encode()


def attempt(counts: Counter[str], what: Callable[[], object]) -> None:
    try:
        what()
    except RecordingError:
        counts["refused"] += 1
    else:
        counts["read"] += 1


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_damaged_files_are_read_to_the_damage(
    frames: list[tuple[FrameType, bytes]], header: bytes
) -> None:
    draw, counts = random.Random(1), Counter[str]()
    whole = header + b"".join(pack_frame(kind, raw) for kind, raw in frames[:6])
    before = peak_mib()
    for _ in range(DAMAGED):
        data = mutated(whole, draw)
        found = Pass()
        attempt(counts, lambda data=data, found=found: list(read(io.BytesIO(data), found)))
        assert found.ending.offset <= len(data)
    assert counts.total() == DAMAGED
    print(f"recordings, damaged: {DAMAGED} inputs, {dict(counts)}")
    # Checksums leave almost nothing to be misread; most files end where the damage is.
    assert counts["read"] > DAMAGED / 2
    assert peak_mib() - before < 200


def test_forged_ticks_are_ticks_or_refused(frames: list[tuple[FrameType, bytes]]) -> None:
    draw, counts = random.Random(2), Counter[str]()
    tiers = two_tiers((10, 10))
    ticks = [raw for kind, raw in frames if kind is FrameType.TICK]
    before = peak_mib()
    for _ in range(FORGED_TICKS):
        data = mutated(draw.choice(ticks), draw)
        attempt(counts, lambda data=data: schema.decode_tick(data, "", tiers))
    print(f"recordings, forged ticks: {FORGED_TICKS} inputs, {dict(counts)}")
    assert counts.total() == FORGED_TICKS
    assert min(counts["read"], counts["refused"]) > FORGED_TICKS / 100
    assert peak_mib() - before < 200


def test_forged_tables_are_tables_or_refused(frames: list[tuple[FrameType, bytes]]) -> None:
    draw, counts = random.Random(3), Counter[str]()
    decoders = {
        FrameType.META: schema.META.decode,
        FrameType.TIERS: schema.TIERS.decode,
        FrameType.TARGETS: schema.TARGETS.decode,
        FrameType.EXCHANGED: schema.EXCHANGED.decode,
    }
    tables = [(decoders[kind], raw) for kind, raw in frames if kind in decoders]
    tables.append((schema.EXCHANGED.decode, schema.EXCHANGED.encode({1, 3})))
    for _ in range(FORGED_TABLES):
        decode, raw = draw.choice(tables)
        data = mutated(raw, draw)
        attempt(counts, lambda decode=decode, data=data: decode(data))
    print(f"recordings, forged tables: {FORGED_TABLES} inputs, {dict(counts)}")
    assert counts.total() == FORGED_TABLES
    assert min(counts["read"], counts["refused"]) > FORGED_TABLES / 100


def test_forged_calls_and_steps_are_such_or_refused(
    decided: list[tuple[FrameType, bytes]],
) -> None:
    draw, counts = random.Random(6), Counter[str]()
    before = peak_mib()
    for _ in range(FORGED_PARTS):
        kind, raw = draw.choice(decided)
        data = mutated(raw, draw)
        if kind is FrameType.CALLS:
            attempt(counts, lambda data=data: schema.CALLS.decode(data))
        else:
            attempt(counts, lambda data=data: decode_fast_path(data, None))
    print(f"recordings, forged decisions: {FORGED_PARTS} inputs, {dict(counts)}")
    assert counts.total() == FORGED_PARTS
    assert min(counts["read"], counts["refused"]) > FORGED_PARTS / 100
    assert peak_mib() - before < 200


def test_forged_calls_and_steps_can_be_replayed_or_are_refused(
    decided: list[tuple[FrameType, bytes]],
) -> None:
    """What passes as decisions goes through the components and the native path as well."""
    draw, counts = random.Random(7), Counter[str]()
    empty = next(iter(Recording(golden.FOLDER / "cards.rec")))
    assert isinstance(empty, RecordedTick)
    for _ in range(REPLAYED_PARTS):
        forged = draw.randrange(len(decided))
        frames = [
            (kind, forged_decisions(kind, raw, draw) if index == forged else raw)
            for index, (kind, raw) in enumerate(decided[: forged + 2])
        ]

        def replay(frames: list[tuple[FrameType, bytes]] = frames) -> None:
            again, world, spans = Decided(), World(), None
            world.apply(HeatOp("new", (1000, 5.0, 30.0)))
            for kind, raw in frames:
                if kind is FrameType.CALLS:
                    tick = replace(empty, calls=schema.CALLS.decode(raw), fast_path=None)
                else:
                    log = decode_fast_path(raw, spans)
                    spans = spans_after(log, spans)
                    tick = replace(empty, calls=None, fast_path=log)
                again.before(tick)
                again.after(tick, world)

        attempt(counts, replay)
    print(f"recordings, forged decisions replayed: {REPLAYED_PARTS} inputs, {dict(counts)}")
    assert counts.total() == REPLAYED_PARTS
    assert min(counts["read"], counts["refused"]) > REPLAYED_PARTS / 100


def test_forged_files_with_right_checksums_are_read_or_refused(
    frames: list[tuple[FrameType, bytes]], header: bytes
) -> None:
    draw, counts = random.Random(4), Counter[str]()
    packed = [pack_frame(kind, raw) for kind, raw in frames]
    for _ in range(FORGED_FILES):
        chosen = draw.randrange(len(frames))
        kind, raw = frames[chosen]
        forged = bytearray(pack_frame(draw.choice([kind, *FrameType]), mutated(raw, draw)))
        if draw.random() < 0.3:  # wrong lengths and codings under a right checksum
            at = draw.choice((4, 5, 6, 9))
            forged[at] ^= 1 << draw.randrange(8)
            crc = zlib.crc32(forged[FRAME.size :], zlib.crc32(forged[: FRAME.size - 4]))
            forged[FRAME.size - 4 : FRAME.size] = crc.to_bytes(4, "little")
        parts = [*packed[:chosen], bytes(forged), *packed[chosen + 1 : chosen + 2]]
        data = header + b"".join(parts)
        attempt(counts, lambda data=data: list(read(io.BytesIO(data), Pass())))
    print(f"recordings, forged files: {FORGED_FILES} inputs, {dict(counts)}")
    assert counts.total() == FORGED_FILES
    assert min(counts["read"], counts["refused"]) > FORGED_FILES / 100


def test_forged_ticks_can_be_replayed_or_are_refused(
    frames: list[tuple[FrameType, bytes]], header: bytes, tmp_path: Path
) -> None:
    """What passes as a tick goes through heat, the policy and the other world as well."""
    from tierd.engine.build import make_policy
    from tierd.replay.settings import make_change

    draw, counts = random.Random(5), Counter[str]()
    path = tmp_path / "forged.rec"
    change = make_change([("policy.confidence_sigmas", 0.5)], None)
    for number in range(REPLAYED):
        parts = [
            pack_frame(kind, mutated(raw, draw) if kind is FrameType.TICK else raw)
            for kind, raw in frames
        ]
        path.write_bytes(header + b"".join(parts))

        def replay(changed: bool = number % 2 == 0) -> None:
            found = Replay(Recording(path), make_policy, change if changed else None)
            assert all(compared.tick for compared in found)

        attempt(counts, replay)
    print(f"recordings, replayed: {REPLAYED} inputs, {dict(counts)}")
    assert counts.total() == REPLAYED
