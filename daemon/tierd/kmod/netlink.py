# SPDX-License-Identifier: Apache-2.0
"""`Control`: what the module shall scan, and how, by generic netlink.

Owns: one netlink socket. The module ties targets to the socket that registered them, so
closing it (or dying) stops their scan.
Must not touch: the ring, what the records mean.

`kmod/tierd.yaml` describes the family. Messages are coded by pyroute2; the socket is a
plain one, for pyroute2's own reads through an event loop, which the control loop has not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tierd.errors import TargetGoneError, UnavailableError
from tierd.kmod.uapi import (
    ATTRIBUTES,
    EVENTS,
    FAMILY,
    STATS,
    TARGET_STATS,
    VERSION,
    Command,
    Event,
    ScanFlags,
)
from tierd.pagekey import PAGE_SHIFT

_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE = 2, 3
_NETLINK_GENERIC = 16
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_ANSWER_SECONDS: Final = 5.0
_DATAGRAM: Final = 1 << 17
_NODE_WORDS: Final = 16


@dataclass(frozen=True, slots=True)
class ScanState:
    """The scanner's settings in force, and its counters since the module was loaded.

    Attributes:
        period_us: least time between two looks at a page.
        budget_ppm: CPU time of the scanner, in millionths of one CPU.
        hot_scans: a page seen in this many of the last 8 scans is hot.
        cold_scans: a hot page seen in no more than these is cold again.
        report_scans: a page that stays hot is reported in one scan of so many.
        flags: `ScanFlags`.
        hot_nodes, cold_nodes: nodes whose hot, and whose cooled, pages are reported.
        stats: struct tierd_stats by field name.
    """

    period_us: int
    budget_ppm: int
    hot_scans: int
    cold_scans: int
    report_scans: int
    flags: ScanFlags
    hot_nodes: frozenset[int]
    cold_nodes: frozenset[int]
    stats: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TargetState:
    """One registered target; `stats` is struct tierd_target_stats by field name."""

    target: int
    pid: int
    stats: Mapping[str, int]


def node_words(nodes: Sequence[int] | frozenset[int]) -> bytes:
    """The bitmap of node numbers as the module takes it."""
    words = [0] * _NODE_WORDS
    for node in nodes:
        words[node // 64] |= 1 << node % 64
    return struct.pack(f"={_NODE_WORDS}Q", *words)


def nodes_of(data: bytes) -> frozenset[int]:
    """Node numbers of such a bitmap."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    return frozenset(int(node) for node in np.flatnonzero(bits))


def pack_ranges(ranges: Sequence[tuple[int, int]]) -> bytes:
    """Ranges of 4 KiB page numbers as the module takes them."""
    return (np.array(ranges, np.uint64).reshape(-1, 2) << np.uint64(PAGE_SHIFT)).tobytes()


