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
from dataclasses import dataclass
from typing import Any, Final

from tierd._native import ffi, lib
from tierd.core.tuning import HOTNESS

RUN_MAX: Final = int(lib.TIERD_RUN_MAX)
"""Longer runs count as this long, which bounds memory."""


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


@functools.cache
def _log_gamma_ratios(alpha: float) -> Any:
    """double[], log of gamma(a + 1/2) / gamma(a) for a = alpha + n / 2, n to RUN_MAX."""
    a = [alpha + n / 2 for n in range(RUN_MAX + 1)]
    return ffi.new("double[]", [math.lgamma(x + 0.5) - math.lgamma(x) for x in a])


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
        # The first entry is the run that begins with the next value.
        self._run: Any = ffi.new("struct tierd_run[]", RUN_MAX + 2)
        self._runs = 1
        self._seen: Any = ffi.new("struct tierd_change_seen *")
        self._words: Any = ffi.new("struct tierd_change_words *")
        self._words.hazard = 1.0 / self.settings.expected_run
        self._words.noise = self.settings.noise
        self._words.alpha = HOTNESS.change_prior_shape
        self._words.kappa = HOTNESS.change_prior_mean_weight
        self._words.short_run = HOTNESS.change_max_run
        self._gamma_ratio = _log_gamma_ratios(HOTNESS.change_prior_shape)
        self._words.gamma_ratio = self._gamma_ratio
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
            self._prior_mean = self._words.prior_mean = self._run[0].mean = value
        self._runs = lib.tierd_change_observe(self._run, self._runs, value, self._words, self._seen)
        return self._judge()

    def _judge(self) -> bool:
        settings, seen = self.settings, self._seen
        self.probability = float(seen.probability)
        self.run_length = int(seen.length)
        if seen.length_before >= settings.least_run:
            self._settled_mean = float(seen.mean_before)
            self._settled = int(seen.length_before)
        self._since_reported += 1
        if (
            self.probability < settings.certainty
            or self._settled < settings.least_run
            or self._since_reported < settings.least_run
        ):
            return False
        if seen.fresh_mean - self._settled_mean < settings.least_shift:
            return False
        self._since_reported = 0
        self._settled = 0
        return True
