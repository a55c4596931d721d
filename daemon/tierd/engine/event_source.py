# SPDX-License-Identifier: Apache-2.0
"""What the loop asks a source that looks at pages, or reports, in rounds, beside its batches."""

from __future__ import annotations

from typing import Protocol, cast

from tierd.core.access import AccessSource


class EventDrivenSource(Protocol):
    """A source that nobody but its own looks tells of pages that become hot."""

    @property
    def learning_ns(self) -> int:
        """Time after which a pass learns something new; 0: passes need not be quick."""
        ...

    @property
    def backlog(self) -> float:
        """The share of its ring that is not read yet, in [0, 1]."""
        ...

    @property
    def phase_change_fd(self) -> int:
        """Readable when a look has ended, until `poll`; -1 for none."""
        ...

    def phase_changed(self) -> bool:
        """Whether to poll: programs began to use other memory, or the source is about to go."""
        ...

    @property
    def phase_change_ns(self) -> int:
        """When they were last seen to, CLOCK_MONOTONIC; 0: not yet."""
        ...


def event_driven(source: AccessSource | None) -> EventDrivenSource | None:
    """The source as such a one, if it is."""
    # (To ask whether it is `EventDrivenSource` would look at its type anew in each pass.)
    return cast(EventDrivenSource, source) if hasattr(source, "phase_change_fd") else None


def report_ns(source: AccessSource | None) -> int:
    """Time between two reports of a source that makes them at intervals: to ask it sooner is in
    vain. 0 for others, and while it is not known."""
    return int(getattr(source, "report_ns", 0))
