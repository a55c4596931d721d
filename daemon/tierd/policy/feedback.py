# SPDX-License-Identifier: Apache-2.0
"""What moves were predicted to save, what was observed, and which moves are taken back.

Time is cut into epochs. An epoch's predicted gain is the sum over its moves that
were carried out. Its observed gain is taken one epoch later: what its pages, as they are
accessed then, would make everybody wait more if they were back where they were, with the loads
and latencies of then. So a page that has gone cold since counts nothing, and one that slows
others down counts against. The pages looked at are a sample where there are many.

The model could be wrong in a way that it cannot see itself: a tier that lies, and nobody who
measures it. So moves begin slowly, as a sender does that does not know the network: in an epoch no
more than `allowance` of all lines change tier, which doubles with each epoch that went well, and
until all may, what came of one epoch is waited for before the next moves. And the rate at which
memory serves lines is watched. Where it falls by more than `FEEDBACK.alarm_loss` after an epoch
with moves, or little by little over a series of them (`tierd.policy.regression_window`), though
accesses are spread over memory as before (else a program does something else now), and by more
than chance explains, they are taken back, which is a test. If the rate recovers, the tier that most
lines had gone to is suspected to be as many times slower than it says as explains the loss, and the
rule decides with that. Suspicion fades, in minutes: the tier gets another trial, a small one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tierd.core import bounds
from tierd.core.migration import Fate, MigrationResult
from tierd.core.pagekey import F64Array, I16Array, U64Array
from tierd.core.tuning import FEEDBACK
from tierd.policy.cost_decision import CostRound
from tierd.policy.pageset import sizes_of
from tierd.policy.regression_window import (
    Before,
    Epoch,
    NoiseEstimate,
    RegressionWindow,
    rank_correlation,
)


@dataclass
class _Open:
    """What an epoch's moves were, until it is known what they brought."""

    predicted: float = 0.0
    spent_s: float = 0.0
    page: U64Array | None = None
    source: I16Array | None = None
    pages: int = 0
    then: Before = field(default_factory=Before)
    lines: dict[str, float] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)


