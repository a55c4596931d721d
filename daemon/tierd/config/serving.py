# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF009 - option() returns dataclasses.field
"""Keys of how an operator sees and steers the service, and of what runs beside the loop."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tierd.config.schema import ListOf, option
from tierd.config.values import Flag, Number, Share, duration, join, show_value, size
from tierd.core.errors import ConfigError

_BCRYPT: Final = re.compile(r"([A-Za-z0-9._@-]{1,64}):(\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53})")
_COSTS: Final = range(4, 16)
"""bcrypt costs that are accepted: at 16 a single check takes seconds."""


def path_bytes(value: str, path: str) -> bytes:
    """A path as the kernel takes it.

    Raises:
        ConfigError: it has a NUL, or half a character, which no path can have.
    """
    try:
        encoded = os.fsencode(value)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise ConfigError(path, f"must be a path in quotes, not {show_value(value)}")
    return encoded


@dataclass(frozen=True, slots=True)
class PathText:
    """An absolute path, or an empty text for none."""

    needed: bool = False

    def parse(self, value: Any, path: str) -> str:
        """The path as it stands."""
        if not isinstance(value, str):
            raise ConfigError(path, f"must be a path in quotes, not {show_value(value)}")
        path_bytes(value, path)
        if (value or self.needed) and not value.startswith("/"):
            raise ConfigError(path, f"{show_value(value)} is not an absolute path")
        return value

    def text(self, value: Any) -> Any:
        """The path."""
        return value

    def describe(self) -> str:
        """What it is."""
        return "absolute path" if self.needed else 'absolute path, or "" for none'


@dataclass(frozen=True, slots=True)
class GroupName:
    """The name of a user group, or an empty text for none."""

    def parse(self, value: Any, path: str) -> str:
        """The name as it stands; whether the group exists is asked when it is used."""
        if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9._-]{0,32}", value):
            raise ConfigError(path, f"must be the name of a group, not {show_value(value)}")
        return value

    def text(self, value: Any) -> Any:
        """The name."""
        return value

    def describe(self) -> str:
        """What it is."""
        return 'name of a group, or "" for none'


@dataclass(frozen=True, slots=True)
class IpAddress:
    """A numeric IP address."""

    def parse(self, value: Any, path: str) -> str:
        """The address in its short form."""
        try:
            if not isinstance(value, str):
                raise ValueError
            return str(ipaddress.ip_address(value))
        except ValueError:
            raise ConfigError(
                path,
                f"must be a numeric IP address in quotes, not {show_value(value)}",
                hint='"127.0.0.1" is this host only, "0.0.0.0" or "::" every interface',
            ) from None

    def text(self, value: Any) -> Any:
        """The address."""
        return value

    def describe(self) -> str:
        """What it is."""
        return "IP address"


@dataclass(frozen=True, slots=True)
class HashedUser:
    """A line as `htpasswd -nB NAME` prints it: name and bcrypt hash of the password."""

    def parse(self, value: Any, path: str) -> str:
        """The line; the value itself is never shown in an error."""
        match = _BCRYPT.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ConfigError(
                path,
                'must be "NAME:HASH" with a bcrypt hash',
                hint="htpasswd -nB NAME asks for a password and prints such a line",
            )
        if int(match[3]) not in _COSTS:
            raise ConfigError(
                path, f"has bcrypt cost {int(match[3])}, not {_COSTS[0]} to {_COSTS[-1]}"
            )
        return match[0]

    def text(self, value: Any) -> Any:
        """The line."""
        return value

    def describe(self) -> str:
        """What it is."""
        return '"NAME:HASH", the hash made by bcrypt'


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """[metrics]: figures for Prometheus."""

    enabled: bool = option(Flag(), True, "Serve figures for Prometheus over HTTP.")
    address: str = option(IpAddress(), "127.0.0.1", "Address to serve them on.")
    port: int = option(Number(0, 65535), 9743, "TCP port to serve them on; 0 takes a free one.")
    tls_cert: str = option(
        PathText(), "", "Certificate chain (PEM); with tls_key, HTTPS is served."
    )
    tls_key: str = option(PathText(), "", "Private key of tls_cert (PEM).")
    users: tuple[str, ...] = option(
        ListOf(HashedUser(), most=32),
        [],
        "Who may read the figures, by HTTP basic authentication; empty is everybody.",
    )
    groups: int = option(
        Number(0, 1000),
        32,
        'Most control groups told apart in figures; the rest is summed up as "other".',
    )

    def check(self, path: str) -> None:
        """Refuse values that contradict each other."""
        if bool(self.tls_cert) != bool(self.tls_key):
            missing = "tls_key" if self.tls_cert else "tls_cert"
            raise ConfigError(join(path, missing), "is needed too: HTTPS needs both files")
        names = [user.partition(":")[0] for user in self.users]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ConfigError(join(path, f"users[{index}]"), f"{name!r} is there twice")


@dataclass(frozen=True, slots=True)
class ControlConfig:
    """[control]: the socket that the tierd commands talk to."""

    enabled: bool = option(
        Flag(), True, "Listen for tierd status, top, pause, explain, set and events."
    )
    socket: str = option(
        PathText(needed=True), "/run/tierd/control.sock", "Path of the Unix socket."
    )
    group: str = option(
        GroupName(),
        "",
        "Group whose members may read (status, top, events); everything else needs root.",
    )
    state: str = option(
        PathText(needed=True),
        "/var/lib/tierd",
        "Folder where a pause is kept, so that a restart does not end it.",
    )
    timeout_ns: int = option(
        duration("100ms", "1min"),
        "5s",
        "Time a request waits for the control loop before it is told that the loop is stuck.",
    )
    connections: int = option(
        Number(1, 256), 16, "Most connections at a time; one more is refused."
    )


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
        Flag(),
        False,
        "Count pages that the kernel or others move, and ping-pong; needs eBPF and tracefs.",
    )


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """[gpu]: lending free memory of GPUs to their neighbours (docs/gpu.md)."""

    serve: bool = option(
        Flag(), False, "Lend free GPU memory to programs that use the client library."
    )
    socket: Path = option(PathKind(), "/run/tierd/gpu.sock", "Where clients connect.")
    users: tuple[int, ...] = option(
        ListOf(Number(0, MOST_ID), unique=True),
        [],
        "User numbers that may connect, beside tierd's own.",
    )
    groups: tuple[int, ...] = option(
        ListOf(Number(0, MOST_ID), unique=True), [], "Group numbers that may connect."
    )
    durable: bool = option(
        Flag(),
        True,
        "Lend room only to copies, so that a lost GPU loses nothing; off: faster, with a bound.",
    )
    floor_bytes: int = option(
        size("0B", "1TiB"), "100MB", "Free memory of a lender that is never borrowed."
    )
    refill_bytes: int = option(
        size("0B", "1TiB"),
        "200MB",
        "Free and removable memory of a lender below which it gets some back.",
    )
    quota_share: float = option(
        Share(0.01, 1.0),
        "100%",
        "Most of a neighbour's memory that one client may have.",
        key="quota",
    )
    revoke_ns: int = option(
        duration("20ms", "10s"), "50ms", "Time in which a lender gets back everything it lent."
    )

    def check(self, path: str) -> None:
        """Refuse values that contradict each other."""
        if self.refill_bytes < self.floor_bytes:
            raise ConfigError(f"{path}.refill", "must not be smaller than floor")
