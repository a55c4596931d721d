# SPDX-License-Identifier: Apache-2.0
"""Makes the rooms of a running service from its configuration.

Owns: which implementation fills which room.
Must not touch: the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from tierd import topology
from tierd.config import Config
from tierd.heat.table import HeatTable
from tierd.mover import DryMover, Mover, NativeMover
from tierd.policy.watermark import WatermarkPolicy, WatermarkSettings
from tierd.residency import ResidencyScanner
from tierd.service.loop import Rooms, Service
from tierd.service.selection import SourceSelector
from tierd.service.sources import make_source
from tierd.service.tick import Observer, TickLog
from tierd.service.tracking import Tracking
from tierd.service.usage import read_usage
from tierd.targets.maps import MapReader
from tierd.targets.registry import TargetRegistry
from tierd.tiermap import TierMap

BYTES_A_PAGE = 24
"""What the heat table needs for one tracked page."""


def make_mover(config: Config, *, dry_run: bool) -> Mover:
    """The native mover, or one that moves nothing."""
    if dry_run:
        return DryMover()
    return NativeMover(
        rate_bytes_per_s=config.budget.rate_bytes_per_s,
        busy_retries=config.budget.retries,
        cpu_share=config.budget.cpu_share,
    )


def make_policy(config: Config) -> WatermarkPolicy:
    """The configured policy."""
    policy = config.policy
    return WatermarkPolicy(
        WatermarkSettings(
            low_watermark=policy.low_watermark,
            high_watermark=policy.high_watermark,
            margin=policy.margin,
            confidence=policy.confidence,
            min_residency_s=policy.min_residency_ns / 1e9,
            max_moves_per_tick=policy.max_moves_per_tick,
        )
    )


def build(
    config: Config,
    *,
    dry_run: bool = False,
    wait: bool = False,
    observers: Sequence[Observer] = (),
) -> tuple[Service, TierMap]:
    """The service, ready to run, and the tiers it starts with."""

    def read_tiers() -> TierMap:
        return topology.read(overrides=config.topology)

    tiers = read_tiers()
    heat = HeatTable(
        capacity_pages=config.heat.memory_bytes // BYTES_A_PAGE,
        half_life_s=config.heat.half_life_ns / 1e9,
    )
    rooms = Rooms(
        sources=SourceSelector(
            [make_source(name, config.sources) for name in config.sources.order]
        ),
        tracking=Tracking(
            TargetRegistry(config.targets),
            ResidencyScanner(),
            heat,
            MapReader(),
            config.loop.residency_interval_ns,
        ),
        heat=heat,
        policy=make_policy(config),
        mover=make_mover(config, dry_run=dry_run),
        read_tiers=read_tiers,
        read_usage=lambda tiers: read_usage(tiers.nodes),
        hotplug=topology.HotplugWatcher(),
    )
    return Service(config, rooms, tiers, wait=wait, observers=[TickLog(), *observers]), tiers


def nothing_to_do(tiers: TierMap) -> str:
    """Why there is nothing to move between, for the operator."""
    if not tiers.tiers:
        return "no NUMA node with memory was found"
    nodes = ", ".join(f"node {node}" for node in tiers.tiers[0].nodes)
    return (
        f"all memory ({nodes}) is in one tier, {tiers.tiers[0].name}: there is nothing to move "
        "between; add slower or faster memory, or name tiers in [topology], "
        "or use --wait for memory that is plugged in later"
    )
