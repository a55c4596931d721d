# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF009 - option() and section() return dataclasses.field
"""Keys of who sees accesses."""

from __future__ import annotations

from dataclasses import dataclass

from tierd.config.schema import ListOf, option, section
from tierd.config.values import Flag, Number, Share, Text, duration, join
from tierd.core.errors import ConfigError

SOURCES = ("neoprof", "scan", "pmu", "damon", "faults")
"""Sources that `sources.order` may name."""
EVENT_ROLES = ("l3-miss", "load-latency", "stores", "cxl", "ops")
"""What `sources.pmu.events` may name; a test compares it with `tierd.sources.ebpf.events.ROLES`."""
SAMPLE_MODES = ("auto", "table", "raw")
TRACKS = ("auto", "reads", "writes", "both")
"""What `sources.neoprof.track` may be; a test compares it with the source's."""


@dataclass(frozen=True, slots=True)
class DamonConfig:
    """[sources.damon]: sampling by the kernel's DAMON."""

    sample_ns: int = option(
        "sample", duration("1ms", "10s"), "20ms", "Time between two looks at a region."
    )
    aggregation_ns: int = option(
        "aggregation", duration("10ms", "1min"), "400ms", "Time over which looks are counted."
    )
    min_regions: int = option(
        "min_regions", Number(10, 100_000), 500, "Least regions a target is divided into."
    )
    max_regions: int = option(
        "max_regions", Number(10, 100_000), 2000, "Most regions a target is divided into."
    )
    cpu_share: float = option(
        "cpu",
        Share(0.001, 1.0),
        "2%",
        "Most of one CPU that the kernel's sampling may take; it samples less often then.",
    )

    def check(self, path: str) -> None:
        """Refuse values that contradict each other."""
        if self.min_regions > self.max_regions:
            raise ConfigError(
                join(path, "min_regions"),
                f"{self.min_regions} is more than max_regions, {self.max_regions}",
            )
        if self.aggregation_ns < self.sample_ns:
            raise ConfigError(join(path, "aggregation"), "is shorter than sample")


@dataclass(frozen=True, slots=True)
class ScanConfig:
    """[sources.scan]: accessed bits of every page, by the kernel module."""

    period_ns: int = option(
        "period",
        duration("10ms", "1min"),
        "800ms",
        "Least time between two looks at a page; a part of it while there is something to learn.",
    )
    cpu_share: float = option(
        "cpu",
        Share(0.001, 1.0),
        "5%",
        "Most of one CPU that the scanner may take; it looks less often then.",
    )
    hot_scans: int = option(
        "hot_scans",
        Number(1, 8),
        2,
        "A page is reported from this many accesses in its last eight looks on.",
    )
    cold_scans: int = option(
        "cold_scans", Number(0, 7), 1, "... and until it has no more than this many."
    )
    min_sampling_interval_ns: int = option(
        "least_exposure",
        duration("100us", "1min"),
        "2ms",
        "Where more pages are in use than fast memory has room for, accesses count for a part"
        " of the period only, but for so long at least; half the period or more: all of it.",
    )
    writes: bool = option("writes", Flag(), False, "Tell writes from reads; costs TLB flushes.")
    flush: bool = option(
        "flush", Flag(), False, "Flush the TLB with each look; for emulated machines."
    )

    def check(self, path: str) -> None:
        """Refuse values that contradict each other."""
        if self.cold_scans >= self.hot_scans:
            raise ConfigError(join(path, "cold_scans"), "must be smaller than hot_scans")


@dataclass(frozen=True, slots=True)
class NeoProfConfig:
    """[sources.neoprof]: requests to slow memory, counted by NeoProf cards."""

    drain_ns: int = option(
        "drain", duration("1ms", "10s"), "10ms", "Time between two looks into a card's hot list."
    )
    clear_ns: int = option(
        "clear",
        duration("100ms", "10min"),
        "5s",
        "Time after which counting begins anew; a page is reported once in it.",
    )
    track: str = option(
        "track",
        Text(TRACKS),
        "auto",
        "Which requests are counted; auto: reads, which programs wait for, or both where the"
        " policy is cost, which weighs lines.",
    )
    conservative: bool = option(
        "conservative",
        Flag(),
        True,
        "Count in the rows of the sketch that need it only: closer estimates.",
    )
    coalesce: bool = option(
        "coalesce",
        Flag(),
        True,
        "Count a run of requests to one page once, where all cards can; not where"
        " the policy is cost, which weighs lines.",
    )
    requests_per_visit: int = option(
        "requests_per_visit",
        Number(0, 64),
        0,
        "Counted requests to a page that are taken for one use of it, as a look at its accessed"
        " bit finds it. 0: 1 where runs count once or the policy is cost; else 8, for a page has"
        " 64 lines.",
    )


@dataclass(frozen=True, slots=True)
class PmuConfig:
    """[sources.pmu]: loads and stores sampled by the CPU, counted by eBPF."""

    events: tuple[str, ...] = option(
        "events",
        ListOf(Text(EVENT_ROLES), least=1, unique=True),
        ["l3-miss"],
        "What is sampled; docs/ebpf.md tells what each means on which CPU.",
    )
    latency_cycles: int = option(
        "latency_cycles", Number(3, 65535), 128, "Threshold of the load-latency event."
    )
    samples_per_s: int = option(
        "samples", Number(100, 1_000_000), 20_000, "Samples a second, all CPUs together."
    )
    cpu_share: float = option(
        "cpu",
        Share(0.001, 1.0),
        "3%",
        "Most of one CPU that sampling may take; it samples less often then.",
    )
    mode: str = option("mode", Text(SAMPLE_MODES), "auto", "Where samples are counted.")


@dataclass(frozen=True, slots=True)
class FaultsConfig:
    """[sources.faults]: page faults, counted by eBPF."""

    samples_per_s: int = option(
        "samples", Number(100, 10_000_000), 200_000, "Faults a second that are looked at."
    )
    cpu_share: float = option(
        "cpu",
        Share(0.001, 1.0),
        "5%",
        "Most of one CPU that sampling may take; it samples less often then.",
    )
    hint_faults: bool = option(
        "hint_faults", Flag(), True, "Tell NUMA hint faults apart where the kernel can."
    )
    mode: str = option("mode", Text(SAMPLE_MODES), "auto", "Where samples are counted.")


@dataclass(frozen=True, slots=True)
class SourcesConfig:
    """[sources]: who sees accesses."""

    order: tuple[str, ...] = option(
        "order",
        ListOf(Text(SOURCES), least=1, unique=True),
        ["neoprof", "scan", "pmu", "damon"],
        "Sources in order of preference; the first that this host has is used.",
    )
    neoprof: NeoProfConfig = section(
        "neoprof", NeoProfConfig, "Requests to slow memory, counted by NeoProf cards."
    )
    scan: ScanConfig = section(
        "scan", ScanConfig, "Accessed bits of every page, by the kernel module."
    )
    pmu: PmuConfig = section(
        "pmu", PmuConfig, "Loads and stores sampled by the CPU, counted by eBPF."
    )
    damon: DamonConfig = section("damon", DamonConfig, "Sampling by the kernel's DAMON.")
    faults: FaultsConfig = section("faults", FaultsConfig, "Page faults, counted by eBPF.")
