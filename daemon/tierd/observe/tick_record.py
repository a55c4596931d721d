# SPDX-License-Identifier: Apache-2.0
"""What the loop tells others about a tick, and how others may ask something of the loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tierd.config.model import Config
from tierd.core.access import AccessBatch
from tierd.core.logfmt import logfmt
from tierd.core.migration import MigrationPlan, MigrationResult
from tierd.core.tiermap import NodeUsage, TierMap
from tierd.policy.inputs import Traffic
from tierd.policy.limits import Budget, Groups

log = logging.getLogger(__name__)

T = TypeVar("T")


class StageTimer:
    """Nanoseconds that the parts of a tick took, by name: in all, and of this thread's CPU."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._last = clock()
        self._last_cpu = time.thread_time_ns()
        self.ns: dict[str, int] = {}
        self.cpu_ns: dict[str, int] = {}

    def mark(self, part: str) -> None:
        """The part `part` ends now."""
        now = self._clock()
        cpu = time.thread_time_ns()
        self.ns[part] = now - self._last
        self.cpu_ns[part] = cpu - self._last_cpu
        self._last, self._last_cpu = now, cpu

    @property
    def ms(self) -> dict[str, int]:
        """... in milliseconds."""
        return {part: spent // 1_000_000 for part, spent in self.ns.items()}


@dataclass(frozen=True, slots=True)
class TickRecord:
    """One tick, after it ended.

    Attributes:
        number: ticks since the start, from 1.
        time_ns: CLOCK_MONOTONIC at its start.
        end_ns: ... at its end.
        located: pages of unknown node that the kernel was asked about.
        walked: pages that the residency walk looked at.
        tiers, usage, budget: what the decision was made on; `budget` is None where
            nothing was decided (paused, or gathering).
        report: what became of it; None if there was nothing to carry out.
        ms: milliseconds by part of the tick.
        groups: the groups that the decision was made on, if there are rules.
        between: moves that the native path made between the tick before and this one, as
            the report of a plan; None where it does not run.
        traffic: what memory served, where the policy asks for it.
        exchanged: nodes whose pages the native path exchanged by itself.
        hot_set_moved: whether the tick found that the hot set has moved.
    """

    number: int
    time_ns: int
    end_ns: int
    source: str
    batches: tuple[AccessBatch, ...]
    located: int
    walked: int
    targets: int
    tiers: TierMap
    usage: Mapping[int, NodeUsage]
    budget: Budget | None
    plan: MigrationPlan
    report: MigrationResult | None
    ms: Mapping[str, int]
    config: Config = field(default_factory=Config)
    groups: Groups | None = None
    between: MigrationResult | None = None
    hot_set_moved: bool = False
    traffic: Traffic | None = None
    exchanged: frozenset[int] = frozenset()


class Observer(Protocol):
    """Told of every tick, in the loop's thread: be quick, and do not block."""

    def on_tick(self, tick: TickRecord) -> None:
        """A tick ended."""
        ...


class TickLog:
    """An observer that writes one structured line a tick, at debug."""

    def on_tick(self, tick: TickRecord) -> None:
        """Log it."""
        if not log.isEnabledFor(logging.DEBUG):
            return
        log.debug(
            logfmt(
                event="tick",
                targets=tick.targets,
                samples=sum(map(len, tick.batches)),
                located=tick.located,
                walked=tick.walked,
                planned=len(tick.plan),
                moved_bytes=tick.report.moved_bytes if tick.report else 0,
                held_back=tick.plan.notes,
                free_mib={n: u.free_bytes >> 20 for n, u in tick.usage.items()},
                reserve_mib={n: u.reserve_bytes >> 20 for n, u in tick.usage.items()},
                ms=dict(tick.ms),
            )
        )
