# SPDX-License-Identifier: Apache-2.0
"""`Mover`, the interface of movers, and `DryMover`, which moves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tierd.core.migration import MigrationPlan, MigrationResult


class Mover(Protocol):
    """Executes plans; `tierd.migration.executor.NativeMover` documents the methods."""

    def execute(self, plan: MigrationPlan, pids: Mapping[int, int]) -> MigrationResult:
        """Carry out `plan`; `pids` is target number → process id."""
        ...

    def stop(self) -> None:
        """Make `execute` return soon, with the rest not tried."""
        ...

    def resume(self) -> None:
        """Undo `stop`."""
        ...

    def set_rate(self, rate_bytes_per_s: int) -> None:
        """Change the byte rate from now on."""
        ...

    def set_limits(self, *, busy_retries: int, cpu_share: float) -> None:
        """Change the retries of busy pages, and the fraction of a CPU that may be used."""
        ...

    def forget(self, pid: int) -> None:
        """Release what is held for a process."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class DryMover:
    """A mover that reports every move as not tried."""

    def __init__(self, *, rate_bytes_per_s: int = 0) -> None:
        self.rate_bytes_per_s = rate_bytes_per_s

    def execute(self, plan: MigrationPlan, pids: Mapping[int, int]) -> MigrationResult:
        """A report in which no move was tried."""
        return MigrationResult.not_tried(plan)

    def stop(self) -> None:
        """Do nothing."""

    def resume(self) -> None:
        """Do nothing."""

    def set_rate(self, rate_bytes_per_s: int) -> None:
        """Store the rate."""
        self.rate_bytes_per_s = rate_bytes_per_s

    def set_limits(self, *, busy_retries: int, cpu_share: float) -> None:
        """Do nothing."""

    def forget(self, pid: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
