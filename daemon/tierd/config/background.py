# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF009 - option() returns dataclasses.field
"""Keys of what runs beside the loop: counting migrations, serving GPU memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tierd.config.schema import ListOf, option
from tierd.config.serving import path_bytes
from tierd.config.values import Flag, Number, Share, duration, show_value, size
from tierd.core.errors import ConfigError

MOST_ID = 4_294_967_294
"""Largest user or group number of Linux."""


@dataclass(frozen=True, slots=True)
class PathKind:
    """An absolute path of a socket; Linux takes 107 bytes (unix(7))."""

    most: int = 107

    def parse(self, value: Any, path: str) -> Path:
        """The path."""
        if not isinstance(value, str) or not value.startswith("/"):
            raise ConfigError(path, f"is {show_value(value)}, but must be an absolute path")
        if len(path_bytes(value, path)) > self.most:
            raise ConfigError(path, f"is longer than {self.most} bytes")
        return Path(value)

    def text(self, value: Any) -> Any:
        """The path as text."""
        return str(value)

    def describe(self) -> str:
        """What it is."""
        return "absolute path"


@dataclass(frozen=True, slots=True)
class MigrationTracingConfig:
    """[migration_tracing]: counting of all page migrations of the host, by eBPF."""

    enabled: bool = option(
        "enabled",
        Flag(),
        False,
        "Count pages that the kernel or others move, and ping-pong; needs eBPF and tracefs.",
    )


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """[gpu]: lending free memory of GPUs to their neighbours (docs/gpu.md)."""

    serve: bool = option(
        "serve", Flag(), False, "Lend free GPU memory to programs that use the client library."
    )
    socket: Path = option("socket", PathKind(), "/run/tierd/gpu.sock", "Where clients connect.")
    users: tuple[int, ...] = option(
        "users",
        ListOf(Number(0, MOST_ID), unique=True),
        [],
        "User numbers that may connect, beside tierd's own.",
    )
    groups: tuple[int, ...] = option(
        "groups", ListOf(Number(0, MOST_ID), unique=True), [], "Group numbers that may connect."
    )
    durable: bool = option(
        "durable",
        Flag(),
        True,
        "Lend room only to copies, so that a lost GPU loses nothing; off: faster, with a bound.",
    )
    floor_bytes: int = option(
        "floor", size("0B", "1TiB"), "100MB", "Free memory of a lender that is never borrowed."
    )
    refill_bytes: int = option(
        "refill",
        size("0B", "1TiB"),
        "200MB",
        "Free and removable memory of a lender below which it gets some back.",
    )
    quota_share: float = option(
        "quota", Share(0.01, 1.0), "100%", "Most of a neighbour's memory that one client may have."
    )
    revoke_ns: int = option(
        "revoke",
        duration("20ms", "10s"),
        "50ms",
        "Time in which a lender gets back everything it lent.",
    )

    def check(self, path: str) -> None:
        """Refuse values that contradict each other."""
        if self.refill_bytes < self.floor_bytes:
            raise ConfigError(f"{path}.refill", "must not be smaller than floor")
