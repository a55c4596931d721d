# SPDX-License-Identifier: Apache-2.0
"""The feedback controller of the cost policy: what moves brought, and what is rolled back.

Time is cut into epochs. The predicted gain of an epoch is the sum over its moves that were carried
out. Its observed gain is taken one epoch later: what its pages, as they are accessed then, would
make all accesses wait more if they were back where they were. A page that has gone cold counts
nothing, and one that slows others down counts against. The pages may be a sample.

- **Hold**: if the gains of the last minute, each over the horizon, do not make up for the time that
  moves took and for the losses, nothing is moved for an epoch, and the margin doubles. Good epochs
  bring the margin down again.

The model cannot see that the description of a tier is wrong. Two checks need no model:

- **Ramp-up**: in an epoch at most a fraction of all lines changes tier, `ramp_up_limit`. It begins
  small and doubles with each epoch that gained. Until it is 1, the effect of one epoch is awaited
  before the next moves.
- **Rollback**: if memory serves fewer lines than before a series of moves, though accesses are
  spread over memory as before, and by more than noise explains, the series is taken back. If the
  rate then recovers, the tier that most lines had gone to is derated: it is taken to be so much
  slower than its description as explains the loss. Derating decays within minutes, and the tier
  gets another, small trial.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tierd.core.migration import Fate, I16Array, MigrationResult
from tierd.core.pagekey import U64Array
from tierd.core.tuning import FEEDBACK
from tierd.policy.pageset import sizes_of

F64Array = npt.NDArray[np.float64]
Placed = tuple[U64Array, I16Array]
"""Pages, uint64[n], and nodes, int16[n]."""


class Now(Protocol):
    """What a comparison needs of the present."""

    @property
    def lines_per_s(self) -> float:
        """Lines that memory serves."""

    @property
    def waited_s(self) -> float:
        """Seconds that all accesses wait, a second."""

    def spread(self) -> F64Array:
        """Decayed counts of accesses by part of memory."""

    def saved(self, page: U64Array, source: I16Array) -> tuple[float, int]:
        """Seconds saved a second by pages being here, not on `source` nodes; pages known."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch with moves: seconds of waiting saved a second, and seconds spent on moving."""

    end_ns: int
    predicted: float
    observed: float
    spent_s: float

    def gain_s(self, horizon_s: float) -> float:
        """Seconds gained over the horizon."""
        return self.observed * horizon_s - self.spent_s


@dataclass
class Choice:
    """Moves of the rule's own choice; what made room where a tier was short of it is none.

    Attributes:
        predicted: seconds of waiting saved a second.
        page, source: uint64[n] folios, and int16[n] nodes where they were.
        lines: tier → lines a second that come to it.
        waited_s: tier → seconds a second that these wait there.
        spent_s: seconds spent on moving.
    """

    predicted: float = 0.0
    page: U64Array = field(default_factory=lambda: np.empty(0, np.uint64))
    source: I16Array = field(default_factory=lambda: np.empty(0, np.int16))
    lines: dict[str, float] = field(default_factory=dict)
    waited_s: dict[str, float] = field(default_factory=dict)
    spent_s: float = 0.0

    def add(self, other: Choice, part: float = 1.0) -> None:
        """Add a part of another's sums, and its pages, up to a limit."""
        most = FEEDBACK.max_pages
        self.predicted += part * other.predicted
        self.spent_s += other.spent_s
        self.page = np.concatenate([self.page, other.page])[:most]
        self.source = np.concatenate([self.source, other.source])[:most]
        for sums, more in ((self.lines, other.lines), (self.waited_s, other.waited_s)):
            for name, value in more.items():
                sums[name] = sums.get(name, 0.0) + part * value

    def first_places(self) -> Placed:
        """Each page once, and where it was first."""
        page, first = np.unique(self.page, return_index=True)
        return page, self.source[first]


