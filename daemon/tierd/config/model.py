# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF009 - option() and section() return dataclasses.field
"""Every key of the configuration: its type, range, default and purpose."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Final

from tierd.config.files import DEFAULT_PROFILE, PROFILES
from tierd.config.matchers import Matcher
from tierd.config.rules import RuleConfig, RulesKind, matcher
from tierd.config.schema import (
    REQUIRED,
    ListOf,
    Numbered,
    Option,
    Optional,
    Section,
    describe,
    option,
    section,
)
from tierd.config.serving import (
    ControlConfig,
    GpuConfig,
    MetricsConfig,
    MigrationTracingConfig,
    PageOutConfig,
    TierHealthConfig,
)
from tierd.config.values import FLAG, duration, join, number, rate, share, size, text
from tierd.config.watching import SourcesConfig
from tierd.core import bounds
from tierd.core.bounds import MAX_TARGETS
from tierd.core.errors import ConfigError
from tierd.core.overrides import GPU_NODES, NodeOverride, TierOverride, TopologyOverrides
from tierd.core.tiermap import MemoryKind

POLICIES = ("watermark", "cost")
LATENCY_MODELS = ("loaded", "idle")
"""What `policy.cost.latency_model` may be; a test compares it with the policy's."""
LOG_LEVELS = ("debug", "info", "warning", "error")
MAX_NODE: Final = 1023
"""Largest node number of a Linux kernel (CONFIG_NODES_SHIFT is at most 10)."""
_NAME: Final = text(tuple(MemoryKind))
_KIND: Final = Option(
    Optional(replace(_NAME, parse=lambda value, path: MemoryKind(_NAME.parse(value, path)))),
    None,
    "What its memory is made of.",
)

describe(
    TierOverride,
    name=Option(text(), REQUIRED, "Short name, unique."),
    nodes=Option(ListOf(number(0, MAX_NODE), least=1, unique=True), REQUIRED, "Its NUMA nodes."),
    kind=_KIND,
)
describe(
    NodeOverride,
    latency_ns=Option(Optional(duration("1ns", "1ms")), None, "Idle read latency."),
    bandwidth_bytes_per_s=Option(Optional(rate("1MB/s", "100TB/s")), None, "Read bandwidth."),
    kind=_KIND,
)
describe(
    TopologyOverrides,
    tiers=Option(
        ListOf(Section(TierOverride), most=64),
        [],
        "Tiers, fastest first; tierd ranks the nodes that none of them names.",
    ),
    nodes=Option(
        Numbered(Section(NodeOverride), MAX_NODE),
        {},
        "Numbers of a node that the host does not tell, or tells wrongly.",
    ),
    exclude=Option(
        ListOf(number(0, MAX_NODE), unique=True),
        [],
        "Nodes that are in no tier: no page is moved to them or away from them.",
    ),
    gpu_nodes=Option(
        text(GPU_NODES),
        GPU_NODES[0],
        "Nodes that are the memory of a GPU: exclude leaves them to the GPU, tier makes tiers"
        " of them, so that pages of ordinary processes go there.",
    ),
)
TOPOLOGY: Final = section(TopologyOverrides)
"""The field of the whole configuration."""


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """[loop]: how often the control loop runs."""

    interval_ns: int = option(
        duration("10ms", "1min"), "500ms", "Time between two ticks of the control loop."
    )
    max_interval_ns: int = option(
        duration("10ms", "1min"),
        "8s",
        "Longest time between two ticks. The loop backs off to it while ticks find little to move"
        " and something else can wake the loop: the fast path, or a source that reports phase"
        " changes. With DAMON the loop waits for three reports, or 2 s.",
    )
    cpu_limit: float = option(
        share(0.001, 1.0),
        "3%",
        "Share of one CPU that the control loop may use. What was left unused in the last ten"
        " seconds may be used at once.",
    )


@dataclass(frozen=True, slots=True)
class ResidencyConfig:
    """[residency]: how the nodes of pages are looked up."""

    pages_per_tick: int = option(
        number(256, 10_000_000), 65536, "Pages whose node is asked from the kernel in one tick."
    )
    interval_ns: int = option(
        duration("0s", "1h"),
        "20s",
        "Time after which all pages of a process are looked up again, if that is cheap.",
    )


