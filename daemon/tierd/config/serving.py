# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF009 - option() returns dataclasses.field
"""Keys of how an operator sees and steers the service, and of what runs beside the loop."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tierd.config.schema import ListOf, option
from tierd.config.values import FLAG, Value, duration, join, number, rate, share, show_value, size
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


def _kind(parse: Callable[[Any, str], Any], about: str) -> Value:
    """A kind that JSON schema cannot describe."""
    return Value(parse, about, {"$comment": about})


def path_text(*, needed: bool = False) -> Value:
    """An absolute path, or unless it is `needed` an empty text for none."""

    def parse(value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise ConfigError(path, f"must be a path in quotes, not {show_value(value)}")
        path_bytes(value, path)
        if (value or needed) and not value.startswith("/"):
            raise ConfigError(path, f"{show_value(value)} is not an absolute path")
        return value

    return _kind(parse, "absolute path" if needed else 'absolute path, or "" for none')


def _parse_group(value: Any, path: str) -> str:
    """The name as it stands; whether the group exists is asked when it is used."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9._-]{0,32}", value):
        raise ConfigError(path, f"must be the name of a group, not {show_value(value)}")
    return value


def _parse_address(value: Any, path: str) -> str:
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


def _parse_user(value: Any, path: str) -> str:
    """A line as `htpasswd -nB NAME` prints it; the value itself is never shown in an error."""
    match = _BCRYPT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ConfigError(
            path,
            'must be "NAME:HASH" with a bcrypt hash',
            hint="htpasswd -nB NAME asks for a password and prints such a line",
        )
    if int(match[3]) not in _COSTS:
        raise ConfigError(path, f"has bcrypt cost {int(match[3])}, not {_COSTS[0]} to {_COSTS[-1]}")
    return match[0]


_ADDRESS: Final = _kind(_parse_address, "IP address")


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """[metrics]: figures for Prometheus."""

    enabled: bool = option(FLAG, True, "Serve figures for Prometheus over HTTP.")
    address: str = option(_ADDRESS, "127.0.0.1", "Address to serve them on.")
    port: int = option(number(0, 65535), 9743, "TCP port to serve them on; 0 takes a free one.")
    tls_cert: str = option(
        path_text(), "", "Certificate chain (PEM); with tls_key, HTTPS is served."
    )
    tls_key: str = option(path_text(), "", "Private key of tls_cert (PEM).")
    users: tuple[str, ...] = option(
        ListOf(_kind(_parse_user, '"NAME:HASH", the hash made by bcrypt'), most=32),
        [],
        "Who may read the figures, by HTTP basic authentication; empty is everybody.",
    )
    groups: int = option(
        number(0, 1000),
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
        FLAG, True, "Listen for tierd status, top, pause, explain, set and events."
    )
    socket: str = option(
        path_text(needed=True), "/run/tierd/control.sock", "Path of the Unix socket."
    )
    group: str = option(
        _kind(_parse_group, 'name of a group, or "" for none'),
        "",
        "Group whose members may read (status, top, events); everything else needs root.",
    )
    state: str = option(
        path_text(needed=True),
        "/var/lib/tierd",
        "Folder where a pause is kept, so that a restart does not end it.",
    )
    timeout_ns: int = option(
        duration("100ms", "1min"),
        "5s",
        "Time a request waits for the control loop before it is told that the loop is stuck.",
    )
    connections: int = option(
        number(1, 256), 16, "Most connections at a time; one more is refused."
    )


MOST_ID = 4_294_967_294
"""Largest user or group number of Linux."""


EARLY: Final = ".new"
"""What the control socket's name ends with until it listens."""
MOST_PATH: Final = 107 - len(EARLY)
"""Bytes of the path of a Unix socket; unix(7)."""


def _parse_socket(value: Any, path: str) -> Path:
    found: str = path_text(needed=True).parse(value, path)
    if len(path_bytes(found, path)) > MOST_PATH:
        raise ConfigError(path, f"is longer than {MOST_PATH} bytes")
    return Path(found)


_SOCKET: Final = Value(_parse_socket, "absolute path", {"$comment": "absolute path"}, str)


@dataclass(frozen=True, slots=True)
class MigrationTracingConfig:
    """[migration_tracing]: counting of all page migrations of the host, by eBPF."""

    enabled: bool = option(
        FLAG,
        False,
        "Count pages that the kernel or others move, and ping-pong; needs eBPF and tracefs.",
    )


@dataclass(frozen=True, slots=True)
class TierHealthConfig:
    """[tier_health]: whether tiers are as fast as usual (docs/operate/tier-health.md)."""

    enabled: bool = option(
        FLAG,
        False,
        "Measure each node from time to time, and decide with the slowdown of a slow one.",
    )
    interval_ns: int = option(
        duration("100ms", "1h"), "5s", "Time between two measurements of all nodes."
    )
    cpu_limit: float = option(
        share(0.00001, 1.0),
        "0.1%",
        "Share of one CPU that measuring may use; where it takes more, the interval is longer.",
    )
    errors: bool = option(
        FLAG,
        True,
        "Report memory errors that the kernel tells of: failed pages, CXL devices, EDAC.",
    )


@dataclass(frozen=True, slots=True)
class PageOutConfig:
    """[page_out]: cold pages to compressed memory or swap (docs/operate/page-out.md)."""

    enabled: bool = option(
        FLAG, False, "Page out memory of targets that nobody has accessed for long."
    )
    any_swap: bool = option(
        FLAG, False, "Also where the swap device does not compress in memory (zram, zswap)."
    )
    min_age_ns: int = option(
        duration("1s", "24h"), "2min", "Pages stay for so long after their last access at least."
    )
    max_lost_time: float = option(
        share(0.00001, 1.0),
        "0.1%",
        "Share of one CPU's time that faults on swapped memory may cost.",
    )
    rate_limit_bytes_per_s: int = option(
        rate("1MB/s", "1TB/s"),
        "64MB/s",
        "Most memory that is paged out a second.",
        key="rate_limit",
    )
    cpu_limit: float = option(
        share(0.0001, 1.0),
        "2%",
        "Share of one CPU that this may use, the kernel's compressing included.",
    )


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """[gpu]: lending free memory of GPUs to their neighbours (docs/operate/gpu.md)."""

    serve: bool = option(
        FLAG, False, "Lend free GPU memory to programs that use the client library."
    )
    socket: Path = option(_SOCKET, "/run/tierd/gpu.sock", "Where clients connect.")
    users: tuple[int, ...] = option(
        ListOf(number(0, MOST_ID), unique=True),
        [],
        "User numbers that may connect, beside tierd's own.",
    )
    groups: tuple[int, ...] = option(
        ListOf(number(0, MOST_ID), unique=True), [], "Group numbers that may connect."
    )
    durable: bool = option(
        FLAG,
        True,
        "Keep nothing on neighbours, so that a lost GPU loses nothing; off: faster, with a bound.",
    )
    in_place: bool = option(
        FLAG,
        True,
        "Kernels read what is away where it is; off: they fault it home, as the driver has it.",
    )
    floor_bytes: int = option(
        size("0B", "1TiB"), "100MB", "Memory of a lender that is never borrowed."
    )
    refill_bytes: int = option(
        size("0B", "1TiB"),
        "200MB",
        "Memory to be had on a lender below which it gets some back.",
    )
    quota_share: float = option(
        share(0.01, 1.0),
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
