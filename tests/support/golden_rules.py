# SPDX-License-Identifier: Apache-2.0
"""A recording of the scan controller, the detectors and the pace that are told anything.

No host behaves so: what they are told is drawn around their thresholds, so that a rule that has
changed gives another answer soon.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from madeup_host import two_tiers

from tierd.config.model import Config
from tierd.core.migration import MigrationPlan
from tierd.engine.pacing import Findings
from tierd.observe.recording.recorder import Recorder
from tierd.observe.tick_record import TickRecord
from tierd.replay.scan import AGE, BURST, CONTROLLER, PACER
from tierd.sources.scan_records import ScanSummary

MS, S = 10**6, 10**9
CALLS = 40
"""Of each component, in a tick."""


class Rules:
    """The components, and what they are told.

    Args:
        recorder: told of their calls.
        now_ns: CLOCK_MONOTONIC.
        seed: of all that is drawn.
    """

    def __init__(self, recorder: Recorder, now_ns: int, seed: int = 5) -> None:
        self._recorder, self.now = recorder, now_ns
        self._random = np.random.default_rng(seed)
        journal = recorder.journal
        self._scan_controller = CONTROLLER.recorded(journal, "scan")(800_000, 2_000, now_ns)
        self._miss_burst, self._still = BURST.recorded(journal)(), AGE.recorded(journal)()
        self._pacer = PACER.recorded(journal)()
        self._rounds, self._pages, self._share = 0, 8000, 0.3
        self._asked = self._refused = self._requests = 0
        self._begun_ns = now_ns
        self._tells: tuple[Callable[[], None], ...] = (
            *4 * (self._take,),
            *4 * (self._startle,),
            *2 * (self._burst,),
            self._pause,
            self._other,
        )

    def _between(self, least: float, most: float) -> float:
        return float(self._random.uniform(least, most))

    def _chance(self, share: float) -> bool:
        return bool(self._random.random() < share)

    def tick(self, number: int) -> None:
        """Some calls, and a tick that decides nothing."""
        for _ in range(CALLS):
            self.now += int(self._between(20 * MS, 300 * MS))
            self._tells[int(self._random.integers(len(self._tells)))]()
        self._recorder.on_tick(
            TickRecord(
                number=number,
                time_ns=self.now,
                end_ns=self.now,
                source="scan",
                batches=(),
                located=0,
                walked=0,
                targets=1,
                tiers=two_tiers((100, 400)),
                usage={},
                budget=None,
                plan=MigrationPlan.empty(),
                report=None,
                ms={},
                config=Config(),
            )
        )

    def _take(self) -> None:
        if self._chance(0.04):
            self._pages = int(self._random.choice([2000, 6000, 9000, 12_000]))
        if self._chance(0.1):
            self._share = float(self._random.choice([0.0, 5e-5, 2e-4, 0.1, 0.3, 0.88, 0.93]))
        if self._chance(0.1):
            self._scan_controller.aim = self._between(0.02, 1.0)
        self._scan_controller.awake = self._chance(0.1)
        self._rounds += int(self._random.choice([1, 1, 3, 6]))
        sampling_interval_us = (
            self._scan_controller.sampling_interval_us or self._scan_controller.period_us
        )
        stats = {
            "rounds": self._rounds,
            "round_pages": self._pages,
            "round_accessed": int(self._pages * self._share * self._between(0.6, 1.05)),
            "period_ns": int(self._scan_controller.period_us * self._between(1000, 1200)),
            "sampling_interval_ns": int(sampling_interval_us * self._between(1000, 1100)),
        }
        self._scan_controller.take({1: stats}, self.now)

    def _startle(self) -> None:
        silent = int(self._between(20, 300))
        found = ScanSummary(
            int(silent * self._between(0.2, 3.0)),
            int(self._between(20, 160)),
            self._between(0.0, 0.7),
            silent,
            self._between(0.2, 0.9),
        )
        if self._chance(0.2):
            self._scan_controller.is_phase_change(found)
        self._scan_controller.on_phase_change(found, self.now)

    def _burst(self) -> None:
        times = 5 if self._chance(0.1) else 1
        self._refused += int(times * self._between(0, 150))
        self._requests += int(times * self._between(0, 9000))
        if self._chance(0.08):
            self._begun_ns = self.now
        cards: Any = SimpleNamespace(
            epochs={0: SimpleNamespace(start_ns=self._begun_ns)}, requests=lambda: self._requests
        )
        if self._miss_burst.update(cards, self._refused, self.now) and self._chance(0.5):
            self._miss_burst.pages(self._miss_burst.take(), self._refused, self._between(10, 1000))

    def _pause(self) -> None:
        if self._chance(0.1):
            self._pacer.hurry()
        self._pacer.next_pause(
            Findings(
                tick_ns=500 * MS,
                quiet_tick_ns=8 * S,
                learning_ns=int(self._chance(0.1)) * 200 * MS,
                report_ns=int(self._chance(0.2)) * int(self._between(100 * MS, 3 * S)),
                settled=self._chance(0.7),
                looks=self._chance(0.3),
                walked=self._chance(0.95),
                free=self._chance(0.95),
                moved=self._chance(0.05),
                short=self._chance(0.1),
                planned=int(self._between(0, 200)),
                between=int(self._between(0, 200)),
                victims=self._chance(0.5),
            )
        )

    def _other(self) -> None:
        self._still.see(self._scan_controller.phase_detector.last_ns, [], self.now)
        if self._chance(0.1):
            self._still.restart(self.now)
        self._still.seconds(self.now)
        match int(self._random.integers(6)):
            case 0 | 1:
                self._scan_controller.rest(int(self._between(0, 8e6)))
            case 2 | 3:
                longest = None if self._chance(0.3) else int(self._between(1e3, 1e6))
                self._scan_controller.bound(longest)
            case 4:
                self._scan_controller.pace(int(self._between(4e5, 1.2e6)))
            case _ if self._chance(0.2):
                self._rounds = 0
                self._scan_controller.start(self.now)
