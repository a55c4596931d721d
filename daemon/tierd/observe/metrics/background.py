# SPDX-License-Identifier: Apache-2.0
"""Figures of what runs beside the loop: a recording, and lent GPU memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tierd.observe.metrics import families as f
from tierd.observe.metrics.values import Labels

Figures = Mapping[str, Mapping[Labels, float]]


class Recorded(Protocol):
    """What a recorder tells (`tierd.observe.recording.recorder.RecorderStats`)."""

    @property
    def ticks(self) -> int:
        """Passes written."""
        ...

    @property
    def bytes(self) -> int:
        """Size of the file."""
        ...

    @property
    def dropped_ticks(self) -> int:
        """Passes that are missing."""
        ...

    @property
    def ended(self) -> str:
        """Why it ended, or an empty text."""
        ...


def of_recorder(stats: Recorded) -> Figures:
    """A recording's figures."""
    return {
        f.RECORDING: {(): float(not stats.ended)},
        f.RECORDED_TICKS: {(): float(stats.ticks)},
        f.RECORDED_BYTES: {(): float(stats.bytes)},
        f.RECORDING_DROPPED: {(): float(stats.dropped_ticks)},
    }


def of_gpu(samples: Iterable[Any]) -> Figures:
    """The harvester's figures.

    Args:
        samples: `tierd_gpu.metrics.Sample`; counters have the kind of event in their names.
    """
    found: dict[str, dict[Labels, float]] = {}
    for sample in samples:
        name, labels = sample.name, tuple(sample.labels.values())
        if name not in f.FAMILIES:
            group, _, what = name.removeprefix("tierd_gpu_").removesuffix("_total").partition("_")
            if group == "moves":
                name, labels = f.GPU_MOVES, (what, *labels)
            elif group == "connections":
                name, labels = f.GPU_CONNECTIONS, (what, *labels)
            else:
                name, labels = f.GPU_EVENTS, ("_".join(filter(None, (group, what))),)
        found.setdefault(name, {})[labels] = float(sample.value)
    return found
