# SPDX-License-Identifier: Apache-2.0
"""`Components`, the parts that the loop uses, and `ComponentFactory`, which makes them anew."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tierd.config.model import Config
from tierd.core.access import AccessSource
from tierd.core.errors import UnavailableError
from tierd.core.logfmt import logfmt
from tierd.core.tiermap import NodeUsage, TierMap
from tierd.engine.bandwidth import BandwidthMonitor
from tierd.engine.fastpath.controller import FastPathController
from tierd.engine.pressure import CgroupPressureMonitor, PressureMonitor
from tierd.engine.tracking import Tracking
from tierd.hotness.table import HeatTable
from tierd.migration import Mover
from tierd.policy.inputs import Policy
from tierd.sources.selection import SourceSelector
from tierd.topology import HotplugWatcher

log = logging.getLogger(__name__)


class BackgroundService(Protocol):
    """Started before the first tick, closed after the last."""

    name: str

    def start(self) -> None:
        """Begin, without blocking for long.

        Raises:
            UnavailableError: the service cannot run here; the loop goes on without it.
        """
        ...

    def close(self) -> None:
        """End; also called when `start` failed."""
        ...


@contextlib.contextmanager
def beside(background: Sequence[BackgroundService]) -> Iterator[None]:
    """Run background services for the length of a block."""
    for service in background:
        try:
            service.start()
        except UnavailableError as error:
            log.warning(
                logfmt(
                    event="background_service_unavailable",
                    name=service.name,
                    reason=error.message,
                    hint=error.hint,
                )
            )
        except Exception:
            log.exception(logfmt(event="background_service_failed", name=service.name))
    try:
        yield
    finally:
        for service in reversed(background):
            try:
                service.close()
            except Exception:
                log.exception(logfmt(event="background_service_failed", name=service.name))


@dataclass(frozen=True)
class Components:
    """The parts that the loop uses."""

    sources: SourceSelector
    tracking: Tracking
    heat: HeatTable
    policy: Policy
    mover: Mover
    read_tiers: Callable[[], TierMap]
    read_usage: Callable[[TierMap], Mapping[int, NodeUsage]]
    hotplug: HotplugWatcher
    background: Sequence[BackgroundService] = ()
    fast_path: FastPathController | None = None
    """The fast path between ticks, and the reaction to phase changes."""
    pressure_monitor: PressureMonitor = field(default_factory=PressureMonitor)
    cgroup_pressure: CgroupPressureMonitor = field(default_factory=CgroupPressureMonitor)
    loads: BandwidthMonitor | None = None
    """The bandwidth of nodes; None where the policy does not use it."""


@dataclass(frozen=True)
class ComponentFactory:
    """Makes the parts that a reload replaces; each call may raise a TierdError.

    `lacking` gives the capabilities that a configuration needs and the loop has dropped.
    """

    policy: Callable[[Config], Policy]
    sources: Callable[[Config], Sequence[AccessSource]]
    read_tiers: Callable[[Config], Callable[[], TierMap]]
    lacking: Callable[[Config], frozenset[str]]
    loads: Callable[[Config, HeatTable], BandwidthMonitor | None] = lambda config, heat: None
