# SPDX-License-Identifier: Apache-2.0
"""A closed loop of a policy and a program in the lab's timing, line by line: `LineLoop`.

What the lab's guest does, without the guest: the queue, the prefetching and the sampling are the
plugin's (linetime.c), loads and patterns the service's. One CPU. Caches are left out, so arrays
are to be ones that no cache holds.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from tierloop import LINES, Loop
from tiersim import SimTier, tier_map

from tierd.core.access import LINE_BYTES, AccessBatch
from tierd.core.migration import MigrationPlan, MigrationResult
from tierd.core.tiermap import Measured, TierMap
from tierd.engine.bandwidth import BandwidthMonitor
from tierd.policy.inputs import Policy, Traffic

ROOT = Path(__file__).resolve().parents[2]
COPY_NS = 2000.0
SAMPLES = 1 << 16


@dataclass
class LineArray:
    """Pages of which a turn accesses `count` lines.

    Attributes:
        random: in no order.
        every, phase: written in one of so many sweeps; 0 for never.
        instructions: for each line.
    """

    name: str
    pages: int
    count: int
    random: bool = False
    every: int = 0
    phase: int = 0
    instructions: float = 20.0
    first: int = 0


class _Array(ctypes.Structure):
    _fields_ = (
        ("first", ctypes.c_uint64),
        ("lines", ctypes.c_uint64),
        ("at", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
        ("every", ctypes.c_uint32),
        ("phase", ctypes.c_uint32),
        ("random", ctypes.c_uint32),
        ("instructions", ctypes.c_double),
    )


@cache
def _library() -> ctypes.CDLL:
    out = ROOT / "build/linetime.so"
    out.parent.mkdir(exist_ok=True)
    sources = [ROOT / "tests/support/linetime.c", ROOT / "fpga/sim/plugin/timing.c"]
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    fresh = out.with_suffix(f".{id(out)}")
    subprocess.run(["cc", *flags, "-o", fresh, *sources], check=True)
    fresh.replace(out)
    library = ctypes.CDLL(str(out))
    library.linetime_new.restype = ctypes.c_void_p
    library.linetime_run.restype = library.linetime_taken.restype = ctypes.c_uint64
    library.linetime_now.restype = ctypes.c_double
    return library


class LineMachine:
    """Tiers and one program's arrays; a sweep is `sweep_turns` turns."""

    def __init__(
        self, tiers: Sequence[SimTier], arrays: Sequence[LineArray], sweep_turns: int
    ) -> None:
        self.tiers, self.arrays, self.sweep_turns = list(tiers), list(arrays), sweep_turns
        at = 0
        for array in self.arrays:
            array.first, at = at, at + -(-array.pages // 8192) * 8192 + 8192

    def map(self) -> TierMap:
        """The tiers as the host tells them."""
        return tier_map(self.tiers, 1)


class LineLoop(Loop):
    """See the module's text; ten times as fast as the service's defaults, as in the lab."""

    HALF_LIFE_S = 0.25

    def __init__(
        self,
        machine: LineMachine,
        policy: Policy,
        *,
        period: int = 1999,
        tick_s: float = 0.05,
        rate: int = 400_000_000,
        measured: Mapping[int, Measured] | None = None,
    ) -> None:
        super().__init__(machine, policy, tick_s=tick_s, rate=rate)  # type: ignore[arg-type]
        self._source = SimpleNamespace(lines_per_count=float(period))
        self._loads = BandwidthMonitor(self.heat, self.HALF_LIFE_S, measured=lambda: measured or {})
        self._samples = np.zeros(SAMPLES, np.uint64)
        self._arrays = (_Array * len(machine.arrays))(
            *(
                _Array(
                    a.first * LINES,
                    a.pages * LINES,
                    0,
                    a.count,
                    a.every,
                    a.phase,
                    a.random,
                    a.instructions,
                )
                for a in machine.arrays
            )
        )
        self._lib = _library()
        self._run = ctypes.c_void_p(
            self._lib.linetime_new(
                self._arrays,
                len(self._arrays),
                self.node.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_uint64(machine.sweep_turns),
                period,
                self._samples.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_uint64(SAMPLES),
            )
        )
        for node, tier in enumerate(machine.tiers):
            self._lib.linetime_node(
                self._run, node, ctypes.c_double(tier.latency_ns), ctypes.c_double(tier.bandwidth)
            )
        self._turns = 0

    def sweep_ms(self, seconds: float = 0.1) -> float:
        """Milliseconds that a sweep takes with pages where they are."""
        begun, turns = self._lib.linetime_now(self._run), self._turns
        self._turns = self._lib.linetime_run(self._run, ctypes.c_double(begun + seconds * 1e9))
        took = self._lib.linetime_now(self._run) - begun
        return float(took / (self._turns - turns) * self.machine.sweep_turns / 1e6)  # type: ignore[attr-defined]

    def put(self, name: str, node: int) -> None:
        """Place an array by hand."""
        array = next(a for a in self.machine.arrays if a.name == name)
        self.node[array.first : array.first + array.pages] = node

    def begin_at(self, lines: Mapping[str, int]) -> None:
        """Let arrays be read from these of their lines on."""
        for ours, array in zip(self._arrays, self.machine.arrays, strict=True):
            ours.at = lines[array.name]

    def _advance(self) -> tuple[np.ndarray, np.ndarray, Traffic]:
        begun = self._lib.linetime_now(self._run)
        until = begun + self.tick_s * 1e9
        turns, self._turns = self._turns, self._lib.linetime_run(self._run, ctypes.c_double(until))
        self.now_ns += int(self._lib.linetime_now(self._run) - begun)
        words = self._samples[: self._lib.linetime_taken(self._run)].copy()
        batch = AccessBatch(
            words >> np.uint64(1),
            np.ones(len(words), np.float32),
            self.now_ns,
            "lines",
            (words & np.uint64(1)).astype(np.bool_),
            ordered=True,
        )
        self.heat.ingest(batch)
        self._loads.see([batch], self._source)  # type: ignore[arg-type]
        nodes = range(len(self.machine.tiers))
        traffic = self._loads.read(self.now_ns, nodes, self._source)  # type: ignore[arg-type]
        load = np.array([traffic.load.get(node, 0.0) for node in nodes]) / LINE_BYTES
        return np.array([(self._turns - turns) / self.tick_s]), load, traffic

    def _move(self, plan: MigrationPlan) -> MigrationResult:
        for source, dest in zip(plan.source.tolist(), plan.dest.tolist(), strict=True):
            self._lib.linetime_copy(self._run, source, dest, ctypes.c_double(COPY_NS))
        return super()._move(plan)

    def _gained(self, before: Mapping[str, np.ndarray]) -> float:
        return 0.0

    def shares(self) -> dict[str, np.ndarray]:
        """Each array's pages by node."""
        nodes = range(len(self.machine.tiers))
        return {
            a.name: np.array([self.share_on(a.name, n) for n in nodes]) for a in self.machine.arrays
        }
