# SPDX-License-Identifier: Apache-2.0
"""Makes the components of a service from its configuration; `build` makes all of them."""

from __future__ import annotations

import contextlib
import errno
import logging
import queue
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tierd import topology
from tierd.config.model import Config, heat_bytes
from tierd.core import bounds
from tierd.core.access import AccessSource
from tierd.core.logfmt import logfmt
from tierd.core.tiermap import Measured, TierMap
from tierd.engine import process
from tierd.engine.bandwidth import BandwidthMonitor
from tierd.engine.components import BackgroundService, ComponentFactory, Components
from tierd.engine.fastpath.controller import FastPathController
from tierd.engine.fastpath.thresholds import HotnessThresholdController
from tierd.engine.fastpath.update import FastPathSettings
from tierd.engine.loop import Service
from tierd.engine.tier_health import TierHealth
from tierd.engine.tracking import Tracking
from tierd.hotness.table import HeatTable
from tierd.migration import DryMover, Mover, NativeMover
from tierd.observe.recording.recorder import Recorder
from tierd.observe.recording.records import RecordedTarget, RecordingHeat
from tierd.observe.tick_record import Observer, TickLog
from tierd.observe.totals import MigrationTotals
from tierd.policy.cost import CostPolicy
from tierd.policy.cost_decision import CostSettings
from tierd.policy.inputs import Policy
from tierd.policy.neomem import NeoMemSettings
from tierd.policy.watermark import WatermarkPolicy, WatermarkSettings
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import Kind
from tierd.sources.selection import SourceSelector, make_source
from tierd.sources.uncore import Uncore
from tierd.topology.errors import MemoryErrors
from tierd.topology.node_meminfo import read_usage
from tierd.topology.probe import probe
from tierd.workloads.bounded_reads import BoundedReads
from tierd.workloads.maps import MapReader
from tierd.workloads.registry import TargetRegistry
from tierd.workloads.residency import ResidencyScanner

if TYPE_CHECKING:
    from tierd.core.pagekey import U64Array
    from tierd.engine.interleave import Interleave


log = logging.getLogger(__name__)


def make_mover(config: Config, *, dry_run: bool) -> Mover:
    """The native mover, or one that moves nothing."""
    if dry_run:
        return DryMover()
    return NativeMover(
        rate_bytes_per_s=config.migration.rate_limit_bytes_per_s,
        busy_retries=config.migration.retries,
        cpu_share=config.migration.cpu_limit,
    )


def make_policy(config: Config) -> Policy:
    """The configured policy."""
    if config.policy.name == CostPolicy.name:
        cost = config.policy.cost
        return CostPolicy(
            CostSettings(
                watermarks=_watermarks(config),
                horizon_s=cost.horizon_ns / 1e9,
                margin=cost.hysteresis,
                reserve=cost.reserve,
                epoch_s=cost.feedback_interval_ns / 1e9,
                latency_model=cost.latency_model,
            )
        )
    return WatermarkPolicy(_watermarks(config))


def make_loads(config: Config, heat: HeatTable) -> BandwidthMonitor | None:
    """The bandwidth monitor, for a policy that uses it."""
    if config.policy.name != CostPolicy.name:
        return None
    measured: Callable[[], Mapping[int, Measured]] = dict
    read_tiers = tier_reader(config)
    uncore = Uncore(read_tiers().nodes)
    if config.policy.cost.measure_tiers:

        def measured() -> Mapping[int, Measured]:
            tiers = read_tiers()
            return probe(tiers, read_usage(tiers.nodes))

    half_life_s = config.heat.half_life_ns / 1e9
    return BandwidthMonitor(heat, half_life_s, measured=measured, counted=uncore.read)


def _watermarks(config: Config) -> WatermarkSettings:
    policy = config.policy
    return WatermarkSettings(
        low_watermark=policy.low_watermark,
        high_watermark=policy.high_watermark,
        margin=policy.hysteresis,
        confidence=policy.confidence_sigmas,
        min_residency_s=policy.migration_cooldown_ns / 1e9,
        max_moves_per_tick=policy.max_moves_per_tick,
    )


