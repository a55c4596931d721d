# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF009 - option() and section() return dataclasses.field
"""Every key of the configuration: its type, range, default and purpose."""

from __future__ import annotations

from dataclasses import dataclass, field

from tierd.config.background import GpuConfig, MigrationsConfig
from tierd.config.matchers import Matcher
from tierd.config.overrides import TopologyKind
from tierd.config.profiles import DEFAULT_PROFILE, PROFILES
from tierd.config.rules import MatcherKind, RuleConfig, RulesKind
from tierd.config.schema import KEY, ListOf, Option, Section, option, section
from tierd.config.serving import ControlConfig, MetricsConfig
from tierd.config.values import Flag, Number, Share, Text, duration, join, rate, size
from tierd.config.watching import SourcesConfig
from tierd.core.errors import ConfigError
from tierd.core.overrides import TopologyOverrides
from tierd.core.pagekey import MAX_TARGETS

POLICIES = ("watermark", "cost")
LADDERS = ("time", "latency")
"""What `policy.cost.ladder` may be; a test compares it with the policy's."""
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """[loop]: how often the control loop does what."""

    tick_ns: int = option(
        "tick", duration("10ms", "1min"), "500ms", "Time between two passes of the control loop."
    )
    quiet_tick_ns: int = option(
        "quiet_tick",
        duration("10ms", "1min"),
        "8s",
        "... while the native path promotes, or looks at accessed bits tell of news, and passes"
        " themselves find little to move. With DAMON three of its reports are waited for, or 2 s.",
    )
    cpu_share: float = option(
        "cpu",
        Share(0.001, 1.0),
        "3%",
        "Most of one CPU that the control loop may take, and what ten seconds left over of that.",
    )
    residency_pages: int = option(
        "residency_pages",
        Number(256, 10_000_000),
        65536,
        "Pages whose node is asked from the kernel in one pass.",
    )
    residency_interval_ns: int = option(
        "residency_interval",
        duration("0s", "1h"),
        "20s",
        "Time after which all pages of a process are looked up once more, if that is cheap.",
    )
    targets_refresh_ns: int = option(
        "targets_refresh",
        duration("100ms", "10min"),
        "5s",
        "Time between two looks at which processes are watched.",
    )