class FeedbackController:
    """Compares what moves were predicted to save with what was observed."""

    def __init__(self, horizon_s: float, epoch_s: float) -> None:
        self._horizon_s = horizon_s
        self._epoch_ns = int(epoch_s * 1e9)
        self.half_life_s = FEEDBACK.half_life_s
        """Of what `CostRound.spread` tells."""
        self.epochs: deque[Epoch] = deque(maxlen=bounds.FEEDBACK_EPOCHS)
        self.predicted = self.observed = self.spent_s = 0.0
        """Sums over all epochs: predicted and observed seconds saved a second; seconds spent."""
        self.folio_s: float | None = None
        """What moving was seen to cost a folio."""
        self.alarms = 0
        self.allowance = FEEDBACK.first_line_fraction
        """Share of all lines that may change tier in an epoch."""
        self.suspected: dict[str, float] = {}
        """Tier name → how many times slower than it says it is thought to be."""
        self.undo: tuple[U64Array, I16Array] | None = None
        """Pages, uint64[n], to take back to the nodes, int16[n], they came from."""
        self._spread: F64Array | None = None
        self.mix: F64Array | None = None
        """How accesses of the last epoch were spread over parts of memory, sum 1."""
        self.tried = False
        """Something else is tried: what is served now says nothing of moves before."""
        self._test: tuple[_Open, float] | None = None
        self._series, self._swing = RegressionWindow(), NoiseEstimate()
        self._planned = _Open()
        self._now = _Open()
        self._before: _Open | None = None
        self._begun_ns = 0
        self._rates: list[float] = []
        self._rate = 0.0

    @property
    def correlation(self) -> float:
        """Rank correlation of predicted with observed gains; NaN until three are known."""
        return rank_correlation(
            np.array([each.predicted for each in self.epochs]),
            np.array([each.observed for each in self.epochs]),
        )

    def last_minute_s(self, now_ns: int) -> float:
        """Seconds gained by the moves of the last minute."""
        since = now_ns - 60 * 10**9
        return sum(e.gain_s(self._horizon_s) for e in self.epochs if e.end_ns >= since)

    @property
    def lines_left(self) -> float:
        """Lines a second that may still change tier in this epoch; 0 before the first rate."""
        if self._test is not None or (self.allowance < 1 and self._before is not None):
            return 0.0
        return max(0.0, self.allowance * self._rate - sum(self._now.lines.values()))

    @property
    def settled(self) -> bool:
        """Whether it is known what all moves brought, and none is taken back."""
        return not self._series.open and self._test is None

    def planned(
        self,
        saved: float,
        lines: Mapping[str, float],
        waits: Mapping[str, float],
        page: U64Array,
    ) -> None:
        """What a plan is to do of the rule's own choice.

        What makes room where a tier is short of it, what keeps groups' shares and what is taken
        back is no choice, and no gain is looked for: nothing of the plan but `page` counts.

        Args:
            saved: seconds a second that it is predicted to save.
            lines: tier → lines a second that it brings there.
            waits: tier → seconds a second that these will wait there.
            page: uint64[n] folios.
        """
        self._planned = _Open(saved, page=page, lines=dict(lines), waits=dict(waits))

    def carried_out(self, report: MigrationResult | None) -> None:
        """What became of the plan before."""
        planned, self._planned = self._planned, _Open()
        if report is None or not len(report.plan):
            return
        moved = report.fate == Fate.MOVED
        carried = int(np.count_nonzero(moved))
        if not carried:
            return
        each = report.cpu_ns / 1e9 / carried
        self.folio_s = each if self.folio_s is None else 0.9 * self.folio_s + 0.1 * each
        if planned.page is None:
            return
        chosen = np.isin(report.plan.page, planned.page)
        moved &= chosen
        if not moved.any():
            return
        size = sizes_of(report.plan.order)
        now, count = self._now, int(np.count_nonzero(moved))
        part = float(size[moved].sum()) / float(size[chosen].sum())
        now.predicted += planned.predicted * part
        for name in planned.lines:
            now.lines[name] = now.lines.get(name, 0.0) + planned.lines[name] * part
            now.waits[name] = now.waits.get(name, 0.0) + planned.waits[name] * part
        now.spent_s += report.cpu_ns / 1e9 * (count / carried)
        page, source = report.plan.page[moved], report.plan.source[moved]
        most = bounds.EPOCH_PAGES
        now.page = page if now.page is None else np.concatenate([now.page, page])[:most]
        now.source = source if now.source is None else np.concatenate([now.source, source])[:most]
        now.pages += count

    def update(self, time_ns: int, now: CostRound) -> bool:
        """The present state of memory; true while moves are taken back to see whether it helps."""
        if not self._begun_ns:
            self._begun_ns = time_ns
        self._rates.append(now.lines_per_s)
        if time_ns - self._begun_ns >= self._epoch_ns:
            rate = sum(self._rates) / len(self._rates)
            self._fade()
            before = self.mix
            then = Before(self._rate or rate, before)
            self.mix = self._fresh(now.spread(), time_ns - self._begun_ns)
            self.undo = None
            if self._test is not None:
                self._judge(rate, now)
                self._now = _Open()
                self._series.forget()
            elif self._before is not None:
                self._settle(time_ns, self._before, rate, now)
            if self.tried:
                self._series.forget()
            else:
                self._observe_gain(rate, moved=self._now.page is not None)
                self._swing.add(rate, alike=self.alike(before))
            self._before = self._now if self._now.page is not None else None
            if self._before is not None:
                self._before.then = then
                assert self._before.page is not None
                assert self._before.source is not None
                self._series.add(
                    self._before.page, self._before.source, self._before.lines, self._before.waits
                )
            self._now, self._begun_ns, self._rates, self._rate = _Open(), time_ns, [], rate
        return self._test is not None

    def _settle(self, time_ns: int, epoch: _Open, rate: float, now: CostRound) -> None:
        assert epoch.page is not None
        assert epoch.source is not None
        # A page that moved twice in the epoch came from where it was first.
        page, first = np.unique(epoch.page, return_index=True)
        saved, known = now.saved(page, epoch.source[first])
        observed = saved * epoch.pages / known if known else 0.0
        if sum(epoch.lines.values()) >= FEEDBACK.min_line_fraction * epoch.then.rate:
            served = epoch.then.served(rate)
            if served < 1 - FEEDBACK.alarm_loss - self._swing.chance(1, 1) and self.alike(
                epoch.then.mix
            ):
                self.alarms += 1
                self.allowance = FEEDBACK.first_line_fraction
                self._test, self.undo = (epoch, rate), (page, epoch.source[first])
            elif observed > 0 and served > 1 - FEEDBACK.alarm_loss:
                self.allowance = min(1.0, 2 * self.allowance)
        self.epochs.append(Epoch(time_ns, epoch.predicted, observed, epoch.spent_s))
        self.predicted += epoch.predicted
        self.observed += observed
        self.spent_s += epoch.spent_s

    def _observe_gain(self, rate: float, *, moved: bool) -> None:
        """Take a whole series of moves back that lost little by little."""
        series = self._series
        alike = self.alike(series.then.mix)
        lost = series.lost(rate, self._swing, alike=alike, moved=moved)
        if lost and self._test is None:
            self.alarms += 1
            self.allowance = FEEDBACK.first_line_fraction
            whole = _Open(then=series.then, lines=dict(series.lines), waits=dict(series.waits))
            self._test, self.undo = (whole, rate), series.moved()
            self._now = _Open()
        if lost or self._test is not None:
            series.forget()
        series.begins(self.mix)

    def _fresh(self, spread: F64Array, elapsed_ns: int) -> F64Array | None:
        """How the accesses of this epoch are spread, sum 1; None if there were none."""
        before, self._spread = self._spread, spread
        if before is not None:
            spread = np.maximum(spread - 0.5 ** (elapsed_ns / 1e9 / self.half_life_s) * before, 0)
        total = float(spread.sum())
        return spread / total if total > 0 else None

    def alike(self, mix: F64Array | None) -> bool:
        """Whether accesses are spread now as they were then; yes where nobody knows."""
        if mix is None or self.mix is None:
            return True
        return float(np.minimum(mix, self.mix).sum()) >= FEEDBACK.alike_overlap

    def _judge(self, rate: float, now: CostRound) -> None:
        """Moves were taken back because the rate fell: was it them?"""
        assert self._test is not None
        (epoch, fallen), self._test = self._test, None
        if rate < fallen + FEEDBACK.recovered_fraction * (epoch.then.rate - fallen):
            return
        name = max(epoch.lines, key=lambda each: epoch.lines[each])
        lost = (epoch.then.rate / fallen - 1) * now.waited if fallen > 0 else 0.0
        least, most = FEEDBACK.derating_range
        times = 1 + lost / epoch.waits[name] if lost and epoch.waits[name] > 0 else most
        times *= self.suspected.get(name, 1.0)
        self.suspected[name] = min(most, max(least, times))

    def _fade(self) -> None:
        faded = {
            name: 1 + FEEDBACK.derating_decay * (times - 1)
            for name, times in self.suspected.items()
        }
        self.suspected = {name: times for name, times in faded.items() if times > 1.05}
