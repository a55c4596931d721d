# SPDX-License-Identifier: Apache-2.0
"""Which cells the matrix has, and in which order they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from results import Key
from variants import has

from workloads import Workload

WAVES = (
    ("first-touch", "oracle", "numa-balancing-1-3s", "tierd-neoprof"),
    ("numa-balancing", "tierd-scan"),
    ("damon", "tierd-damon"),
    ("pebs-weak", "pebs-histogram", "pte-scan", "all-slow", "all-fast"),
)
"""Methods in the order in which they run: each wave over all workloads, what says most first."""
METHODS = tuple(method for wave in WAVES for method in wave)
OTHER_KERNELS = ("tierd-idlepage",)
"""Methods that Debian's kernels cannot run; those that are named run in a wave of their own."""
QUICK = ("first-touch", "oracle", "tierd-neoprof")
LENGTH = 3.0
"""Times the work that is told of a workload that it does in the table: so that the way to a good
placement, half a second to a second, is a small part of it."""


def planned(
    workloads: Sequence[str],
    methods: Sequence[str],
    variants: Sequence[str],
    seeds: Sequence[int],
) -> list[Key]:
    """The cells in order: wave by wave, each with one seed after the other.

    The variants of a cell follow each other, so that a run that is cut off has whole pairs.
    """
    return [
        Key(workload, method, variant, seed)
        for wave in (*WAVES, OTHER_KERNELS)
        for seed in seeds
        for workload in workloads
        for method in wave
        if method in methods
        for variant in variants
        if has(method, variant)
    ]


def scaled(workload: Workload, scale: float) -> Workload:
    """The workload with more or less to do."""
    return replace(workload, work=max(1, round(workload.work * scale)))
