# SPDX-License-Identifier: Apache-2.0
"""Process starts, execs and ends from the kernel's process events connector.

Source: Documentation/driver-api/connector.rst, include/uapi/linux/cn_proc.h.
It needs CONFIG_PROC_EVENTS and CAP_NET_ADMIN, and the kernel ignores listeners
outside the initial pid and user namespaces without a word, so `open` waits for the
kernel's acknowledgement and says so.

Messages are read and written here, by fixed offsets: a host may start thousands of
processes a second, and a general decoder costs thirty times as much for each event.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import select
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tierd.core import bounds, linux
from tierd.core.errors import UnavailableError

_HEADER: Final = struct.Struct("=IHHIIIIIIHH")
"""struct nlmsghdr (length, type, flags, sequence, port) and struct cn_msg (idx, val, sequence,
ack, length, flags), before struct proc_event."""
_EVENT: Final = struct.Struct("=IIQ")
"""struct proc_event up to its data: what, CPU, time."""
_IDS: Final = struct.Struct("=iiii")
"""Event data: pid and tgid, and of a fork those of the child after them."""
_DATA: Final = _HEADER.size + _EVENT.size
_NONE, _FORK, _EXEC, _UID, _EXIT = 0, 1, 2, 4, 0x80000000
_LISTEN, _IGNORE = 1, 2
"""enum proc_cn_mcast_op."""


@dataclass(slots=True)
class ProcessEvents:
    """What happened since the last drain, as process ids (threads are left out).

    Attributes:
        started: forked.
        executed: executed a program: its address space is new.
        changed: changed its user.
        ended: exited.
        lost: some events are missing: read all of /proc.
    """

    started: set[int] = field(default_factory=set)
    executed: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    lost: bool = False

    def __bool__(self) -> bool:
        """Whether anything happened."""
        return bool(self.lost or self.started or self.executed or self.changed or self.ended)

    def add(self, other: ProcessEvents) -> None:
        """Append later events."""
        self.started |= other.started
        self.executed |= other.executed
        self.changed |= other.changed
        self.ended |= other.ended
        self.lost |= other.lost


class ProcessEventSocket:
    """Listens to process events.

    Attributes:
        overflows: times the kernel or `drain` dropped events.
        received: events decoded.
    """

    def __init__(self, connection: socket.socket) -> None:
        """`open` makes one."""
        self._socket = connection
        self.overflows = 0
        self.received = 0

    @classmethod
    def open(cls) -> ProcessEventSocket:
        """Start listening.

        Raises:
            UnavailableError: the kernel or our privileges do not allow it.
        """
        flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        try:
            connection = socket.socket(socket.AF_NETLINK, flags, linux.NETLINK_CONNECTOR)
        except OSError as error:
            raise _refused(error) from None
        events = cls(connection)
        try:
            events._listen()
        except OSError as error:
            connection.close()
            raise _refused(error) from None
        except BaseException:
            connection.close()
            raise
        return events

    def drain(self) -> ProcessEvents:
        """All events that are there now; never blocks."""
        found = ProcessEvents()
        decoded = 0
        while True:
            try:
                data, sender = self._socket.recvfrom(linux.DATAGRAM_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                found.lost = True
                continue
            if sender[0] != 0:
                continue  # only the kernel is number 0
            if decoded >= bounds.EVENTS:
                found.lost = True
                continue  # empty the socket without paying for decoding
            try:
                decoded += _note_all(data, found)
            except (struct.error, ValueError):
                found.lost = True
        self.received += decoded
        self.overflows += found.lost
        return found

    def close(self) -> None:
        """Stop listening."""
        if self._socket.fileno() >= 0:
            with contextlib.suppress(OSError):
                self._control(_IGNORE)
            self._socket.close()

    def _listen(self) -> None:
        try:
            self._socket.setsockopt(
                socket.SOL_SOCKET, linux.SO_RCVBUFFORCE, bounds.EVENT_BUFFER_BYTES
            )
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, bounds.EVENT_BUFFER_BYTES)
        self._socket.bind((0, linux.CN_PROC))
        number = secrets.randbits(31)
        self._control(_LISTEN, number)
        # Every kernel since 2.6.26 answers with PROC_EVENT_NONE and an errno.
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        end = time.monotonic() + bounds.EVENT_ANSWER_S
        while poller.poll(max(0.0, end - time.monotonic()) * 1000):
            data = self._socket.recv(linux.DATAGRAM_BYTES)
            for offset in _messages(data):
                # Answers to other listeners reach us too, with other numbers; only `ack`
                # comes back, one higher (cn_proc_ack in drivers/connector/cn_proc.c).
                ack = _HEADER.unpack_from(data, offset)[8]
                what = _EVENT.unpack_from(data, offset + _HEADER.size)[0]
                if what == _NONE and ack == number + 1:
                    code = _answer_errno(data, offset)
                    if code:
                        raise OSError(code, errno.errorcode.get(code, str(code)))
                    return
        raise UnavailableError(
            "the kernel did not answer a request for process events",
            hint="it has no CONFIG_PROC_EVENTS, or tierd runs in a pid or user namespace; "
            "processes are found by reading /proc instead",
        )

    def _control(self, action: int, number: int = 0) -> None:
        size = _HEADER.size + 4
        header = (size, linux.NLMSG_DONE, 0, 0, 0, linux.CN_PROC, linux.CN_PROC, 0, number, 4, 0)
        self._socket.sendto(_HEADER.pack(*header) + struct.pack("=I", action), (0, 0))


def _messages(data: bytes) -> Iterator[int]:
    """Offsets of the netlink messages in a datagram. Raises ValueError: it is cut off."""
    offset = 0
    while offset < len(data):
        (length,) = struct.unpack_from("=I", data, offset)
        if length < _DATA or offset + length > len(data):
            raise ValueError(f"a message of {length} bytes at {offset} of {len(data)}")
        yield offset
        offset += (length + 3) & ~3


def _answer_errno(data: bytes, offset: int = 0) -> int:
    """The errno in a PROC_EVENT_NONE: event_data.ack.err."""
    place = offset + _DATA
    return int(struct.unpack_from("=I", data, place)[0]) if len(data) >= place + 4 else 0


def _note_all(data: bytes, found: ProcessEvents) -> int:
    """Take in the events of a datagram; their number."""
    count = 0
    for offset in _messages(data):
        count += 1
        (what,) = struct.unpack_from("=I", data, offset + _HEADER.size)
        if what not in (_FORK, _EXEC, _UID, _EXIT):
            continue
        pid, tgid, child, child_tgid = _IDS.unpack_from(data, offset + _DATA)
        if what == _FORK:
            if child == child_tgid:
                found.started.add(child_tgid)
        elif what == _EXEC:
            found.executed.add(tgid)
        elif what == _UID:
            found.changed.add(tgid)
        elif pid == tgid:
            found.ended.add(tgid)
    return count


def _refused(error: OSError) -> UnavailableError:
    return UnavailableError(
        f"cannot listen to process events: {error.strerror}",
        hint="it needs CAP_NET_ADMIN and CONFIG_PROC_EVENTS; "
        "processes are found by reading /proc instead",
    )
