# SPDX-License-Identifier: Apache-2.0
"""Has the hot set moved? A run-length posterior over how accesses fall.

Owns: Bayesian online change-point detection (Adams and MacKay, 2007) of one number a tick.
Must not touch: where the number comes from, and what a change is answered with.

The number is modelled as normal within a run, with unknown mean and variance (a
normal-gamma prior, so the predictive is Student's t), and a run ends with a constant
chance a tick. The posterior of the present run's length is kept exactly, but for runs
beyond `RUN_MAX`, which are one. A change is told when the posterior has moved to short
runs of at least two observations: one odd tick is no change.

Variance has a floor: a number that stood still for minutes makes no change of its first
small step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

F64Array = npt.NDArray[np.float64]

RUN_MAX: Final = 256
"""Longer runs count as this long: a rising floor of memory, and nothing is lost by it."""
SHORT: Final = 4
"""A run of two to this many observations is a new one."""
_KAPPA: Final = 0.05
"""Observations that the prior mean is worth."""
_ALPHA: Final = 1.0
"""Half the observations that the prior variance is worth."""


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """How changes are told.

    Attributes:
        expected_run: ticks that a run is expected to last.
        certainty: posterior probability of a new run from which on it is told.
        noise: the number's usual standard deviation, before any is observed, and
            half of it is the floor of what is believed later.
        least_shift: a smaller change of the mean is none.
        least_run: ticks that a run must have lasted before its end is told.
    """

    expected_run: float = 200.0
    certainty: float = 0.9
    noise: float = 0.1
    least_shift: float = 0.3
    least_run: int = 6


def _log_gamma_ratios() -> F64Array:
    """log of gamma(a + 1/2) / gamma(a), float64[RUN_MAX + 1], for a = alpha + n / 2."""
    a = [_ALPHA + n / 2 for n in range(RUN_MAX + 1)]
    return np.array([math.lgamma(x + 0.5) - math.lgamma(x) for x in a])


_GAMMA: Final = _log_gamma_ratios()


class ChangeDetector:
    """Watches one number for a rise of its mean.

    Only a rise is a change: the numbers that tierd watches rise when accesses go to pages
    that were cold, and sink again as tierd has caught up.
    """

    def __init__(self, settings: ChangeSettings | None = None) -> None:
        self.settings = settings or ChangeSettings()
        self.run_length = 0
        """The likeliest length of the present run."""
        self.probability = 0.0
        """Posterior probability that the present run is a new one."""
        self._log_p: F64Array = np.zeros(1)
        self._n: F64Array = np.zeros(1)
        self._mean: F64Array = np.zeros(1)
        self._squares: F64Array = np.zeros(1)
        self._prior_mean: float | None = None
        self._since_told = 0
        self._settled = 0
        self._settled_mean = 0.0

    def observe(self, value: float) -> bool:
        """Take in a tick's number; true if it shows that the mean has risen.

        Raises:
            ValueError: not a finite number.
        """
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a number that can be watched")
        if self._prior_mean is None:
            self._prior_mean = value
            self._mean = np.array([value])
        before = self._likeliest()
        self._update(value)
        return self._judge(before)

    def _likeliest(self) -> tuple[int, float]:
        """Length and mean of the likeliest present run."""
        best = int(np.argmax(self._log_p))
        return int(self._n[best]), float(self._mean[best])

    def _update(self, value: float) -> None:
        settings = self.settings
        hazard = 1.0 / settings.expected_run
        alpha = _ALPHA + self._n / 2
        kappa = _KAPPA + self._n
        beta = _ALPHA * settings.noise**2 + self._squares / 2
        floor = (settings.noise / 2) ** 2
        scale = np.maximum(beta / alpha, floor) * (kappa + 1) / kappa
        distance = (value - self._mean) ** 2
        index = np.minimum(self._n, RUN_MAX).astype(np.int64)
        log_t = (
            _GAMMA[index]
            - 0.5 * np.log(2 * np.pi * alpha * scale)
            - (alpha + 0.5) * np.log1p(distance / (2 * alpha * scale))
        )
        grown = self._log_p + log_t + math.log1p(-hazard)
        # A new run begins with this value: it is judged by the prior, whatever ended before.
        ended = float(np.logaddexp.reduce(self._log_p)) + math.log(hazard) + float(log_t[0])
        mean = self._mean + (value - self._mean) / (kappa + 1)
        squares = self._squares + distance * kappa / (kappa + 1)
        fresh = self._begun(value)
        self._log_p = np.concatenate([[ended], grown[1:]])
        self._n = np.concatenate([[1.0], self._n[1:] + 1])
        self._mean = np.concatenate([[fresh[0]], mean[1:]])
        self._squares = np.concatenate([[fresh[1]], squares[1:]])
        self._prune()

    def _begun(self, value: float) -> tuple[float, float]:
        """Mean and sum of squares of a run that consists of `value`."""
        assert self._prior_mean is not None
        step = value - self._prior_mean
        return (
            self._prior_mean + step / (_KAPPA + 1),
            min(step**2 * _KAPPA / (_KAPPA + 1), self.settings.noise**2),
        )

    def _prune(self) -> None:
        """The empty run stays first, for the next value; the rest is bounded."""
        assert self._prior_mean is not None
        keep = np.flatnonzero(self._log_p > self._log_p.max() - 30.0)[:RUN_MAX]
        log_p, n = self._log_p[keep], np.minimum(self._n[keep], RUN_MAX)
        total = float(np.logaddexp.reduce(log_p))
        # The first entry is the run that has not begun; its weight is the whole posterior's,
        # through the hazard, so it needs none of its own.
        self._log_p = np.concatenate([[-np.inf], log_p - total])
        self._n = np.concatenate([[0.0], n])
        self._mean = np.concatenate([[self._prior_mean], self._mean[keep]])
        squares = self._squares[keep]
        # A run that counts as RUN_MAX forgets as much as it takes in.
        full = self._n[1:] >= RUN_MAX
        squares = np.where(full, squares * (RUN_MAX - 1) / RUN_MAX, squares)
        self._squares = np.concatenate([[0.0], squares])

    def _judge(self, before: tuple[int, float]) -> bool:
        settings = self.settings
        weights = np.exp(self._log_p)
        new = (self._n >= 2) & (self._n <= SHORT)
        self.probability = float(weights[new].sum())
        best = int(np.argmax(self._log_p))
        self.run_length = int(self._n[best])
        if before[0] >= settings.least_run:
            self._settled_mean = before[1]
            self._settled = before[0]
        self._since_told += 1
        if (
            self.probability < settings.certainty
            or self._settled < settings.least_run
            or self._since_told < settings.least_run
        ):
            return False
        fresh = float(np.average(self._mean[new], weights=weights[new]))
        if fresh - self._settled_mean < settings.least_shift:
            return False
        self._since_told = 0
        self._settled = 0
        return True
