# SPDX-License-Identifier: Apache-2.0
"""Small trials that only what is served decides on, where the model does not know better.

Tiers that are both full are levelled by a model of a queue, and the best split depends on what no
model of load and latency knows: whether programs wait for one tier after another or for all at
once, which streams come together. So when the model has come to rest and a tier is overloaded, a
slice of what is streamed there, `TRIAL.slice_line_fraction` of all lines in whole regions, goes to
the tier that is least used, and what memory serves in the epochs after is compared with the epochs
before. If more is served the slice stays and another follows; else it goes back, after a sharp fall
at once. If the first slice fails one the other way is tried; then nothing, for ever longer.

A slice that stays contradicts the model, which would take it back. What the model promises for
that is what its promises must exceed from then on (`least`), until memory is used in another way;
and at any time what it promises by chance.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tierd.core.migration import Fate, MigrationResult
from tierd.core.pagekey import F64Array, I16Array, U64Array
from tierd.core.tuning import REGRESSION, TRIAL
from tierd.policy.cost_decision import CostRound


@dataclass
class _Trial:
    source: int
    dest: int
    hot: bool
    base: float
    count: int
    noise: float
    region: U64Array
    page: U64Array
    node: I16Array = field(default_factory=lambda: np.empty(0, np.int16))
    promises: list[float] = field(default_factory=list)


class HillClimber:
    """Moves a slice, and keeps it where the rate of served lines grew.

    Args:
        residency_s: no page goes back before, but after a sharp fall.
    """

    def __init__(self, epoch_s: float, residency_s: float) -> None:
        self._epoch_ns = int(epoch_s * 1e9)
        self._epochs = max(TRIAL.epochs, int(np.ceil(residency_s / epoch_s)))
        self.least = TRIAL.model_min_gain
        """Part of what is waited that an end of the model's must save."""
        self.kept = self.failed = self.falls = 0
        """Slices that stayed, that went back, and how many of these did at once."""
        self._trial: _Trial | None = None
        self._planned = False
        self._rates: list[float] = []
        self._sum, self._ticks, self._begun_ns = 0.0, 0, 0
        self._ways: list[tuple[int, int]] = []
        self._turn = 0
        self._avoid: dict[tuple[int, int], U64Array] = {}
        self._pause, self._wait, self._rest = TRIAL.pause_epochs[0], 0, 0
        self.mix: F64Array | None = None
        """How accesses were spread when what is known began to hold."""

    @property
    def busy(self) -> bool:
        """Whether the model is to move nothing: a trial is on, or loads have not settled since."""
        return self._trial is not None or self._rest > 0

    @property
    def trying(self) -> bool:
        """Whether a slice is where it was not before."""
        return self._trial is not None

    @property
    def planned(self) -> bool:
        """Whether the moves before were a slice, there or back."""
        return self._planned

    def carried_out(self, time_ns: int, report: MigrationResult | None) -> None:
        """What became of a slice, there or back; what follows is compared."""
        self._planned = False
        self._rates, self._sum, self._ticks, self._begun_ns = [], 0.0, 0, time_ns
        if self._trial is None:
            return
        if report is None:
            self._trial, self._wait = None, self._pause
            return
        moved = (report.fate == Fate.MOVED) & np.isin(report.plan.page, self._trial.page)
        self._trial.page, self._trial.node = report.plan.page[moved], report.plan.source[moved]
        if not moved.any():
            self._trial, self._wait = None, self._pause

    def promised(self, part: float) -> None:
        """What the model promises now, as a part of what is waited."""
        if self._trial is not None:
            self._trial.promises.append(part)

    def reset_trials(self, time_ns: int) -> None:
        """Something else was moved, or is to be: what was seen is of before."""
        self._rates, self._sum, self._ticks, self._begun_ns = [], 0.0, 0, time_ns
        self._trial = None

    def forget(self, time_ns: int, mix: F64Array | None) -> None:
        """Memory is used in another way, spread as `mix`."""
        self.reset_trials(time_ns)
        self.mix = mix
        self.least, self._pause, self._wait, self._ways, self._avoid = (
            TRIAL.model_min_gain,
            TRIAL.pause_epochs[0],
            0,
            [],
            {},
        )
        self._turn = 0

    def update(self, time_ns: int, now: CostRound) -> bool:
        """Take in a tick; true at the end of an epoch of rest."""
        self._sum, self._ticks = self._sum + now.lines_per_s, self._ticks + 1
        if time_ns - self._begun_ns < self._epoch_ns:
            return False
        self._rates.append(self._sum / self._ticks)
        self._sum, self._ticks, self._begun_ns = 0.0, 0, time_ns
        self._wait, self._rest = max(0, self._wait - 1), max(0, self._rest - 1)
        if self._trial is None:
            self._rates = self._rates[-2 * TRIAL.epochs :]
        return True

    def verdict(self) -> tuple[U64Array, I16Array] | None:
        """At the end of an epoch: pages to go back, and where, if the trial failed."""
        trial, count = self._trial, len(self._rates)
        if trial is None or not count:
            return None
        gain = sum(self._rates) / count / trial.base - 1
        chance = trial.noise * float(np.sqrt(1 / count + 1 / trial.count))
        over, falls = (
            count >= 2 * self._epochs,
            gain < -TRIAL.sharp_loss - REGRESSION.standard_deviations * chance,
        )
        if falls or (count >= self._epochs and gain < TRIAL.min_gain):
            self.falls += falls
            return self._fails(trial)
        if over and gain < TRIAL.min_gain + chance:
            return self._fails(trial)
        if not over and (
            count < self._epochs or gain < TRIAL.min_gain + REGRESSION.standard_deviations * chance
        ):
            return None
        self._keeps(trial)
        return None

    def _keeps(self, trial: _Trial) -> None:
        self.kept += 1
        self.least = max(self.least, TRIAL.model_error_factor * max(trial.promises, default=0.0))
        # The way back was measured just now; the next turn is this way's.
        self._ways, self._pause = [(trial.source, trial.dest)], TRIAL.pause_epochs[0]
        self._turn = 2 if trial.hot else 1
        self._trial = None

    def _fails(self, trial: _Trial) -> tuple[U64Array, I16Array]:
        self.failed += 1
        way = (trial.source, trial.dest)
        before = self._avoid.get(way, np.empty(0, np.uint64))
        self._avoid[way] = np.union1d(before, trial.region)
        self._ways = [each for each in self._ways if each != way]
        if not self._ways:
            self._leave_it()
        self._trial, self._rates, self._planned, self._rest = None, [], True, TRIAL.rest_epochs
        return trial.page, trial.node

    def _ways_of(self, hot: int, used: F64Array) -> list[tuple[int, int]]:
        """From the overloaded tier to the least used first, and back from there."""
        others = [int(each) for each in np.argsort(used, kind="stable") if each != hot]
        there, back = [(hot, each) for each in others], [(each, hot) for each in others]
        # Both failed before: one is enough, by turns.
        return (there + back) if not self._turn else (there if self._turn % 2 else back)

    def due(
        self, now: CostRound, loaded: F64Array, idle: F64Array, used: F64Array
    ) -> tuple[U64Array, int] | None:
        """At the end of an epoch of rest: a slice, and the rank that it is to go to.

        Args:
            loaded, idle: float64[tiers] ns.
            used: float64[tiers] part of the bandwidth.
        """
        if self._trial is not None or self._wait or len(self._rates) < TRIAL.epochs:
            return None
        hot = int(np.argmax(np.where(used > 0, loaded / idle, 0.0)))
        if loaded[hot] < TRIAL.overloaded_factor * idle[hot]:
            return None
        if not self._ways or hot not in self._ways[0]:
            self._ways = self._ways_of(hot, used)
        recent = np.array(self._rates[-2 * TRIAL.epochs :])
        base = float(recent.mean())
        if not base > 0:
            return None  # programs stand still: nothing to compare with
        noise = max(TRIAL.min_noise, float(recent.std(ddof=1)) / base)
        for source, dest in list(self._ways):
            avoid = self._avoid.get((source, dest), np.empty(0, np.uint64))
            page, region = now.slice_of(source, dest, TRIAL.slice_line_fraction, avoid)
            if not len(page):
                self._ways.remove((source, dest))
                continue
            # The one other way that is left is back from there.
            self._ways = [way for way in self._ways if way in ((source, dest), (dest, source))]
            self._trial = _Trial(
                source, dest, source == hot, base, len(recent), noise, region, page
            )
            self._planned, self._rates = True, []
            return page, dest
        self._leave_it()
        return None

    def _leave_it(self) -> None:
        """Nothing for a time, a longer one each time."""
        self._turn += 1
        self._wait, self._pause = self._pause, min(TRIAL.pause_epochs[1], 2 * self._pause)