def make_fast_path(
    config: Config,
    heat: HeatTable,
    tracking: Tracking,
    sources: SourceSelector,
    mover: Mover,
    *,
    open_ring: Callable[[Path, Collection[Kind]], Ring] = Ring.open,
    root: Path = Path("/"),
) -> FastPathController:
    """The controller of the fast path."""
    return FastPathController(
        FastPathSettings(
            enabled=config.fast_path.enabled,
            interval_ns=config.fast_path.interval_ns,
            quota_bytes_per_s=config.policy.promotion_rate_limit_bytes_per_s,
            half_life_s=config.heat.half_life_ns / 1e9,
            break_even_s=config.policy.break_even_time_ns / 1e9,
        ),
        _watermarks(config),
        heat=heat,
        tracking=tracking,
        sources=sources,
        mover=mover,
        thresholds=HotnessThresholdController(
            NeoMemSettings.of(config), config.sources.neoprof.threshold.interval_ns
        ),
        open_ring=open_ring,
        root=root,
    )


def make_heat(config: Config, recorder: Recorder | None = None) -> HeatTable:
    """The heat table; what changes it is recorded where there is a recorder."""
    capacity_pages = heat_bytes(config) // bounds.HEAT_BYTES_PER_PAGE
    half_life_s = config.heat.half_life_ns / 1e9
    if recorder is None:
        return HeatTable(
            capacity_pages=capacity_pages,
            half_life_s=half_life_s,
            refresh_s=bounds.REREAD_NS / 1e9,
        )
    return RecordingHeat(
        recorder.take,
        capacity_pages=capacity_pages,
        half_life_s=half_life_s,
        refresh_s=bounds.REREAD_NS / 1e9,
    )


def _recorded_targets(registry: TargetRegistry) -> Iterator[RecordedTarget]:
    for number, target in registry.targets.items():
        yield RecordedTarget(number, target.pid, target.comm, target.cgroup)


def make_sources(config: Config) -> list[AccessSource]:
    """The configured sources in their order, none started."""
    # The cost policy counts lines (bandwidth), the watermark policy accesses.
    lines = config.policy.name == "cost"
    return [make_source(name, config.sources, lines=lines) for name in config.sources.order]


def tier_reader(config: Config) -> Callable[[], TierMap]:
    """Reads the host's tiers with the configured overrides."""
    return lambda: topology.read(overrides=config.topology)


def make_tier_health(config: Config) -> TierHealth:
    """The watch over tiers, not started."""
    errors = MemoryErrors() if config.tier_health.errors else None
    return TierHealth(config.tier_health, lambda tiers: read_usage(tiers.nodes), errors=errors)


def build(
    config: Config,
    *,
    dry_run: bool = False,
    wait: bool = False,
    observers: Sequence[Observer] = (),
    recorder: Recorder | None = None,
) -> tuple[Service, TierMap]:
    """The service, ready to run, and the tiers it starts with."""
    migrations = MigrationTotals()
    background, own = make_companions(config, migrations)
    interleave = make_interleave(config)
    if interleave is not None:
        background.append(interleave)
        own.append(interleave)
    background += [] if dry_run else make_page_out(config)
    health = make_tier_health(config)
    if config.tier_health.enabled:
        background.append(health)
    reader = health.over(tier_reader)
    read_tiers = reader(config)
    tiers = read_tiers()
    heat = make_heat(config, recorder)
    reads = BoundedReads()
    registry = TargetRegistry(config.targets, rules=config.rules, reads=reads)
    watching = [TickLog(), *own, *observers, *([] if recorder is None else [recorder])]
    sources = SourceSelector(_recorded_sources(config, recorder))
    maps, interval_ns = MapReader(), config.residency.interval_ns
    tracking = Tracking(registry, ResidencyScanner(), heat, maps, interval_ns, reads=reads)
    mover = make_mover(config, dry_run=dry_run)
    components = Components(
        sources=sources,
        tracking=tracking,
        heat=heat,
        policy=make_policy(config),
        mover=mover,
        read_tiers=read_tiers,
        read_usage=lambda tiers: read_usage(tiers.nodes),
        hotplug=topology.HotplugWatcher(),
        background=background,
        fast_path=make_fast_path(config, heat, tracking, sources, mover),
        loads=make_loads(config, heat),
    )
    factory = ComponentFactory(
        policy=make_policy,
        sources=lambda config: _recorded_sources(config, recorder),
        read_tiers=reader,
        lacking=process.lacking,
        loads=make_loads,
    )
    service = Service(config, components, tiers, wait=wait, observers=watching, factory=factory)
    service.totals.migrations = migrations
    if interleave is not None:
        interleave.state = lambda: service.components.policy.state
    _connect_page_out(service)
    _connect_health(health, service)
    if recorder is not None:
        _record(service, recorder, registry)
    return service, tiers


