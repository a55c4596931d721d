# SPDX-License-Identifier: Apache-2.0
"""`ChangeDetector`: finds a rise of a number's mean, by a run-length posterior (Adams and MacKay).

Within a run the number is modelled as normal with unknown mean and variance (a normal-gamma prior,
so that the predictive is Student's t). A run ends with a constant chance in each tick. The
posterior of the run's length is exact up to `RUN_MAX`. A change is reported when the posterior has
moved to short runs of at least two observations, so that one odd tick is no change. The variance
has a floor, so that a number that was constant for minutes makes no change of its first small step.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tierd.core.bounds import FORGOTTEN_LOG, RUN_MAX
from tierd.core.tuning import HOTNESS


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """Settings of a detector.

    Attributes:
        expected_run: ticks that a run is expected to last.
        certainty: posterior probability of a new run above which it is reported.
        noise: the number's expected standard deviation; half of it is the floor later on.
        least_shift: a smaller change of the mean is none.
        least_run: ticks that a run must have lasted before its end is reported.
    """

    expected_run: float = 200.0
    certainty: float = 0.9
    noise: float = 0.1
    least_shift: float = 0.3
    least_run: int = 6


@dataclass(slots=True)
class _Run:
    """A run that may be the present one: what it saw, and the logarithm of its probability."""

    log_p: float = -math.inf
    n: float = 0.0
    mean: float = 0.0
    squares: float = 0.0


def _add_logs(a: float, b: float) -> float:
    """The logarithm of a sum of two numbers, from their logarithms."""
    if a == b:
        return a + math.log(2.0)
    return a + math.log1p(math.exp(b - a)) if a > b else b + math.log1p(math.exp(a - b))


def _likeliest(runs: Sequence[_Run]) -> _Run:
    return max(runs, key=lambda run: run.log_p)


class ChangeDetector:
    """Watches a number for a rise of its mean.

    Only a rise is a change: the numbers rise when accesses go to pages that were cold, and fall
    again once those pages have been promoted.
    """

    def __init__(self, settings: ChangeSettings | None = None) -> None:
        self.settings = settings or ChangeSettings()
        self.run_length = 0
        """The likeliest length of the present run."""
        self.probability = 0.0
        """Posterior probability that the present run is a new one."""
        self._noise = self.settings.noise
        self._alpha = HOTNESS.change_prior_shape
        self._kappa = HOTNESS.change_prior_mean_weight
        # Of gamma(a + 1/2) / gamma(a), by the run's length.
        shapes = [self._alpha + n / 2 for n in range(RUN_MAX + 1)]
        self._log_gamma_ratios = [math.lgamma(a + 0.5) - math.lgamma(a) for a in shapes]
        # The first entry is the run that begins with the next value.
        self._runs = [_Run(log_p=0.0)]
        self._prior_mean: float | None = None
        self._since_reported = 0
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
            self._prior_mean = self._runs[0].mean = value
        before = _likeliest(self._runs)
        length, mean = before.n, before.mean
        self._update(value, self._prior_mean)
        short = [run for run in self._runs[1:] if 2 <= run.n <= HOTNESS.change_max_run]
        weights = [math.exp(run.log_p) for run in short]
        self.probability = sum(weights, 0.0)
        fresh = sum((w * run.mean for w, run in zip(weights, short, strict=True)), 0.0)
        self.run_length = int(_likeliest(self._runs).n)
        return self._judge(length, mean, fresh / self.probability if self.probability > 0 else 0.0)

    def _update(self, value: float, prior_mean: float) -> None:
        """The posterior of the run's length after another value."""
        noise, kappa, hazard = self._noise, self._kappa, 1.0 / self.settings.expected_run
        runs, step = self._runs, value - prior_mean
        log_goes_on = math.log1p(-hazard)
        # A new run begins with this value: the prior judges it, whatever ended before.
        ended = functools.reduce(_add_logs, (run.log_p for run in runs))
        ended = ended + math.log(hazard) + self._extend(runs[0], value)
        for run in runs[1:]:
            run.log_p = run.log_p + self._extend(run, value) + log_goes_on
        squares = min(step * step * kappa / (kappa + 1), noise * noise)
        runs[0] = _Run(ended, 1, prior_mean + step / (kappa + 1), squares)
        least = _likeliest(runs).log_p - FORGOTTEN_LOG
        runs = [run for run in runs if run.log_p > least][:RUN_MAX]
        total = functools.reduce(_add_logs, (run.log_p for run in runs))
        for run in runs:
            run.log_p -= total
            # A run that counts as the longest forgets as much as it takes in.
            if run.n >= RUN_MAX:
                run.n, run.squares = RUN_MAX, run.squares * (RUN_MAX - 1) / RUN_MAX
        # The hazard gives the next run the weight of all others.
        self._runs = [_Run(mean=prior_mean), *runs]

    def _extend(self, run: _Run, value: float) -> float:
        """Add a value to a run; the logarithm of how likely it was."""
        noise, n = self._noise, run.n
        alpha, kappa = self._alpha + n / 2, self._kappa + n
        beta = self._alpha * (noise * noise) + run.squares / 2
        scale = max(beta / alpha, noise / 2 * (noise / 2)) * (kappa + 1) / kappa
        step = value - run.mean
        distance = step * step
        run.n = n + 1
        run.mean += step / (kappa + 1)
        run.squares += distance * kappa / (kappa + 1)
        return (
            self._log_gamma_ratios[min(int(n), RUN_MAX)]
            - 0.5 * math.log(2 * math.pi * alpha * scale)
            - (alpha + 0.5) * math.log1p(distance / (2 * alpha * scale))
        )

    def _judge(self, length: float, mean: float, fresh_mean: float) -> bool:
        """Whether the mean has risen from that of the likeliest run before this value."""
        settings = self.settings
        if length >= settings.least_run:
            self._settled, self._settled_mean = int(length), mean
        self._since_reported += 1
        if (
            self.probability < settings.certainty
            or self._settled < settings.least_run
            or self._since_reported < settings.least_run
        ):
            return False
        if fresh_mean - self._settled_mean < settings.least_shift:
            return False
        self._since_reported = 0
        self._settled = 0
        return True
