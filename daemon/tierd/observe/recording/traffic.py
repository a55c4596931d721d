# SPDX-License-Identifier: Apache-2.0
"""What memory served in a tick (`tierd.policy.traffic`) to bytes and back."""

from __future__ import annotations

from typing import Final

import numpy as np

from tierd.core.nodes import Measured
from tierd.hotness.pattern import Patterns
from tierd.observe.recording.columns import Decoder, Encoder
from tierd.observe.recording.errors import RecordingError
from tierd.policy.traffic import LoadSource, Traffic

_SOURCES: Final = tuple(LoadSource)
_NONE: Final = -1.0
"""Stands for a figure that a probe could not tell; such figures are not negative."""


def encode_traffic(out: Encoder, traffic: Traffic) -> None:
    """Append it."""
    out.number(
        "Qddd", traffic.time_ns, traffic.half_life_s, traffic.seen_s, traffic.lines_per_count
    )
    out.number("H", len(traffic.load))
    for node, load in traffic.load.items():
        source = traffic.source.get(node, LoadSource.NONE)
        out.number("HdB", node, load, _SOURCES.index(source))
    out.number("H", len(traffic.measured))
    for node, found in traffic.measured.items():
        figures = (found.latency_ns, found.bandwidth_bytes_per_s)
        out.number("Hdd", node, *(_NONE if each is None else each for each in figures))
    known = traffic.patterns
    out.pages(known.region)
    for values in (known.counted, known.parallel, known.doubt, known.written):
        out.array(values, np.float64)


def decode_traffic(take: Decoder) -> Traffic:
    """Take it off.

    Raises:
        RecordingError: the bytes are not those of a traffic.
    """
    time_ns, half_life_s, seen_s, lines_per_count = take.number("Qddd")
    if not (1e-3 <= half_life_s <= 1e9 and seen_s >= 0 and 0 <= lines_per_count <= 1e12):
        raise RecordingError(f"heat of {seen_s} s with a half-life of {half_life_s} s")
    load: dict[int, float] = {}
    source: dict[int, LoadSource] = {}
    for _ in range(take.one("H")):
        node, each, told = _load(take)
        load[node], source[node] = each, told
    measured = {}
    for _ in range(take.one("H")):
        node, *figures = take.number("Hdd")
        measured[node] = Measured(*(None if each == _NONE else each for each in figures))
    region = take.pages()
    columns = [take.array(len(region), np.float64) for _ in range(4)]
    columns.append(np.full(len(region), np.nan))  # `tierd.observe.recording.splits` has it
    if np.any(region[1:] <= region[:-1]):
        raise RecordingError("regions of a traffic are not in order")
    return Traffic(
        time_ns,
        half_life_s,
        seen_s=seen_s,
        load=load,
        source=source,
        lines_per_count=lines_per_count,
        patterns=Patterns(region, *columns),
        measured=measured,
    )


def _load(take: Decoder) -> tuple[int, float, LoadSource]:
    node, load, number = take.number("HdB")
    if not 0 <= load <= 1e18:
        raise RecordingError(f"a load of {load} bytes a second")
    if number >= len(_SOURCES):
        raise RecordingError(f"a load from a source of unknown kind {number}")
    return node, load, _SOURCES[number]
