# SPDX-License-Identifier: Apache-2.0
"""`Components`: the parts that the loop wires together; `ComponentFactory` makes them anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tierd.config import Config
from tierd.core.access import AccessSource
from tierd.core.nodes import NodeUsage
from tierd.core.tiermap import TierMap
from tierd.engine.background import BackgroundService
from tierd.engine.bandwidth import BandwidthMonitor
from tierd.engine.fastpath.controller import FastPathController
from tierd.engine.pressure import CgroupPressureMonitor, PressureMonitor
from tierd.engine.tracking import Tracking
from tierd.hotness.table import HeatTable
from tierd.migration import Mover
from tierd.policy.inputs import Policy
from tierd.sources.selection import SourceSelector
from tierd.topology import HotplugWatcher


@dataclass(frozen=True)
class Components:
    """The parts the loop wires together."""

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
    """The native path between ticks, and what answers changes of the hot set."""
    pressure_monitor: PressureMonitor = field(default_factory=PressureMonitor)
    cgroup_pressure: CgroupPressureMonitor = field(default_factory=CgroupPressureMonitor)
    loads: BandwidthMonitor | None = None
    """What memory serves; None where the policy does not ask."""


@dataclass(frozen=True)
class ComponentFactory:
    """How the parts are made that a reload replaces; each may raise a TierdError.

    `lacking` tells the capabilities that a configuration needs and the loop has not.
    """

    policy: Callable[[Config], Policy]
    sources: Callable[[Config], Sequence[AccessSource]]
    read_tiers: Callable[[Config], Callable[[], TierMap]]
    lacking: Callable[[Config], frozenset[str]]
    loads: Callable[[Config, HeatTable], BandwidthMonitor | None] = lambda config, heat: None
