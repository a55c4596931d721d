# SPDX-License-Identifier: Apache-2.0
"""Forecast of the memory a lender will use itself, from the period of its use.

Training repeats itself: memory rises through the forward pass and falls through the
backward pass (Zico, USENIX ATC 2021). The period is where the autocorrelation of the
samples has its highest peak; the forecast is the most that was used in the same phase
of the last two periods. Without a clear period it is the most ever seen in the window.
"""

from __future__ import annotations

import numpy as np

from tierd_gpu.links import F64Array

SAMPLES = 1024
CLEAR = 0.35
"""Autocorrelation below this is no period."""
EVERY = 16
"""Samples between two looks for the period."""


def find_period(series: F64Array) -> int:
    """The period of float64[m] in samples, 0 if there is none that is clear.

    Looks at lags from 4 to a third of the window, so that three periods were seen.
    """
    count = len(series)
    most = count // 3
    centred = series - series.mean()
    power = float(centred @ centred)
    if most < 8 or power <= 1e-9 * (1.0 + float(series @ series)):
        return 0
    size = 1 << (2 * count - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    raw = np.fft.irfft(spectrum * np.conj(spectrum), size)[: most + 1]
    lags = np.arange(most + 1)
    correlation = raw / power * count / (count - lags)
    inner = correlation[1:-1]
    peaks = np.flatnonzero((inner >= correlation[:-2]) & (inner > correlation[2:])) + 1
    peaks = peaks[(peaks >= 4) & (correlation[peaks] > CLEAR)]
    if not len(peaks):
        return 0
    # The first of the peaks that are nearly as high as the highest: not a multiple.
    high = correlation[peaks]
    return int(peaks[high >= 0.9 * high.max()][0])


class Forecast:
    """The samples of one GPU, taken at a steady pace.

    Attributes:
        period: in samples; 0 while none is known.
        peak: the most ever seen, bytes.
    """

    def __init__(self) -> None:
        self._ring = np.zeros(SAMPLES)
        self._count = 0
        self._step_ns = 0.0
        self._last_ns = 0
        self.first_ns = -1
        self.period = 0
        self.peak = 0.0

    def add(self, used_bytes: float, now_ns: int) -> None:
        """One sample."""
        if self.first_ns < 0:
            self.first_ns = now_ns
        elif now_ns > self._last_ns:
            step = now_ns - self._last_ns
            self._step_ns = step if not self._step_ns else 0.9 * self._step_ns + 0.1 * step
        self._last_ns = now_ns
        self._ring[self._count % SAMPLES] = used_bytes
        self._count += 1
        self.peak = max(self.peak, used_bytes)
        if self._count % EVERY == 0:
            self.period = find_period(self.series())

    def series(self) -> F64Array:
        """float64[m], the samples, oldest first."""
        if self._count <= SAMPLES:
            return self._ring[: self._count]
        at = self._count % SAMPLES
        return np.concatenate([self._ring[at:], self._ring[:at]])

    def most_used(self, horizon_ns: int) -> float:
        """Bytes that the owner is expected to use at most within the horizon."""
        series = self.series()
        if not len(series):
            return 0.0
        if not self.period or not self._step_ns:
            return self.peak
        ahead = min(int(np.ceil(horizon_ns / self._step_ns)) + 2, self.period)
        most = float(series[-1])
        for back in (1, 2):
            start = len(series) - back * self.period
            if start >= 1:
                most = max(most, float(series[start - 1 : start + ahead].max()))
        return most
