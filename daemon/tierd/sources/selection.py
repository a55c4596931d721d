# SPDX-License-Identifier: Apache-2.0
"""Makes sources from their configuration, and selects the first of the order that works."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from tierd.config.watching import NeoProfConfig, SourcesConfig
from tierd.core import bounds
from tierd.core.access import AccessBatch, AccessSource, EventDrivenSource, WatchedTarget
from tierd.core.errors import UnavailableError

log = logging.getLogger(__name__)


class SourceSelector:
    """Runs one of several sources, none of which is started yet, best first."""

    def __init__(self, sources: Sequence[AccessSource]) -> None:
        self._sources = list(sources)
        self._not_before = dict.fromkeys(range(len(self._sources)), 0)
        self._active: int | None = None
        self.reasons: dict[str, str] = {}
        """Why a source is not in use, by name."""

    @property
    def names(self) -> list[str]:
        """Names of all sources, in order of preference."""
        return [source.name for source in self._sources]

    @property
    def active(self) -> AccessSource | None:
        """The source in use."""
        return None if self._active is None else self._sources[self._active]

    @property
    def event_driven(self) -> EventDrivenSource | None:
        """The source in use, if its scans wake the loop."""
        return active if isinstance(active := self.active, EventDrivenSource) else None

    def watch(self, targets: Sequence[WatchedTarget], now_ns: int) -> None:
        """Let the best source that works watch these targets.

        Raises:
            UnavailableError: none works; the message has every source's reason.
        """
        for index, source in enumerate(self._sources):
            if now_ns < self._not_before[index]:
                continue
            state = source.available()
            reason = state.reason
            if state.ok:
                try:
                    source.watch(targets)
                except UnavailableError as error:
                    reason = str(error)
                else:
                    self._switch(index)
                    return
            self._fail(index, reason, now_ns)
        if self._active is not None:
            self._sources[self._active].watch(targets)
            return
        told = "; ".join(f"{name}: {reason}" for name, reason in self.reasons.items())
        raise UnavailableError(
            f"no source of page accesses works here: {told}",
            hint="tierd doctor lists what this host can do and what to install",
        )

    def _switch(self, index: int) -> None:
        self.reasons.pop(self._sources[index].name, None)
        if self._active == index:
            return
        if self._active is not None:
            self._sources[self._active].close()
        log.info("source=%s event=source_selected", self._sources[index].name)
        self._active = index

    def _fail(self, index: int, reason: str, now_ns: int) -> None:
        name = self._sources[index].name
        if self.reasons.get(name) != reason:
            log.warning('source=%s event=source_unavailable reason="%s"', name, reason)
        self.reasons[name] = reason
        self._not_before[index] = now_ns + bounds.SOURCE_RETRY_NS
        if self._active == index:
            self._sources[index].close()
            self._active = None

    def poll(self, now_ns: int) -> list[AccessBatch]:
        """What the source in use has seen; nothing if it broke just now (see `active`)."""
        if self._active is None:
            return []
        try:
            return self._sources[self._active].poll()
        except UnavailableError as error:
            self._fail(self._active, str(error), now_ns)
            return []

    def close(self) -> None:
        """Stop the source in use."""
        if self.active is not None:
            self.active.close()
        self._active = None


def make_source(name: str, config: SourcesConfig, *, lines: bool = False) -> AccessSource:
    """The source `name`, not started.

    Args:
        lines: whether the policy weighs lines, not uses of pages.

    Raises:
        ValueError: no source has that name.
    """
    if lines:
        config = replace(config, neoprof=_all_lines(config.neoprof))
    try:
        make = _MAKERS[name]
    except KeyError:
        raise ValueError(f"no source is named {name!r}") from None
    return make(config)


def _all_lines(config: NeoProfConfig) -> NeoProfConfig:
    """Cards count all lines, where it is left to the policy, and not the reads alone."""
    access_type = "both" if config.access_type == "auto" else config.access_type
    lines = config.lines_per_access or 1
    return replace(config, merge_requests=False, lines_per_access=lines, access_type=access_type)


def _neoprof(config: SourcesConfig) -> AccessSource:
    from tierd.sources.neoprof import NeoProfSource

    return NeoProfSource(config.neoprof, config.scan)


def _scan(config: SourcesConfig) -> AccessSource:
    from tierd.sources.scan import ScanSource

    return ScanSource(config.scan)


def _idlepage(config: SourcesConfig) -> AccessSource:
    from tierd.sources.idlepage.source import IdlePageSource

    return IdlePageSource(config.idlepage)


def _pmu(config: SourcesConfig) -> AccessSource:
    from tierd.sources.pmu import PmuSource

    return PmuSource(config.pmu)


def _damon(config: SourcesConfig) -> AccessSource:
    from tierd.sources.damon import DamonSource

    return DamonSource(config.damon)


def _faults(config: SourcesConfig) -> AccessSource:
    from tierd.sources.faults import FaultSource

    return FaultSource(config.faults)


_MAKERS = {
    "neoprof": _neoprof,
    "scan": _scan,
    "idlepage": _idlepage,
    "pmu": _pmu,
    "damon": _damon,
    "faults": _faults,
}
