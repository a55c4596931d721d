# SPDX-License-Identifier: Apache-2.0
"""Makes sources from their sections of the configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tierd.config import NeoProfConfig, SourcesConfig
from tierd.core.access import AccessSource

if TYPE_CHECKING:
    from tierd.sources.scan_module import ScanSettings


def make_source(name: str, config: SourcesConfig, *, lines: bool = False) -> AccessSource:
    """The source `name`, not started.

    Args:
        name: one of `sources.order`.
        config: the sources' section.
        lines: whether the policy weighs lines, not uses of pages.

    Raises:
        ValueError: no source has that name.
    """
    config = replace(config, neoprof=_counting(config.neoprof, lines=lines))
    try:
        make = _MAKERS[name]
    except KeyError:
        raise ValueError(f"no source is named {name!r}") from None
    return make(config)


def _counting(config: NeoProfConfig, *, lines: bool) -> NeoProfConfig:
    """What cards count where it is left to the policy: reads, which programs wait for; or lines."""
    if lines:
        per_access, access_type = config.lines_per_access or 1, "both"
        config = replace(config, merge_requests=False, lines_per_access=per_access)
    else:
        access_type = "reads"
    if config.access_type != "auto":
        return config
    return replace(config, access_type=access_type)


def _neoprof(config: SourcesConfig) -> AccessSource:
    from tierd.sources.neoprof import NeoProfSettings, NeoProfSource

    return NeoProfSource(
        NeoProfSettings(
            drain_us=config.neoprof.poll_interval_ns // 1000,
            clear_us=config.neoprof.epoch_ns // 1000,
            track=config.neoprof.access_type,
            conservative=config.neoprof.conservative_update,
            coalesce=config.neoprof.merge_requests,
            requests_per_visit=config.neoprof.lines_per_access,
            scan=_scan_settings(config),
        )
    )


def _scan_settings(config: SourcesConfig) -> ScanSettings:
    from tierd.sources.scan_module import ScanSettings

    return ScanSettings(
        period_us=config.scan.interval_ns // 1000,
        cpu_share=config.scan.cpu_limit,
        hot_scans=config.scan.hot_threshold,
        cold_scans=config.scan.cold_threshold,
        min_sampling_interval_us=config.scan.min_sampling_interval_ns // 1000,
        dirty=config.scan.track_writes,
        flush=config.scan.flush_tlb,
    )


def _scan(config: SourcesConfig) -> AccessSource:
    from tierd.sources.scan import ScanSource

    return ScanSource(_scan_settings(config))


def _pmu(config: SourcesConfig) -> AccessSource:
    from tierd.sources.pmu import PmuSettings, PmuSource

    return PmuSource(
        PmuSettings(
            events=config.pmu.events,
            latency_cycles=config.pmu.latency_cycles,
            samples_per_s=config.pmu.samples_per_s,
            cpu_share=config.pmu.cpu_limit,
            mode=config.pmu.mode,
        )
    )


def _damon(config: SourcesConfig) -> AccessSource:
    from tierd.sources.damon import DamonSettings, DamonSource

    return DamonSource(
        DamonSettings(
            sample_us=config.damon.sampling_interval_ns // 1000,
            aggregation_us=config.damon.aggregation_interval_ns // 1000,
            min_regions=config.damon.min_regions,
            max_regions=config.damon.max_regions,
            cpu_share=config.damon.cpu_limit,
        )
    )


def _faults(config: SourcesConfig) -> AccessSource:
    from tierd.sources.faults import FaultSettings, FaultSource

    return FaultSource(
        FaultSettings(
            samples_per_s=config.faults.samples_per_s,
            cpu_share=config.faults.cpu_limit,
            hint_faults=config.faults.hint_faults,
            mode=config.faults.mode,
        )
    )


_MAKERS = {"neoprof": _neoprof, "scan": _scan, "pmu": _pmu, "damon": _damon, "faults": _faults}
