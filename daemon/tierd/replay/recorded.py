# SPDX-License-Identifier: Apache-2.0
"""Has a recorder note what the service's deciding components are given and decide."""

from __future__ import annotations

from collections.abc import Sequence

from tierd.config.watching import ScanConfig
from tierd.core.access import AccessSource
from tierd.engine.loop import Service
from tierd.observe.recording.recorder import Recorder
from tierd.replay.component import Journal
from tierd.replay.devices import THRESHOLDS, UPDATER
from tierd.replay.phase import AGE, BURST, PACER
from tierd.replay.scan import CONTROLLER, RecordedSamplingLimits
from tierd.sources.neoprof import Keep, NeoProfSource
from tierd.sources.scan import ScanSource


def listen(service: Service, recorder: Recorder) -> None:
    """Record what the components of a service decide that has not begun yet."""
    journal, work, components = recorder.journal, service.work, service.components
    work.sampling_limits = RecordedSamplingLimits(
        journal, components.heat, components.tracking.resident_bytes
    )
    work.phase_age = AGE.recorded(journal)()
    service.pacer = PACER.recorded(journal)()
    fast_path = components.fast_path
    if fast_path is not None:
        fast_path.miss_burst = BURST.recorded(journal)()
        known = fast_path.thresholds_of
        fast_path.thresholds_of = THRESHOLDS.recorded(journal)(known.settings, known.interval_ns)
        fast_path.update_with(UPDATER.recorded(journal))
        recorder.fast_path = fast_path.tap()


def listen_to(sources: Sequence[AccessSource], journal: Journal) -> None:
    """Record what the scan controllers of sources decide that have not begun yet."""
    for source in sources:
        if isinstance(source, ScanSource):
            source.decide_with(CONTROLLER.recorded(journal, source.name))
        elif isinstance(source, NeoProfSource):
            _listen_beside(source, journal)


def _listen_beside(source: NeoProfSource, journal: Journal) -> None:
    make = source.make_scan

    def made(settings: ScanConfig, nodes: Sequence[int], keep: Keep | None) -> ScanSource:
        scan = make(settings, nodes, keep)
        scan.decide_with(CONTROLLER.recorded(journal, source.name))
        return scan

    source.make_scan = made
