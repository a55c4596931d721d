# SPDX-License-Identifier: Apache-2.0
"""Has a recorder told of what the service's deciding components are told and decide."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tierd.core.access import AccessSource
from tierd.engine.loop import Service
from tierd.observe.recording.calls import Journal
from tierd.observe.recording.recorder import Recorder
from tierd.replay.fast_path_update import RecordedUpdater
from tierd.replay.phase import (
    RecordedMissBurst,
    RecordedPacer,
    RecordedPhaseAge,
    RecordedPhaseDetector,
)
from tierd.replay.scan import RecordedSamplingLimits, RecordedScanController
from tierd.replay.threshold import RecordedThresholds
from tierd.sources.neoprof import Keep, NeoProfSource
from tierd.sources.scan import ScanSource
from tierd.sources.scan_module import ScanSettings


def listen(service: Service, recorder: Recorder) -> None:
    """Record what the components of a service decide that has not begun yet."""
    journal, work, components = recorder.journal, service.work, service.components
    work.exposing = RecordedSamplingLimits(
        journal, components.heat, components.tracking.resident_bytes
    )
    work.still = RecordedPhaseAge(journal)
    service.pacer = RecordedPacer(journal)
    if components.fast_path is not None:
        settings = components.fast_path.changes.settings
        components.fast_path.changes = RecordedPhaseDetector(journal, components.heat, settings)
        components.fast_path.miss_burst = RecordedMissBurst(journal)
        known = components.fast_path.thresholds_of
        components.fast_path.thresholds_of = RecordedThresholds(
            journal, known.settings, known.interval_ns
        )
        components.fast_path.brief_with(partial(RecordedUpdater, journal))
        recorder.fast_path = components.fast_path.tap()


def listen_to(sources: Sequence[AccessSource], journal: Journal) -> None:
    """Record what the scan controllers of sources decide that have not begun yet."""
    for source in sources:
        if isinstance(source, ScanSource):
            source.decide_with(partial(RecordedScanController, journal, source.name))
        elif isinstance(source, NeoProfSource):
            _listen_beside(source, journal)


def _listen_beside(source: NeoProfSource, journal: Journal) -> None:
    make = source.make_scan

    def made(settings: ScanSettings, keep: Keep | None) -> ScanSource:
        scan = make(settings, keep)
        scan.decide_with(partial(RecordedScanController, journal, source.name))
        return scan

    source.make_scan = made