def _named(names: Sequence[str], data: bytes) -> dict[str, int]:
    """uint64 fields by name; a module of another version may tell fewer or more."""
    known = min(len(names), len(data) // 8)
    return dict(zip(names, struct.unpack_from(f"={known}Q", data), strict=False))


class Control:
    """A connection to the module; `open` makes one. Not for several threads at a time."""

    def __init__(self, connection: socket.socket, family: int, group: int) -> None:
        self._socket = connection
        self._family = family
        self._group = group
        self._sequence = 0

    @classmethod
    def open(cls) -> Control:
        """Find the module's family.

        Raises:
            UnavailableError: the module is not loaded, or netlink is refused.
        """
        try:
            connection = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_GENERIC
            )
            connection.bind((0, 0))
        except OSError as error:
            raise UnavailableError(f"generic netlink: {error.strerror}") from error
        connection.settimeout(_ANSWER_SECONDS)
        control = cls(connection, 0, 0)
        try:
            control._find_family()
        except BaseException:
            connection.close()
            raise
        return control

    def _find_family(self) -> None:
        from pyroute2.netlink import CTRL_CMD_GETFAMILY, GENL_ID_CTRL, ctrlmsg

        request = ctrlmsg()
        request["attrs"] = [["CTRL_ATTR_FAMILY_NAME", FAMILY]]
        try:
            (answer,) = self._ask(request, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, _ACK)
        except FileNotFoundError:
            raise _not_loaded() from None
        self._family = answer.get_attr("CTRL_ATTR_FAMILY_ID")
        for group in answer.get_attr("CTRL_ATTR_MCAST_GROUPS") or ():
            if group.get_attr("CTRL_ATTR_MCAST_GRP_NAME") == EVENTS:
                self._group = group.get_attr("CTRL_ATTR_MCAST_GRP_ID")

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket; the module forgets the targets it registered."""
        self._socket.close()

    def target_add(self, target: int, pid: int, ranges: Sequence[tuple[int, int]] = ()) -> None:
        """Scan process `pid` as `target`, in `ranges` of page numbers (none: everywhere).

        Raises:
            TargetGoneError: no such process, or it has no memory of its own.
            FileExistsError: the number is taken, or its address space is scanned already.
            UnavailableError: refused, or the module went away.
        """
        self._do(
            Command.TARGET_ADD,
            [
                ["TIERD_A_TARGET", target],
                ["TIERD_A_PID", pid],
                ["TIERD_A_RANGES", pack_ranges(ranges)],
            ],
        )

    def target_set(self, target: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Replace the ranges of a target; errors as `target_add`."""
        self._do(
            Command.TARGET_SET,
            [["TIERD_A_TARGET", target], ["TIERD_A_RANGES", pack_ranges(ranges)]],
        )

    def target_del(self, target: int) -> None:
        """Stop scanning a target; errors as `target_add`."""
        self._do(Command.TARGET_DEL, [["TIERD_A_TARGET", target]])

    def targets(self) -> list[TargetState]:
        """All registered targets, by number."""
        found = self._send(Command.TARGET_GET, [], _DUMP)
        return [
            TargetState(
                target=message.get_attr("TIERD_A_TARGET"),
                pid=message.get_attr("TIERD_A_PID"),
                stats=_named(TARGET_STATS, message.get_attr("TIERD_A_TARGET_STATS")),
            )
            for message in found
        ]

    def scan_set(
        self,
        *,
        period_us: int | None = None,
        budget_ppm: int | None = None,
        hot_scans: int | None = None,
        cold_scans: int | None = None,
        report_scans: int | None = None,
        flags: ScanFlags | None = None,
        hot_nodes: Sequence[int] | None = None,
        cold_nodes: Sequence[int] | None = None,
    ) -> None:
        """Change what is given and leave the rest.

        Raises:
            UnavailableError: the module refused a value, or went away.
        """
        given: list[list[Any]] = [
            ["TIERD_A_PERIOD_US", period_us],
            ["TIERD_A_BUDGET_PPM", budget_ppm],
            ["TIERD_A_HOT_SCANS", hot_scans],
            ["TIERD_A_COLD_SCANS", cold_scans],
            ["TIERD_A_REPORT_SCANS", report_scans],
            ["TIERD_A_FLAGS", None if flags is None else int(flags)],
            ["TIERD_A_HOT_NODES", None if hot_nodes is None else node_words(hot_nodes)],
            ["TIERD_A_COLD_NODES", None if cold_nodes is None else node_words(cold_nodes)],
        ]
        self._do(Command.SCAN_SET, [pair for pair in given if pair[1] is not None])

    def scan_get(self) -> ScanState:
        """The scanner's settings and counters."""
        (message,) = self._send(Command.SCAN_GET, [], _ACK)
        return ScanState(
            period_us=message.get_attr("TIERD_A_PERIOD_US"),
            budget_ppm=message.get_attr("TIERD_A_BUDGET_PPM"),
            hot_scans=message.get_attr("TIERD_A_HOT_SCANS"),
            cold_scans=message.get_attr("TIERD_A_COLD_SCANS"),
            report_scans=message.get_attr("TIERD_A_REPORT_SCANS"),
            flags=ScanFlags(message.get_attr("TIERD_A_FLAGS")),
            hot_nodes=nodes_of(message.get_attr("TIERD_A_HOT_NODES")),
            cold_nodes=nodes_of(message.get_attr("TIERD_A_COLD_NODES")),
            stats=_named(STATS, message.get_attr("TIERD_A_STATS")),
        )

    def subscribe(self) -> None:
        """Join the events' multicast group; use a connection of its own for it."""
        self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, self._group)
        self._socket.setblocking(False)

    def events(self) -> Iterator[tuple[Event, int | None]]:
        """Events that came since the last call, and the target of each; never blocks."""
        with contextlib.suppress(BlockingIOError):
            while True:
                for message in self._decode(self._socket.recv(_DATAGRAM)):
                    code = message.get_attr("TIERD_A_EVENT")
                    if code is not None:
                        yield Event(code), message.get_attr("TIERD_A_TARGET")

    def _do(self, command: Command, attributes: list[list[Any]]) -> None:
        self._send(command, attributes, _ACK)

    def _send(self, command: Command, attributes: list[list[Any]], flags: int) -> list[Any]:
        """Ask the module's family; kernel errors become tierd's."""
        request = _message_class()()
        request["attrs"] = attributes
        try:
            return self._ask(request, self._family, command, flags)
        except ProcessLookupError as error:
            raise TargetGoneError(f"{command.name.lower()}: no such process or target") from error
        except FileExistsError:
            raise
        except FileNotFoundError:
            raise _not_loaded() from None
        except OSError as error:
            raise UnavailableError(
                f"the tierd module refused {command.name.lower()}: {error.strerror or error}",
                hint="it needs CAP_NET_ADMIN and CAP_SYS_PTRACE",
            ) from error

    def _ask(self, request: Any, family: int, command: int, flags: int) -> list[Any]:
        """Send one request; its answers up to the acknowledgement or the end of the dump."""
        self._sequence += 1
        request["cmd"] = command
        request["version"] = VERSION
        request["header"]["type"] = family
        request["header"]["flags"] = _REQUEST | flags
        request["header"]["sequence_number"] = self._sequence
        request["header"]["pid"] = 0
        request.reset()
        request.encode()
        self._socket.sendto(bytes(request.data), (0, 0))
        found: list[Any] = []
        while True:
            data = self._socket.recv(_DATAGRAM)
            for kind, sequence, part in _messages(data):
                if sequence != self._sequence:
                    continue
                if kind in (_ERROR, _DONE):
                    # A dump that ends well carries a count of 0, an error a negative errno.
                    code = -struct.unpack_from("=i", part, 16)[0] if len(part) >= 20 else 0
                    if code > 0:
                        raise OSError(code, os.strerror(code))
                    return found
                found.append(self._decoded(part, type(request)))

    @staticmethod
    def _decoded(part: bytes, kind: Any) -> Any:
        message = kind(part)
        message.decode()
        return message

    def _decode(self, data: bytes) -> Iterator[Any]:
        for kind, _, part in _messages(data):
            if kind == self._family:
                yield self._decoded(part, _message_class())


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Type, sequence number and bytes of each netlink message of a datagram."""
    offset = 0
    while offset + 16 <= len(data):
        length, kind, _, sequence = struct.unpack_from("=IHHI", data, offset)
        if length < 16:
            return
        yield kind, sequence, data[offset : offset + length]
        offset += (length + 3) & ~3


def _message_class() -> Any:
    """pyroute2's coder of the family's messages; imported when first used (it is slow)."""
    global _coder
    if _coder is None:
        from pyroute2.netlink import genlmsg

        _coder = type("tierdmsg", (genlmsg,), {"nla_map": ATTRIBUTES})
    return _coder


_coder: Any = None


def _not_loaded() -> UnavailableError:
    return UnavailableError(
        f"the kernel has no generic netlink family {FAMILY!r}: {os.strerror(errno.ENOENT)}",
        hint="load the module: modprobe tierd (docs/kmod.md says how to build it)",
    )