@dataclass(frozen=True, slots=True)
class TargetsConfig:
    """[targets]: which processes are watched."""

    match: Matcher = option(
        "match", MatcherKind(empty=True), {}, "Processes to watch; {} is every process."
    )
    deny: tuple[Matcher, ...] = option(
        "deny",
        ListOf(MatcherKind(), most=64),
        [{"pid": 1}],
        "Processes never to touch, whatever match says.",
    )
    min_rss_bytes: int = option(
        "min_rss",
        size("0B", "1TiB"),
        "16MiB",
        "Processes with less resident memory than this are left alone.",
    )
    limit: int = option(
        "limit",
        Number(1, MAX_TARGETS // 2),
        256,
        "Most processes watched at a time; those with the most resident memory are kept.",
    )


@dataclass(frozen=True, slots=True)
class HeatConfig:
    """[heat]: the table of page heat."""

    memory_bytes: int = option(
        "memory", size("1MiB", "64GiB"), "64MiB", "Memory the heat table may take."
    )
    half_life_ns: int = option(
        "half_life",
        duration("100ms", "1h"),
        "5s",
        "Time after which an access counts half.",
    )


@dataclass(frozen=True, slots=True)
class NeoMemConfig:
    """[policy.neomem]: promotion between passes, where NeoProf cards count."""

    enabled: bool = option(
        "enabled", Flag(), True, "Promote between passes; if not, cards only feed heat."
    )
    interval_ns: int = option(
        "interval",
        duration("1ms", "1s"),
        "10ms",
        "Time between two looks for pages to promote.",
    )
    threshold_interval_ns: int = option(
        "threshold_interval",
        duration("100ms", "1min"),
        "1s",
        "Time between two decisions about a card's threshold.",
    )
    p_min: float = option(
        "p_min", Share(1e-6, 1.0), "0.01%", "Least share of a card's counters that is hot."
    )
    p_init: float = option("p_init", Share(1e-6, 1.0), "0.1%", "... at first.")
    p_max: float = option("p_max", Share(1e-6, 1.0), "1.56%", "... at most.")
    quota_bytes_per_s: int = option(
        "quota", rate("4KiB/s", "1TB/s"), "256MB/s", "Most bytes promoted in any second."
    )
    break_even_ns: int = option(
        "payback",
        duration("10ms", "1h"),
        "500ms",
        "Least time in which what a page saves must pay for two moves of 10 us each. Exposures of"
        " the scanner are matched to it.",
    )
    alpha: float = option(
        "alpha",
        Number(0.0, 10.0, whole=False),
        1.0,
        "How much a card's busy memory raises the hot share.",
    )
    beta: float = option(
        "beta",
        Number(0.0, 10.0, whole=False),
        2.0,
        "How much promoting what was just demoted lowers it.",
    )

    def check(self, path: str) -> None:
        """Refuse values that contradict each other."""
        if not self.p_min <= self.p_init <= self.p_max:
            raise ConfigError(join(path, "p_init"), "must lie between p_min and p_max")


@dataclass(frozen=True, slots=True)
class CostConfig:
    """[policy.cost]: the policy "cost", by the time that a move saves."""

    horizon_ns: int = option(
        "horizon",
        duration("100ms", "1h"),
        "10s",
        "Time for which accesses are expected to go on; a move pays within it.",
    )
    margin: float = option(
        "margin",
        Number(0.0, 100.0, whole=False),
        0.5,
        "A move happens when it saves more than it costs by this share; learned upwards.",
    )
    epoch_ns: int = option(
        "epoch",
        duration("50ms", "5min"),
        "2s",
        "Time for which what moves brought is looked at before more follow, at first.",
    )
    reserve: float = option(
        "hbm_reserve",
        Share(0.0, 0.9),
        "0%",
        "Share of HBM that migration leaves free for urgent allocations.",
    )
    ladder: str = option(
        "ladder",
        Text(LADDERS),
        "time",
        "What tiers differ in: loaded time by kind of access, or idle latency alone.",
    )
    probe: bool = option(
        "probe", Flag(), True, "Measure each tier now and then, in case its numbers are wrong."
    )
    placement: bool = option(
        "placement",
        Flag(),
        False,
        "Set the kernel's weights of interleaving by what tiers can serve; put back at the end.",
    )


@dataclass(frozen=True, slots=True)
class ChangeConfig:
    """[policy.change]: what is done when the hot set moves."""

    enabled: bool = option(
        "enabled", Flag(), True, "Notice that the hot set has moved, and forget old heat."
    )
    certainty: float = option(
        "certainty", Share(0.5, 1.0), "90%", "Probability from which on a change is believed."
    )
    half_lives: float = option(
        "half_lives",
        Number(0.0, 30.0, whole=False),
        3.0,
        "By how many half-lives all heat decays at once.",
    )


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """[policy]: what is moved."""

    name: str = option("name", Text(POLICIES), "watermark", "The policy.")
    low_watermark: float = option(
        "low_watermark",
        Share(0.0, 0.9),
        "2%",
        "Free share of a fast tier below which its coldest pages are demoted.",
    )
    high_watermark: float = option(
        "high_watermark", Share(0.0, 0.95), "2.5%", "Free share at which demotion stops."
    )
    margin: float = option(
        "margin",
        Number(0.0, 100.0, whole=False),
        0.5,
        "A page is promoted over another only when it is hotter by this share of its heat.",
    )
    confidence: float = option(
        "confidence",
        Number(0.0, 20.0, whole=False),
        2.5,
        "Standard errors by which the sampled heat of two pages must differ.",
    )
    min_residency_ns: int = option(
        "min_residency",
        duration("0s", "1h"),
        "10s",
        "Time for which a moved page stays where it is.",
    )
    max_moves_per_tick: int = option(
        "max_moves_per_tick", Number(1, 10_000_000), 32768, "Most pages moved in one pass."
    )
    neomem: NeoMemConfig = section(
        "neomem", NeoMemConfig, "Promotion between passes, where NeoProf cards count."
    )
    cost: CostConfig = section("cost", CostConfig, "The policy cost: by the time that moves save.")
    change: ChangeConfig = section("change", ChangeConfig, "What is done when the hot set moves.")

    def check(self, path: str) -> None:
        """Refuse values that contradict each other."""
        if self.low_watermark >= self.high_watermark:
            raise ConfigError(join(path, "low_watermark"), "must be smaller than high_watermark")


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    """[budget]: what moving may cost."""

    rate_bytes_per_s: int = option(
        "rate", rate("4KiB/s", "1TB/s"), "200MB/s", "Most bytes moved in a second."
    )
    cpu_share: float = option(
        "cpu",
        Share(0.001, 1.0),
        "5%",
        "Most of one CPU that moving pages may take, and what ten seconds left over of that.",
    )
    failure_share: float = option(
        "failures", Share(), "20%", "Share of failed moves above which moving slows down."
    )
    memory_pressure: float = option(
        "memory_pressure",
        Share(),
        "20%",
        "Share of time in which tasks wait for memory above which moving slows down.",
    )
    cpu_pressure: float = option(
        "cpu_pressure",
        Share(),
        "90%",
        "Share of time in which tasks wait for a CPU above which moving slows down.",
    )
    max_ping_pong_ratio: float = option(
        "bounces",
        Share(),
        "30%",
        "Share of moved pages that moved within a minute before above which moving slows down.",
    )
    retries: int = option(
        "retries", Number(0, 100), 3, "Times a busy page is tried again before it is given up."
    )


@dataclass(frozen=True, slots=True)
class RecordConfig:
    """[record]: recordings of what the service sees and does."""

    enabled: bool = option(
        "enabled", Flag(), False, "Record every run, for tierd replay and tierd report."
    )
    folder: str = option(
        "folder",
        Text(),
        "/var/lib/tierd/recordings",
        "Where recordings are made, one file a run.",
    )
    size_bytes: int = option(
        "size", size("1MiB", "1TiB"), "256MiB", "Most bytes of one recording; it ends there."
    )
    keep: int = option(
        "keep", Number(1, 1000), 4, "Recordings kept in the folder; older ones are removed."
    )


@dataclass(frozen=True, slots=True)
class LogConfig:
    """[log]: what is written to standard error."""

    level: str = option("level", Text(LOG_LEVELS), "info", "Least important level written.")


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration.

    Attributes:
        files: the files it was read from, in the order they were merged.
    """

    profile: str = option(
        "profile",
        Text(tuple(PROFILES)),
        DEFAULT_PROFILE,
        "Values to start from; what the files say wins over it.",
    )
    rules: tuple[RuleConfig, ...] = option(
        "rule", RulesKind(), [], "Processes with shares and budgets of their own, or none at all."
    )
    loop: LoopConfig = section("loop", LoopConfig, "How often the control loop does what.")
    targets: TargetsConfig = section("targets", TargetsConfig, "Which processes are watched.")
    sources: SourcesConfig = section("sources", SourcesConfig, "Who sees accesses.")
    heat: HeatConfig = section("heat", HeatConfig, "The table of page heat.")
    policy: PolicyConfig = section("policy", PolicyConfig, "What is moved.")
    budget: BudgetConfig = section("budget", BudgetConfig, "What moving may cost.")
    migrations: MigrationsConfig = section(
        "migrations", MigrationsConfig, "Counting what moves pages, whoever does, by eBPF."
    )
    gpu: GpuConfig = section("gpu", GpuConfig, "Lending free memory of GPUs to their neighbours.")
    topology: TopologyOverrides = field(
        default_factory=TopologyOverrides,
        metadata={
            KEY: Option("topology", TopologyKind(), {}, "What the host does not tell, or wrongly.")
        },
    )
    metrics: MetricsConfig = section("metrics", MetricsConfig, "Figures for Prometheus.")
    control: ControlConfig = section(
        "control", ControlConfig, "The socket that the tierd commands talk to."
    )
    record: RecordConfig = section(
        "record", RecordConfig, "Recordings of what the service sees and does."
    )
    log: LogConfig = section("log", LogConfig, "What is written to standard error.")
    files: tuple[str, ...] = field(default=(), compare=False)


ROOT = Section(Config)
"""The kind of the whole file."""