class Rollback:
    """Whether the moves since a base rate lost: epoch by epoch."""

    def __init__(self) -> None:
        self.moves = Choice()
        self.base = 0.0
        """Lines a second before the first of the moves."""
        self._mix: F64Array | None = None
        self._rates: deque[float] = deque(maxlen=FEEDBACK.mean_epochs)
        self._age = self._quiet = 0
        self._variance = FEEDBACK.initial_noise**2

    def forget(self) -> None:
        """The moves are accepted or rolled back, or memory is used in another way."""
        self.moves, self._age, self._quiet = Choice(), 0, 0

    def lost(self, rate: float, mix: F64Array | None, moved: Choice) -> bool:
        """Whether all moves together lost, at the end of an epoch.

        Args:
            rate: lines a second in the epoch.
            mix: float64[parts] how accesses were spread over memory, sum 1; None: unknown.
            moved: what was moved in the epoch; its effect is seen from the next one on.
        """
        if not alike(self._mix, mix):
            self.forget()
            self._rates.clear()
        if self._rates and self._rates[-1]:
            change = rate / self._rates[-1] - 1
            square = min(change**2 / 2, FEEDBACK.standard_deviations**2 * self._variance)
            self._variance += FEEDBACK.noise_weight * (square - self._variance)
        lost = len(self.moves.page) > 0 and self._fell(rate)
        if len(moved.page) and not len(self.moves.page):
            self.base = sum(self._rates) / len(self._rates) if self._rates else rate
            self._rates.clear()
        else:
            self._rates.append(rate)
        if len(moved.page):
            self.moves.add(moved)
            self._quiet = 0
        if not len(self.moves.page) or self._mix is None:
            self._mix = mix
        if lost:
            self._rates.clear()  # the next base is of what comes after the rollback
        return lost

    def _fell(self, rate: float) -> bool:
        self._age, self._quiet = self._age + 1, self._quiet + 1
        latest = [*self._rates, rate][-FEEDBACK.mean_epochs :]
        served = sum(latest) / len(latest) / self.base if self.base else 1.0
        spread = 1 / len(latest) + 1 / FEEDBACK.mean_epochs
        noise = FEEDBACK.standard_deviations * math.sqrt(self._variance * spread)
        enough = sum(self.moves.lines.values()) >= FEEDBACK.min_line_fraction * self.base
        settled = self._quiet >= FEEDBACK.settled_epochs
        allowed = FEEDBACK.settled_max_loss if settled else FEEDBACK.max_loss
        if served < 1 - allowed - noise and enough:
            return True
        # A loss that noise may explain is not accepted: in time the noise is known better.
        if (settled and served >= 1 - allowed) or served > 1 + FEEDBACK.max_loss + noise:
            self.forget()
        return False


def alike(one: F64Array | None, other: F64Array | None) -> bool:
    """Whether accesses are spread over memory alike; true where nothing is known."""
    if one is None or other is None:
        return True
    return float(np.minimum(one, other).sum()) >= FEEDBACK.alike_overlap


