# SPDX-License-Identifier: Apache-2.0
"""What the control loop does when the hot set moves: notice, and forget.

The number is the logarithm of the accesses a second that go to pages which were not hot.
While the hot set stays, it is the noise of the cold pages; when it moves, it leaps, for the
new hot pages are new to the table, whichever source sees them. Cards see none of them while
all hot pages lie elsewhere: their silence is a low number as long as others see accesses.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tierd.core.access import AccessBatch
from tierd.core.tuning import PHASE
from tierd.hotness.change_point import ChangeDetector, ChangeSettings
from tierd.hotness.table import HeatTable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CoolingSettings:
    """How changes are answered.

    Attributes:
        enabled: whether they are.
        certainty: posterior probability from which on a change is believed.
        half_lives: by how many half-lives all heat decays at once.
        least: heat below which a page counts as not hot.
    """

    enabled: bool = True
    certainty: float = 0.9
    half_lives: float = 3.0
    least: float = 6.25


class PhaseDetector:
    """Watches batches on their way into heat.

    Args:
        heat: the table that they go into.
        settings: how changes are answered.
    """

    def __init__(self, heat: HeatTable, settings: CoolingSettings) -> None:
        self._heat = heat
        self.settings = settings
        self._detector = self._fresh()
        self._source = ""
        self._last_ns = 0
        self._spoke = False
        self.found = 0
        """Changes since the start."""
        self.last_ns = 0
        """When the last one was found, CLOCK_MONOTONIC; 0 if there was none."""

    @property
    def probability(self) -> float:
        """Posterior probability that the present run of the number is a new one."""
        return self._detector.probability

    @property
    def run_length(self) -> int:
        """The likeliest length of the present run."""
        return self._detector.run_length

    def _fresh(self) -> ChangeDetector:
        return ChangeDetector(
            ChangeSettings(certainty=self.settings.certainty, noise=0.3, least_shift=0.7)
        )

    def restart(self) -> None:
        """Accesses are counted in another unit from now on: earlier levels are none."""
        self._detector, self._spoke = self._fresh(), False

    def watch(self, batches: Sequence[AccessBatch], source: str, now_ns: int) -> bool:
        """Take in a tick's batches before heat does; true if the hot set has moved.

        Heat has been faded then.
        """
        # What a companion tells of pages that the source does not see is another number.
        own = [batch for batch in batches if batch.source == source and len(batch)]
        fresh = 0.0
        if source == self._source and self.settings.enabled:
            fresh = float(sum(self._heat.novel(batch, self.settings.least) for batch in own))
        heard = any(map(len, batches))
        moved = self.judge(source, now_ns, own=bool(own), heard=heard, fresh=fresh)
        if moved:
            self._heat.fade(self.settings.half_lives)
            log.info(
                "event=phase_change detector=heat source=%s probability=%.3f fade=%g",
                source,
                self.probability,
                self.settings.half_lives,
            )
        return moved

    def judge(self, source: str, now_ns: int, *, own: bool, heard: bool, fresh: float) -> bool:
        """Whether what a tick brought tells that the hot set has moved; heat is not touched.

        Args:
            source: the name of the source in use.
            now_ns: CLOCK_MONOTONIC.
            own: the source has told of accesses.
            heard: it, or a companion, has.
            fresh: its accesses that go to pages which were not hot.
        """
        if source != self._source:
            # Another source counts in other numbers.
            self._source, self._detector, self._last_ns = source, self._fresh(), now_ns
            self._spoke = False
            return False
        seconds = (now_ns - self._last_ns) / 1e9
        self._last_ns = now_ns
        if seconds <= 0 or not self.settings.enabled or not source:
            return False
        if not own and not (self._spoke and heard):
            # Silence says nothing about where accesses go, and is no level to rise from.
            return False
        self._spoke = True
        noise = PHASE.noise_pages_per_s * self.settings.least
        if not self._detector.observe(math.log(noise + fresh / seconds)):
            return False
        self.found += 1
        self.last_ns = now_ns
        return True
