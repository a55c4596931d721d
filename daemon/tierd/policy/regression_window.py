# SPDX-License-Identifier: Apache-2.0
"""Gains of moves from epoch to epoch: predicted and observed, what is chance, and slow losses.

A loss that comes in small steps is not seen in any single epoch. So the rate before the first
move of a series is kept, and the mean of the latest epochs is compared with it. A series that
gained is done with, and what follows begins another one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from tierd.core import bounds
from tierd.core.pagekey import F64Array, I16Array, U64Array
from tierd.core.tuning import REGRESSION


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


@dataclass(frozen=True, slots=True)
class Before:
    """How memory served before moves.

    Attributes:
        rate: lines a second.
        mix: float64[parts] how they were spread over parts of memory, sum 1; None: not known.
    """

    rate: float = 0.0
    mix: F64Array | None = None

    def served(self, rate: float) -> float:
        """Relative to then; 1 where nothing was served then."""
        return rate / self.rate if self.rate > 0 else 1.0


class NoiseEstimate:
    """How much the rate differs between epochs of like use, by itself.

    Moves make differences, too, so a single one counts no more than `REGRESSION.max_change`
    explains.
    """

    def __init__(self) -> None:
        self._variance = REGRESSION.initial_noise**2
        self._last = 0.0

    def add(self, rate: float, *, alike: bool) -> None:
        """An epoch's rate, and whether memory is used as in the one before."""
        if alike and self._last > 0:
            change = min(abs(rate / self._last - 1), REGRESSION.max_change)
            self._variance += REGRESSION.noise_weight * (change**2 / 2 - self._variance)
        self._last = rate

    def chance(self, now: int, before: int) -> float:
        """What chance explains of a fall from one mean of epochs to another, relative."""
        return REGRESSION.standard_deviations * float(
            np.sqrt(self._variance * (1 / now + 1 / before))
        )


@dataclass
class RegressionWindow:
    """Watches the rate of served lines over a series of moves, and tells those that lost."""

    rates: deque[float] = field(default_factory=lambda: deque(maxlen=REGRESSION.mean_epochs))
    then: Before = field(default_factory=Before)
    lines: dict[str, float] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    page: list[U64Array] = field(default_factory=list)
    source: list[I16Array] = field(default_factory=list)
    age: int = 0
    calm: list[float] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether it is not yet known what moves brought."""
        return bool(self.page)

    def begins(self, mix: F64Array | None) -> None:
        """Moves are about to be made; remember how things were, if it is not known yet."""
        if not self.page and self.rates:
            self.then, self.age = Before(sum(self.rates) / len(self.rates), mix), 0

    def add(
        self, page: U64Array, source: I16Array, lines: dict[str, float], waits: dict[str, float]
    ) -> None:
        """An epoch's moves, uint64[n] from int16[n], and what they brought to tiers by name."""
        self.page.append(page)
        self.source.append(source)
        for kept, more in ((self.lines, lines), (self.waits, waits)):
            for name, value in more.items():
                kept[name] = kept.get(name, 0.0) + value

    def forget(self) -> None:
        """The series is over."""
        self.page, self.source, self.lines, self.waits = [], [], {}, {}
        self.rates.clear()
        self.calm.clear()

    def lost(self, rate: float, swing: NoiseEstimate, *, alike: bool, moved: bool = True) -> bool:
        """Whether all moves together lost; after each epoch, with its rate.

        Args:
            rate: lines a second that memory served in the epoch.
            alike: whether memory is used as before the series.
            moved: whether pages were moved in the epoch.
        """
        if not (alike or self.page):
            self.rates.clear()  # which were of another use
        self.rates.append(rate)
        if not self.page:
            return False
        self.age += 1
        self.calm = [] if moved else [*self.calm, rate]
        latest = REGRESSION.mean_epochs
        if alike and len(self.calm) == REGRESSION.settled_epochs:
            chance = swing.chance(REGRESSION.settled_epochs, latest)
            allowed = REGRESSION.settled_max_loss + chance
            calm = list(self.calm)
            if self.then.served(sum(calm) / REGRESSION.settled_epochs) < 1 - allowed:
                return True
            self.forget()
            self.rates.extend(calm)
            return False
        if not alike or self.age > REGRESSION.max_epochs:
            self.forget()
        elif len(self.rates) == latest and self.age >= latest:
            now, chance = sum(self.rates) / latest, swing.chance(latest, latest)
            if now > (1 + max(REGRESSION.min_gain, chance)) * self.then.rate:
                self.forget()
                self.rates.append(rate)
            return self.then.served(now) < 1 - REGRESSION.max_loss - chance
        return False

    def moved(self) -> tuple[U64Array, I16Array]:
        """Pages, uint64[n], and the nodes, int16[n], where each was at first."""
        page, source = np.concatenate(self.page), np.concatenate(self.source)
        page, first = np.unique(page, return_index=True)
        return page[: bounds.EPOCH_PAGES], source[first][: bounds.EPOCH_PAGES]