class FeedbackController:
    """See the module's text.

    Args:
        margin: the least, relative to the cost of a move.
        horizon_s: as of the rule.
        epoch_s: length of an epoch.
    """

    def __init__(self, margin: float, horizon_s: float, epoch_s: float) -> None:
        self._min_margin, self._horizon_s = margin, horizon_s
        self._epoch_ns = int(epoch_s * 1e9)
        self.half_life_s = 5.0
        """Of what `Now.spread` counts."""
        self.margin = margin
        self.epochs: deque[Epoch] = deque(maxlen=FEEDBACK.kept_epochs)
        self.predicted = self.observed = self.spent_s = 0.0
        """Sums over all epochs: predicted and observed seconds saved a second; seconds spent."""
        self.folio_s: float | None = None
        """Seconds that moving was observed to cost a folio."""
        self.holds = self.rollbacks = 0
        self.ramp_up_limit = FEEDBACK.first_line_fraction
        """Fraction of all lines that may change tier in an epoch."""
        self.derated: dict[str, float] = {}
        """Tier name → how many times slower than its description it is taken to be."""
        self.take_back: Placed | None = None
        """Pages to take back to the nodes where they were."""
        self._check = Rollback()
        self._test: tuple[Choice, float, float] | None = None
        """Moves that are taken back, the rate before them and the rate after."""
        self._spread: F64Array | None = None
        self._planned, self._moved, self._awaited = Choice(), Choice(), Choice()
        self._rates: list[float] = []
        self._rate = 0.0
        self._begun_ns = self._hold_until_ns = 0

    @property
    def correlation(self) -> float:
        """Rank correlation of predicted with observed gains; NaN until three are known."""
        return rank_correlation(
            np.array([each.predicted for each in self.epochs]),
            np.array([each.observed for each in self.epochs]),
        )

    def last_minute_s(self, now_ns: int) -> float:
        """Seconds gained by the moves of the last minute."""
        since = now_ns - int(FEEDBACK.balance_window_s * 1e9)
        return sum(e.gain_s(self._horizon_s) for e in self.epochs if e.end_ns >= since)

    @property
    def lines_left(self) -> float:
        """Lines a second that may still change tier in this epoch; 0 before the first rate."""
        if self._test is not None or (self.ramp_up_limit < 1 and len(self._awaited.page)):
            return 0.0
        return max(0.0, self.ramp_up_limit * self._rate - sum(self._moved.lines.values()))

    def planned(self, choice: Choice) -> None:
        """What the next plan is to do of the rule's own choice."""
        self._planned = choice

    def carried_out(self, report: MigrationResult | None) -> None:
        """What became of the plan before."""
        planned, self._planned = self._planned, Choice()
        if report is None or not len(report.plan):
            return
        moved = report.fate == Fate.MOVED
        carried = int(np.count_nonzero(moved))
        if not carried:
            return
        each_s = report.cpu_ns / 1e9 / carried
        self.folio_s = each_s if self.folio_s is None else 0.9 * self.folio_s + 0.1 * each_s
        chosen = np.isin(report.plan.page, planned.page)
        moved &= chosen
        if not moved.any():
            return
        size = sizes_of(report.plan.order)
        planned.page, planned.source = report.plan.page[moved], report.plan.source[moved]
        planned.spent_s = each_s * len(planned.page)
        self._moved.add(planned, float(size[moved].sum()) / float(size[chosen].sum()))

    def update(self, time_ns: int, now: Now) -> bool:
        """Take in the present state of memory; true if nothing is to move."""
        self._begun_ns = self._begun_ns or time_ns
        self._rates.append(now.lines_per_s)
        if time_ns - self._begun_ns >= self._epoch_ns:
            self._end_epoch(time_ns, now)
        return time_ns < self._hold_until_ns or self._test is not None

    def _end_epoch(self, time_ns: int, now: Now) -> None:
        rate = sum(self._rates) / len(self._rates)
        mix = self._mix(now.spread(), time_ns - self._begun_ns)
        self.derated = {
            name: 1 + FEEDBACK.derating_decay * (factor - 1)
            for name, factor in self.derated.items()
            if factor > 1.05
        }
        self.take_back = None
        if self._test is not None:
            self._judge(rate, now)
            self._moved = self._awaited = Choice()
        moved, before = self._moved, self._awaited
        if self._check.lost(rate, mix, moved):
            self.rollbacks += 1
            self.ramp_up_limit = FEEDBACK.first_line_fraction
            self._test = self._check.moves, self._check.base, rate
            self.take_back = self._check.moves.first_places()
            self._check.forget()
            moved = Choice()
        if len(before.page):
            self._settle(time_ns, before, now)
        self._awaited, self._moved = moved, Choice()
        self._begun_ns, self._rates, self._rate = time_ns, [], rate

    def _mix(self, spread: F64Array, elapsed_ns: int) -> F64Array | None:
        """The distribution of the accesses of this epoch over memory, sum 1; None without any."""
        before, self._spread = self._spread, spread
        if before is not None:
            spread = np.maximum(spread - 0.5 ** (elapsed_ns / 1e9 / self.half_life_s) * before, 0)
        total = float(spread.sum())
        return spread / total if total > 0 else None

    def _settle(self, time_ns: int, choice: Choice, now: Now) -> None:
        """Compare what an epoch's moves were predicted to gain with what is observed."""
        page, source = choice.first_places()
        saved, known = now.saved(page, source)
        observed = saved * len(page) / known if known else 0.0
        self.epochs.append(Epoch(time_ns, choice.predicted, observed, choice.spent_s))
        self.predicted += choice.predicted
        self.observed += observed
        self.spent_s += choice.spent_s
        if self.last_minute_s(time_ns) < 0:
            self.margin = min(FEEDBACK.max_margin, 2 * max(self.margin, 0.1))
            self.holds += 1
            self._hold_until_ns = time_ns + self._epoch_ns
        elif observed > 0:
            self.margin = max(self._min_margin, 0.8 * self.margin)
            if self._test is None:
                self.ramp_up_limit = min(1.0, 2 * self.ramp_up_limit)

    def _judge(self, rate: float, now: Now) -> None:
        """Moves were taken back because the rate had fallen: derate their tier if it recovered."""
        assert self._test is not None
        (moves, base, fallen), self._test = self._test, None
        if rate < fallen + FEEDBACK.recovered_fraction * (base - fallen):
            return
        name = max(moves.lines, key=lambda each: moves.lines[each])
        least, most = FEEDBACK.derating_range
        lost_s = (base / fallen - 1) * now.waited_s if fallen > 0 else 0.0
        slower = 1 + lost_s / moves.waited_s[name] if lost_s and moves.waited_s[name] > 0 else most
        self.derated[name] = min(most, max(least, slower * self.derated.get(name, 1.0)))


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's, NaN for fewer than three pairs; ties get their mean rank."""
    if len(one) < 3:
        return float("nan")
    ranks = [_ranks(np.asarray(each, np.float64)) for each in (one, other)]
    deviations = [each - each.mean() for each in ranks]
    norm = float(np.sqrt((deviations[0] ** 2).sum() * (deviations[1] ** 2).sum()))
    return float((deviations[0] * deviations[1]).sum()) / norm if norm else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    _, at, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[at])