def _connect_health(health: TierHealth, service: Service) -> None:
    """Have the service read its tiers again when a node became slow or recovered."""
    health.tiers = lambda: service.tiers
    if (fast_path := service.components.fast_path) is not None:
        fast_path.explainer.slow_nodes = health.slow_nodes
    health.on_change = lambda: service.calls.post(service.read_tiers).add_done_callback(
        _log_failure
    )


def _log_failure(done: Future[None]) -> None:
    if error := done.exception():
        log.warning(logfmt(event="tiers_not_read", reason=str(error)))


def _recorded_sources(config: Config, recorder: Recorder | None) -> list[AccessSource]:
    """The configured sources; a recorder notes what they decide."""
    made = make_sources(config)
    if recorder is not None:
        from tierd.replay.decided import listen_to

        listen_to(made, recorder.journal)
    return made


def _record(service: Service, recorder: Recorder, registry: TargetRegistry) -> None:
    """Have the recorder note what the service is given and decides."""
    from tierd.replay.decided import listen

    recorder.targets = lambda: _recorded_targets(registry)
    service.work.on_decided = recorder.decided
    listen(service, recorder)


def make_interleave(config: Config) -> Interleave | None:
    """What sets the weights of interleaving, where it is configured."""
    if config.policy.name != CostPolicy.name or not config.policy.cost.weighted_interleave:
        return None
    from tierd.engine.interleave import Interleave

    return Interleave(config.policy.low_watermark)


def make_page_out(config: Config) -> list[BackgroundService]:
    """What pages out cold memory, where it is configured."""
    if not config.page_out.enabled:
        return []
    from tierd.engine.page_out import PageOut

    return [PageOut(config.page_out)]


def _connect_page_out(service: Service) -> None:
    """Have page-outs, where there are any, ask the service's loop, and tell it."""
    if not service.config.page_out.enabled:
        return
    from tierd.engine.page_out import PageOut
    from tierd.engine.page_out_known import known_of

    def gone(keys: U64Array) -> None:
        node, order = np.full(len(keys), -errno.ENOENT, np.int16), np.zeros(len(keys), np.uint8)
        heat = service.components.heat
        # A loop that is busy finds out by itself.
        with contextlib.suppress(queue.Full):
            service.calls.post(lambda: heat.place(keys, node, order, insert_on=()))

    for each in service.background:
        if isinstance(each, PageOut):
            each.ask = lambda: service.calls.post(lambda: known_of(service))
            each.stands = lambda: service.work.stands
            each.gone = gone
            if (fast_path := service.components.fast_path) is not None:
                fast_path.explainer.page_out = each.explain


def make_companions(
    config: Config, migrations: MigrationTotals
) -> tuple[list[BackgroundService], list[Observer]]:
    """The configured background services, and those of them that observe ticks.

    Their modules are imported only where the configuration needs them.
    """
    background: list[BackgroundService] = []
    observers: list[Observer] = []
    if config.migration_tracing.enabled:
        from tierd.engine.migration_counter import MigrationCounter
        from tierd.sources.migrations import MigrationWatch

        counter = MigrationCounter(MigrationWatch(), migrations)
        background.append(counter)
        observers.append(counter)
    if config.gpu.serve:
        from tierd_gpu.background import GpuBackgroundService

        background.append(GpuBackgroundService(config.gpu))
    return background, observers


def nothing_to_do(tiers: TierMap) -> str:
    """Why pages cannot be moved on this host, for the operator."""
    if not tiers.tiers:
        return "no NUMA node with memory was found"
    nodes = ", ".join(f"node {node}" for node in tiers.tiers[0].nodes)
    others = "".join(f"; node {each.memory.node} is {each.reason}" for each in tiers.excluded)
    return (
        f"all memory ({nodes}) is in one tier, {tiers.tiers[0].name}: there is nothing to move "
        f"between{others}; add slower or faster memory, or name tiers in [topology], "
        "or use --wait for memory that is plugged in later"
    )