@dataclass(frozen=True, slots=True)
class TargetsConfig:
    """[targets]: which processes are watched."""

    match: Matcher = option(matcher(empty=True), {}, "Processes to watch; {} is every process.")
    deny: tuple[Matcher, ...] = option(
        ListOf(matcher(), most=64),
        [{"pid": 1}],
        "Processes never to touch, whatever match says.",
    )
    min_rss_bytes: int = option(
        size("0B", "1TiB"), "16MiB", "Processes with less resident memory than this are left alone."
    )
    limit: int = option(
        number(1, MAX_TARGETS // 2),
        256,
        "Most processes watched at a time; those with the most resident memory are kept.",
    )
    refresh_interval_ns: int = option(
        duration("100ms", "10min"),
        "5s",
        "Time between two refreshes of the list of watched processes.",
    )


@dataclass(frozen=True, slots=True)
class HeatConfig:
    """[heat]: the table of page heat."""

    memory_bytes: int | None = option(
        Optional(size("1MiB", "32GiB")),
        None,
        "Memory the heat table may take. Left out: a 2048th of the host's memory at the start, "
        "64MiB at least.",
    )
    half_life_ns: int = option(
        duration("100ms", "1h"),
        "5s",
        "Time after which an access counts half. Where scans alone find hot pages and take long, "
        "it is some three times the time between two scans.",
    )


@dataclass(frozen=True, slots=True)
class FastPathConfig:
    """[fast_path]: promotion between ticks, where NeoProf cards count."""

    enabled: bool = option(
        FLAG, True, "Promote between ticks. Without it, cards only feed the heat table."
    )
    interval_ns: int = option(
        duration("1ms", "1s"), "10ms", "Time between two promotions of the fast path."
    )


@dataclass(frozen=True, slots=True)
class CostConfig:
    """[policy.cost]: the policy "cost", by the time that a move saves."""

    horizon_ns: int = option(
        duration("100ms", "1h"),
        "10s",
        "Time for which accesses are expected to go on; a move pays within it.",
    )
    hysteresis: float = option(
        number(0.0, 100.0, whole=False),
        0.5,
        "A move happens when it saves more than it costs by this ratio; learned upwards.",
    )
    feedback_interval_ns: int = option(
        duration("50ms", "5min"),
        "2s",
        "Time for which the effect of moves is observed before more moves follow, at first.",
    )
    reserve: float = option(
        share(0.0, 0.9),
        "0%",
        "Share of HBM that migration leaves free for urgent allocations.",
        key="hbm_reserve",
    )
    latency_model: str = option(
        text(LATENCY_MODELS),
        "loaded",
        "How long an access takes: the latency of a tier under its load, or its idle latency.",
    )
    measure_tiers: bool = option(
        FLAG,
        True,
        "Measure the latency and bandwidth of each tier once a minute, in case the firmware's"
        " numbers are wrong.",
    )
    weighted_interleave: bool = option(
        FLAG,
        False,
        "Set the kernel's interleave weights by the bandwidth of the tiers. The weights of before"
        " are restored at the end.",
    )


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """[policy]: what is moved."""

    name: str = option(text(POLICIES), "watermark", "The policy.")
    low_watermark: float = option(
        share(0.0, 0.9),
        "2%",
        "Free share of a fast tier below which its coldest pages are demoted.",
    )
    high_watermark: float = option(share(0.0, 0.95), "2.5%", "Free share at which demotion stops.")
    hysteresis: float = option(
        number(0.0, 100.0, whole=False),
        0.5,
        "A page replaces another only when it is hotter by this ratio of the other's heat.",
    )
    confidence_sigmas: float = option(
        number(0.0, 20.0, whole=False),
        2.5,
        "Standard errors by which the sampled heat of two pages must differ.",
    )
    migration_cooldown_ns: int = option(
        duration("0s", "1h"), "10s", "Time for which a page that was moved is not moved again."
    )
    max_moves_per_tick: int = option(number(1, 10_000_000), 32768, "Most pages moved in one tick.")
    break_even_time_ns: int = option(
        duration("10ms", "1h"),
        "500ms",
        "Shortest time in which the accesses of a page must save as much as two moves of 10 us"
        " cost. It is the least horizon of the fast path, and bounds the scanner's sampling"
        " interval.",
    )
    promotion_rate_limit_bytes_per_s: int = option(
        rate("4KiB/s", "1TB/s"), "256MB/s", "Most bytes that the fast path promotes in any second."
    )
    stand_down: bool = option(
        FLAG,
        True,
        "Move nothing for a while, and undo what did harm, when requests that cards count show that"
        " moving does not pay. The cost policy has its own means for that.",
    )
    cost: CostConfig = section(CostConfig)

    def check(self, path: str) -> None:
        """Refuse values that contradict each other."""
        if self.low_watermark >= self.high_watermark:
            raise ConfigError(join(path, "low_watermark"), "must be smaller than high_watermark")


@dataclass(frozen=True, slots=True)
class MigrationConfig:
    """[migration]: what moving may cost, and when it slows down."""

    rate_limit_bytes_per_s: int = option(
        rate("4KiB/s", "1TB/s"), "200MB/s", "Most bytes moved in a second."
    )
    cpu_limit: float = option(
        share(0.001, 1.0),
        "5%",
        "Share of one CPU that moving pages may use. What was left unused in the last ten seconds"
        " may be used at once.",
    )
    max_failure_ratio: float = option(
        share(), "20%", "Ratio of a process's failed moves above which its moves slow down."
    )
    memory_pressure: float = option(
        share(),
        "20%",
        "Share of time in which tasks wait for memory above which moving slows down.",
    )
    cpu_pressure: float = option(
        share(), "90%", "Share of time in which tasks wait for a CPU above which moving slows down."
    )
    max_ping_pong_ratio: float = option(
        share(),
        "30%",
        "Ratio of moved pages that moved within the minute before, above which moving slows down.",
    )
    retries: int = option(
        number(0, 100), 3, "Times a busy page is tried again before it is given up."
    )


@dataclass(frozen=True, slots=True)
class RecordConfig:
    """[record]: recordings of what the service sees and does."""

    enabled: bool = option(FLAG, False, "Record every run, for tierd replay and tierd report.")
    folder: str = option(
        text(), "/var/lib/tierd/recordings", "Where recordings are made, one file a run."
    )
    size_bytes: int = option(
        size("1MiB", "1TiB"), "256MiB", "Most bytes of one recording; it ends there."
    )
    keep: int = option(number(1, 1000), 4, "Recordings kept in the folder; older ones are removed.")


@dataclass(frozen=True, slots=True)
class LogConfig:
    """[log]: what is written to standard error."""

    level: str = option(text(LOG_LEVELS), "info", "Least important level written.")


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration.

    Attributes:
        files: the files it was read from, in the order they were merged.
    """

    profile: str = option(
        text(tuple(PROFILES)),
        DEFAULT_PROFILE,
        "Values to start from; what the files say wins over it.",
    )
    rules: tuple[RuleConfig, ...] = option(
        RulesKind(),
        [],
        "Processes with shares and budgets of their own, or none at all.",
        key="rule",
    )
    loop: LoopConfig = section(LoopConfig)
    residency: ResidencyConfig = section(ResidencyConfig)
    targets: TargetsConfig = section(TargetsConfig)
    sources: SourcesConfig = section(SourcesConfig)
    heat: HeatConfig = section(HeatConfig)
    policy: PolicyConfig = section(PolicyConfig)
    fast_path: FastPathConfig = section(FastPathConfig)
    migration: MigrationConfig = section(MigrationConfig)
    migration_tracing: MigrationTracingConfig = section(MigrationTracingConfig)
    tier_health: TierHealthConfig = section(TierHealthConfig)
    page_out: PageOutConfig = section(PageOutConfig)
    gpu: GpuConfig = section(GpuConfig)
    topology: TopologyOverrides = TOPOLOGY
    metrics: MetricsConfig = section(MetricsConfig)
    control: ControlConfig = section(ControlConfig)
    record: RecordConfig = section(RecordConfig)
    log: LogConfig = section(LogConfig)
    files: tuple[str, ...] = field(default=(), compare=False)


ROOT = Section(Config)
"""The kind of the whole file."""


def heat_bytes(config: Config, host_bytes: int | None = None) -> int:
    """What the heat table may take, of the host's memory where the configuration does not say.

    Args:
        host_bytes: None for this host.
    """
    if config.heat.memory_bytes is not None:
        return config.heat.memory_bytes
    if host_bytes is None:
        host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    wanted = max(bounds.HEAT_LEAST_BYTES, int(host_bytes * bounds.HEAT_FRACTION))
    return min(wanted, bounds.HEAT_MOST_BYTES)
