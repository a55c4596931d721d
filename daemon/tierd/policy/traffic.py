# SPDX-License-Identifier: Apache-2.0
"""What memory serves now, as far as the host tells: `Traffic`, a word of the cost rule."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tierd.core.tiermap import Measured
from tierd.hotness.pattern import Patterns


class LoadSource(enum.StrEnum):
    """Where a node's load is from, best first."""

    CARD = "card"
    """The state monitor of a NeoProf card in front of it."""
    RESCTRL = "resctrl"
    """Memory bandwidth monitoring of the caches (resctrl file system)."""
    SAMPLES = "samples"
    """Estimated from sampled accesses and their period."""
    NONE = "none"
    """Nobody tells: taken for idle."""
    UNCORE = "uncore"
    """The memory controllers' own counters, through perf: second best."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """One tick's knowledge of what memory serves.

    Attributes:
        time_ns: CLOCK_MONOTONIC of it.
        half_life_s: of the heat that goes with it.
        seen_s: seconds over which heat has been gathered; what is younger than a few half-lives
            has not yet reached its level.
        load: node → bytes a second, read and written.
        source: node → where that is from.
        lines_per_count: cache lines that one access counted in heat stands for.
        patterns: by region.
        measured: node → what a probe found.
    """

    time_ns: int
    half_life_s: float
    seen_s: float = math.inf
    load: Mapping[int, float] = field(default_factory=dict)
    source: Mapping[int, LoadSource] = field(default_factory=dict)
    lines_per_count: float = 1.0
    patterns: Patterns = field(default_factory=Patterns.none)
    measured: Mapping[int, Measured] = field(default_factory=dict)
