# SPDX-License-Identifier: Apache-2.0
"""What the native promoter is told each tick."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tierd.core.pagekey import VPN_BITS
from tierd.core.tiermap import TierMap
from tierd.core.tuning import FAST_PATH, VALUE
from tierd.engine.fastpath.destinations import Paths, held_back, paths, victims, ways
from tierd.engine.service_view import ServiceView
from tierd.engine.tracking import Tracking
from tierd.hotness.view import HeatView
from tierd.migration.fastpath_update import SPAN, Orders, PromoterSettings
from tierd.policy.group_limits import Groups
from tierd.policy.rule import break_even_s, least_rate, posterior_mean
from tierd.policy.watermark import WatermarkSettings
from tierd.sources.neoprof import NeoProfSource
from tierd.sources.sampling_interval import used_a_second
from tierd.topology.node_meminfo import read_held


@dataclass(frozen=True, slots=True)
class FastPathSettings:
    """How the native path is steered.

    Attributes:
        enabled: false leaves all promotion to the ticks.
        interval_ns: the promoter's.
        quota_bytes_per_s: bytes promoted in any second, at most.
        half_life_s: of heat.
        break_even_s: in which a page's promotion must pay, at least.
    """

    enabled: bool
    interval_ns: int
    quota_bytes_per_s: int
    half_life_s: float
    break_even_s: float


class FastPathUpdater:
    """Makes settings and orders; what they are made of is made anew only when it has changed.

    Args:
        settings: how the native path is steered.
        policy: the watermark policy's settings, whose rule the promoter applies.
        heat, tracking: components of the service.
        root: root of /sys.
    """

    def __init__(
        self,
        settings: FastPathSettings,
        policy: WatermarkSettings,
        *,
        heat: HeatView,
        tracking: Tracking,
        root: Path,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._heat = heat
        self._tracking = tracking
        self._root = root
        self._known_spans: list[tuple[int, int]] = []
        self._spans: npt.NDArray[np.void] = np.empty(0, SPAN)
        self._tiers: TierMap | None = None
        self._known_paths: Paths = {}
        self._rate_of: tuple[TierMap, frozenset[int]] | None = None
        self._a_second = 0.0
        """Requests a second that pay for a page's moves in one second, of `_rate_of`."""

    def least_rate(self, source: NeoProfSource, tiers: TierMap, stood_still_s: float) -> float:
        """Requests a second that a page must have to be promoted, now.

        `stood_still_s`: for so long the hot set has not moved, as far as is known.
        """
        nodes = frozenset(node for node, share in source.coverage.covered.items() if share > 0)
        known = self._rate_of
        if known is None or known[0] is not tiers or known[1] != nodes:
            self._rate_of = tiers, nodes
            self._a_second = least_rate(tiers, nodes, 1.0)
        return self._a_second / break_even_s(self._settings.break_even_s, stood_still_s)

    def settings(self, source: NeoProfSource | None, rate: float = 0.0) -> PromoterSettings:
        """How it promotes what this source tells of; None: it only remembers what was moved.

        `rate`: requests a second, the least that is worth a promotion.
        """
        policy = self._policy
        if source is None:
            dilution = rate_cap = visits = 1.0
            copy_requests = 0.0
        else:
            dilution, rate_cap, visits = source.dilution, source.rate_cap, source.visits
            copy_requests = source.copy_requests
        return PromoterSettings(
            interval_ns=self._settings.interval_ns,
            quota_bytes_per_s=self._settings.quota_bytes_per_s,
            residency_s=policy.min_residency_s,
            bounce_s=FAST_PATH.ping_pong_s,
            patience_s=FAST_PATH.pending_timeout_s,
            margin=policy.margin,
            confidence=policy.confidence,
            heat_s=self._settings.half_life_s / math.log(2) * dilution,
            rate_cap=rate_cap,
            visits=visits,
            copy_requests=copy_requests,
            least_rate=rate,
            return_rate=0.0
            if rate <= 0
            else self._a_second / (VALUE.return_fraction * self._settings.break_even_s),
            expected=rate > 0 and source is not None and used_a_second(source.seen) > 0,
        )

    def orders(
        self, source: NeoProfSource, around: ServiceView, came_in: int, groups: Groups | None
    ) -> Orders:
        """What it may move, and where to; `came_in` pages were promoted since the last orders."""
        tiers, usage = around.tiers, around.usage
        wanted = self._victims_wanted(source, came_in)
        cold = victims(self._heat, tiers, usage, self._policy, wanted, groups=groups)
        return Orders(
            spans=self._movable(around, groups),
            pids=self._tracking.pids,
            victims=self._grown(source, cold),
            epochs={
                number: (epoch.start_ns, epoch.before_ns, epoch.scale)
                for number, epoch in source.epochs.items()
            },
            ways=ways(self._paths(tiers), usage, self._policy, self._held()),
        )

    def _held(self) -> Mapping[int, int]:
        """Free bytes that CPUs hold on to, by node."""
        return read_held(self._root)

    def _victims_wanted(self, source: NeoProfSource, came_in: int) -> int:
        """Twice what came in since the last tick; none while it is not known what is cold."""
        if not source.knows_cold:
            return 0
        return min(max(FAST_PATH.min_victims, 2 * came_in), self._policy.max_moves_per_tick)

    def _movable(self, around: ServiceView, groups: Groups | None) -> npt.NDArray[np.void]:
        """What the native path may move, `SPAN`[n]: all but what is close to its group's cap."""
        known = self._tracking.spans()
        if known != self._known_spans:
            self._known_spans, self._spans = known, np.array(known, SPAN)
        if groups is None:
            return self._spans
        slack = int(self._settings.quota_bytes_per_s * FAST_PATH.group_slack_s)
        held = held_back(groups, around.tiers, around.usage, slack)
        target = (self._spans["start"] >> np.uint64(VPN_BITS)).astype(np.int64)
        return self._spans[~held[target]]

    def _paths(self, tiers: TierMap) -> Paths:
        if tiers is not self._tiers:
            self._tiers, self._known_paths = tiers, paths(tiers)
        return self._known_paths

    def _grown(self, source: NeoProfSource, cold: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """Victims with the heat that they come to in the long run, as candidates have it.

        Heat begins at 0 and grows for some half-lives: a page that is used as much as another
        one, known for long, would be taken for far colder.
        What looks have seen of a single page is weighed against what they have of all.
        """
        half_lives = max(source.taught_s, FAST_PATH.min_observed_s) / self._settings.half_life_s
        grown = 1 - 0.5**half_lives
        mean = used_a_second(source.seen) * self._heat_s(source)
        heat = cold["heat"]
        cold["heat"] = posterior_mean(heat, grown, mean) if mean > 0 else heat / grown
        return cold

    def _heat_s(self, source: NeoProfSource) -> float:
        """Heat of a page that is used once a second."""
        return self._settings.half_life_s / math.log(2) * source.dilution
