# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF009 - option() and section() return dataclasses.field
"""Keys of who sees accesses."""

from __future__ import annotations

from dataclasses import dataclass

from tierd.config.schema import ListOf, option, section
from tierd.config.values import FLAG, duration, join, number, share, text
from tierd.core.errors import ConfigError

SOURCES = ("neoprof", "scan", "idlepage", "pmu", "damon", "faults")
"""Sources that `sources.order` may name."""
EVENT_ROLES = ("l3-miss", "load-latency", "stores", "cxl", "ops")
"""What `sources.pmu.events` may name; a test compares it with `tierd.sources.ebpf.events.ROLES`."""
SAMPLE_MODES = ("table", "raw")
ACCESS_TYPES = ("auto", "reads", "writes", "both")
"""What `sources.neoprof.access_type` may be; a test compares it with the source's."""


@dataclass(frozen=True, slots=True)
class DamonConfig:
    """[sources.damon]: sampling by the kernel's DAMON."""

    sampling_interval_ns: int = option(
        duration("1ms", "10s"), "20ms", "Time between two checks of a region."
    )
    aggregation_interval_ns: int = option(
        duration("10ms", "1min"),
        "400ms",
        "Time over which DAMON counts the checks that found an access.",
    )
    min_regions: int = option(number(10, 100_000), 500, "Least regions a target is divided into.")
    max_regions: int = option(number(10, 100_000), 2000, "Most regions a target is divided into.")
    cpu_limit: float = option(
        share(0.001, 1.0),
        "2%",
        "Share of one CPU that DAMON may use; it samples less often when that is used up.",
    )

    def check(self, path: str) -> None:
        """Refuse values that contradict each other."""
        if self.min_regions > self.max_regions:
            raise ConfigError(
                join(path, "min_regions"),
                f"{self.min_regions} is more than max_regions, {self.max_regions}",
            )
        if self.aggregation_interval_ns < self.sampling_interval_ns:
            raise ConfigError(
                join(path, "aggregation_interval"), "is shorter than sampling_interval"
            )


@dataclass(frozen=True, slots=True)
class ScanConfig:
    """[sources.scan]: accessed bits of every page, by the kernel module."""

    interval_ns: int = option(
        duration("10ms", "1min"),
        "800ms",
        "Time between two scans of a page. During warm-up and after a phase change the scanner is"
        " faster; when nothing changes for long it takes twice as long.",
    )
    cpu_limit: float = option(
        share(0.001, 1.0),
        "5%",
        "Share of one CPU that the scanner may use; it scans less often when that is used up.",
    )
    hot_threshold: int = option(
        number(1, 8),
        2,
        "A page is reported once this many of its last eight scans found it accessed.",
    )
    cold_threshold: int = option(
        number(0, 7),
        1,
        "A reported page is reported until no more than this many of its last eight scans found"
        " it accessed.",
    )
    min_sampling_interval_ns: int = option(
        duration("100us", "1min"),
        "2ms",
        "Shortest time from clearing an accessed bit to checking it. Where more pages are in use"
        " than fast memory can hold, the scanner shortens this time to tell them apart. From half"
        " the scan interval on, it is the whole scan interval.",
    )
    track_writes: bool = option(FLAG, False, "Tell writes from reads; costs TLB flushes.")
    flush_tlb: bool = option(FLAG, False, "Flush the TLB with each scan; for emulated machines.")

    def check(self, path: str) -> None:
        """Refuse values that contradict each other."""
        if self.cold_threshold >= self.hot_threshold:
            raise ConfigError(join(path, "cold_threshold"), "must be smaller than hot_threshold")


@dataclass(frozen=True, slots=True)
class IdlePageConfig:
    """[sources.idlepage]: accessed bits of every page, by the kernel's idle page tracking."""

    interval_ns: int = option(
        duration("10ms", "1min"),
        "800ms",
        "Time between two scans of a page, as sources.scan.interval.",
    )
    cpu_limit: float = option(
        share(0.001, 1.0),
        "5%",
        "Share of one CPU that the scanner may use; it scans less often when that is used up.",
    )
    hot_threshold: int = option(number(1, 8), 2, "As sources.scan.hot_threshold.")
    cold_threshold: int = option(number(0, 7), 1, "As sources.scan.cold_threshold.")
    min_sampling_interval_ns: int = option(
        duration("100us", "1min"),
        "10ms",
        "Shortest time from marking a page as idle to checking it. It is longer than that of scan"
        " because the kernel does not flush the TLB here: a page that stays in it looks idle.",
    )

    def check(self, path: str) -> None:
        """Refuse values that contradict each other."""
        if self.cold_threshold >= self.hot_threshold:
            raise ConfigError(join(path, "cold_threshold"), "must be smaller than hot_threshold")


