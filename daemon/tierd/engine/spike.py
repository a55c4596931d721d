# SPDX-License-Identifier: Apache-2.0
"""Whether a count suddenly grows much faster than is usual, while a cards' epoch lasts.

A load that is never at rest leaps again and again, and nothing is gained by hearing of all pages
anew: with each leap the epoch must be twice as old for the next one, and half as old again with
each epoch that ends without one. A leap in an epoch that is not as old is seen to when it is.
"""

from __future__ import annotations

from tierd.core.tuning import PHASE


class SpikeDetector:
    """See the module's text.

    Args:
        least: a count that grows by less between two calls is nothing sudden.
        calms_s: time over which the usual rate follows one that is lower; None for
            `PHASE.spike_mean_s`.

    Attributes:
        rate: how much it grew a second, between the last two calls.
    """

    def __init__(self, least: int, calms_s: float | None = None) -> None:
        calms_s = PHASE.spike_mean_s if calms_s is None else calms_s
        self._least, self._calms_s = least, calms_s
        self._count = self._before = 0
        self._last_ns = self._leapt_ns = 0
        self._waits_ns = 0
        """Start of the epoch in which there was a leap, whether it was old enough or not."""
        self._usual = 0.0
        self._old_ns = PHASE.spike_min_epoch_ns
        self._epoch_ns = 0
        self.rate = 0.0

    def since(self, count: int) -> int:
        """How much the count has grown in the last leap and after it.

        Args:
            count: since the start.
        """
        return max(0, count - self._before)

    def is_spike(self, count: int, now_ns: int, epoch_ns: int) -> bool:
        """Whether it suddenly grew fast since the last call.

        Args:
            count: since the start.
            now_ns: CLOCK_MONOTONIC.
            epoch_ns: when the epoch that cards' reports are of began.
        """
        grown, seconds = count - self._count, (now_ns - self._last_ns) / 1e9
        known = self._last_ns > 0
        self._count, self._last_ns = count, now_ns
        if not known or seconds <= 0 or grown < 0:
            return False
        usual, self.rate = self._usual, grown / seconds
        over_s = PHASE.spike_mean_s if self.rate > usual else self._calms_s
        self._usual += min(1.0, seconds / over_s) * (self.rate - usual)
        if epoch_ns > self._epoch_ns:
            if self._leapt_ns < self._epoch_ns:
                self._old_ns = max(PHASE.spike_min_epoch_ns, self._old_ns // 2)
            self._epoch_ns = epoch_ns
        if self._leapt_ns >= epoch_ns:
            return False
        miss_burst = grown >= self._least and self.rate >= PHASE.spike_factor * usual
        if (
            miss_burst
            and self._waits_ns != epoch_ns
            and now_ns - epoch_ns >= PHASE.spike_min_epoch_ns
        ):
            self._waits_ns, self._before = epoch_ns, count - grown
        if self._waits_ns != epoch_ns or now_ns - epoch_ns < self._old_ns:
            return False
        self._leapt_ns = now_ns
        self._old_ns = min(2 * self._old_ns, PHASE.spike_max_wait_ns)
        return True
