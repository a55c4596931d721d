# SPDX-License-Identifier: Apache-2.0
"""Who is at the other end of a Unix socket, and what they may do."""

from __future__ import annotations

import grp
import os
import socket
import struct
from typing import Final

from tierd.control.commands import Peer
from tierd.core.errors import ConfigError

_CREDENTIALS: Final = struct.Struct("iII")
_SO_PEERGROUPS: Final = 59
"""include/uapi/asm-generic/socket.h; Python's socket module does not name it."""
_MOST_GROUPS: Final = 65536


def group_number(name: str) -> int | None:
    """The number of the configured group, None for the empty name.

    Raises:
        ConfigError: there is no such group.
    """
    if not name:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigError(
            "control.group", f"this host has no group {name!r}", hint=f"groupadd --system {name}"
        ) from None


def identify(connection: socket.socket, readers: int | None) -> Peer | None:
    """The peer, or None where it may do nothing at all.

    Args:
        connection: as accepted.
        readers: the group that may read.
    """
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    if uid in (0, os.geteuid()):
        return Peer(pid, uid, may_change=True)
    if readers is not None and readers in (gid, *_supplementary(connection)):
        return Peer(pid, uid, may_change=False)
    return None


def _supplementary(connection: socket.socket) -> tuple[int, ...]:
    """The peer's further groups at the time it connected."""
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * 256)
    except OSError:
        try:  # in more than 256 groups: 65536 is the kernel's limit (NGROUPS_MAX)
            raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _MOST_GROUPS)
        except OSError:
            return ()
    return struct.unpack(f"{len(raw) // 4}I", raw)