@dataclass(frozen=True, slots=True)
class ThresholdConfig:
    """[sources.neoprof.threshold]: NeoMem's Algorithm 1 (NeoMem, MICRO 2024), in its symbols."""

    interval_ns: int = option(
        duration("100ms", "1min"),
        "1s",
        "Time between two decisions about the hotness threshold of a card.",
    )
    p_min: float = option(
        share(1e-6, 1.0), "0.01%", "Smallest share of a card's counters that is hot."
    )
    p_init: float = option(share(1e-6, 1.0), "0.1%", "That share at first.")
    p_max: float = option(share(1e-6, 1.0), "1.56%", "Largest share that is hot.")
    alpha: float = option(
        number(0.0, 10.0, whole=False),
        1.0,
        "How much the bandwidth utilisation of a card's memory raises the hot share.",
    )
    beta: float = option(
        number(0.0, 10.0, whole=False), 2.0, "How much ping-pong lowers the hot share."
    )

    def check(self, path: str) -> None:
        """Refuse values that contradict each other."""
        if not self.p_min <= self.p_init <= self.p_max:
            raise ConfigError(join(path, "p_init"), "must lie between p_min and p_max")


@dataclass(frozen=True, slots=True)
class NeoProfConfig:
    """[sources.neoprof]: requests to slow memory, counted by NeoProf cards."""

    poll_interval_ns: int = option(
        duration("1ms", "10s"), "10ms", "Time between two reads of a card's hot list."
    )
    epoch_ns: int = option(
        duration("100ms", "10min"),
        "5s",
        "Time after which counting starts again from zero; a page is reported once in it.",
    )
    access_type: str = option(
        text(ACCESS_TYPES),
        "auto",
        "Which requests are counted. auto: reads, which programs wait for; with the policy cost,"
        " which needs all traffic, both.",
    )
    conservative_update: bool = option(
        FLAG, True, "Raise only the smallest counters of a page in the sketch: closer estimates."
    )
    merge_requests: bool = option(
        FLAG,
        True,
        "Count a run of requests to one page once, where all cards can; not with the policy cost,"
        " which needs all traffic.",
    )
    lines_per_access: int = option(
        number(0, 64),
        0,
        "Requests for cache lines that count as one access of a page. 0: 1 where requests are"
        " merged or the policy is cost, else 8.",
    )
    threshold: ThresholdConfig = section(ThresholdConfig)


@dataclass(frozen=True, slots=True)
class PmuConfig:
    """[sources.pmu]: loads and stores sampled by the CPU, counted by eBPF."""

    events: tuple[str, ...] = option(
        ListOf(text(EVENT_ROLES), least=1, unique=True),
        ["l3-miss"],
        "What is sampled; docs/reference/ebpf.md tells what each means on which CPU.",
    )
    latency_cycles: int = option(number(3, 65535), 128, "Threshold of the load-latency event.")
    samples_per_s: int = option(
        number(100, 1_000_000), 20_000, "Samples a second, all CPUs together."
    )
    cpu_limit: float = option(
        share(0.001, 1.0),
        "3%",
        "Share of one CPU that sampling may use; it samples less often when that is used up.",
    )
    mode: str = option(
        text(SAMPLE_MODES), "table", "Samples are counted by the program, or passed on raw."
    )


@dataclass(frozen=True, slots=True)
class FaultsConfig:
    """[sources.faults]: page faults, counted by eBPF."""

    samples_per_s: int = option(
        number(100, 10_000_000), 200_000, "Faults a second that are looked at."
    )
    cpu_limit: float = option(
        share(0.001, 1.0),
        "5%",
        "Share of one CPU that sampling may use; it samples less often when that is used up.",
    )
    hint_faults: bool = option(FLAG, True, "Tell NUMA hint faults apart where the kernel can.")
    mode: str = option(
        text(SAMPLE_MODES), "table", "Samples are counted by the program, or passed on raw."
    )


@dataclass(frozen=True, slots=True)
class SourcesConfig:
    """[sources]: who sees accesses."""

    order: tuple[str, ...] = option(
        ListOf(text(SOURCES), least=1, unique=True),
        ["neoprof", "scan", "idlepage", "pmu", "damon"],
        "Sources in order of preference; the first that this host has is used.",
    )
    neoprof: NeoProfConfig = section(NeoProfConfig)
    scan: ScanConfig = section(ScanConfig)
    idlepage: IdlePageConfig = section(IdlePageConfig)
    pmu: PmuConfig = section(PmuConfig)
    damon: DamonConfig = section(DamonConfig)
    faults: FaultsConfig = section(FaultsConfig)
