# SPDX-License-Identifier: Apache-2.0
"""Process starts, execs and ends from the kernel's process events connector.

Owns: the netlink socket of the connector (CN_IDX_PROC), and what was lost on it.
Must not touch: /proc; what the events mean is the registry's business.

Source: Documentation/driver-api/connector.rst, include/uapi/linux/cn_proc.h.
Messages are coded by pyroute2. It needs CONFIG_PROC_EVENTS and CAP_NET_ADMIN,
and the kernel ignores listeners outside the initial pid and user namespaces
without a word, so `open` waits for the kernel's acknowledgement and says so.

The socket is a plain one and not pyroute2's own: that one reads through an
event loop, blocks on an acknowledgement that may never come, hides why a bind
was refused, and fails on process names that are not UTF-8.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import select
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any, Final

from tierd.errors import UnavailableError

RECEIVE_BYTES: Final = 4 << 20
"""Socket buffer: about 10,000 events between two drains."""
MOST_EVENTS: Final = 16384
"""Events decoded in one drain; more counts as lost, and /proc is read instead."""
_ANSWER_SECONDS: Final = 1.0
_SO_RCVBUFFORCE: Final = 33
_DATAGRAM: Final = 65536
_HEADER_BYTES: Final = 36
"""struct nlmsghdr and struct cn_msg, before struct proc_event."""


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

    def add(self, other: ProcessEvents) -> None:
        """Append later events."""
        self.started |= other.started
        self.executed |= other.executed
        self.changed |= other.changed
        self.ended |= other.ended
        self.lost |= other.lost


class ProcessEventSocket:
    """Listens to process events; `fileno` is readable when there are some.

    Attributes:
        overflows: times the kernel or `drain` dropped events.
        received: events decoded.
    """

    def __init__(self, connection: socket.socket) -> None:
        """`open` makes one."""
        # Imported here: it costs 0.1 s that a command without events need not pay.
        from pyroute2.netlink.connector import cn_proc

        self._cn: Any = cn_proc
        self._marshal: Any = cn_proc.ProcEventMarshal()
        # Names of processes are theirs to choose; we neither need nor decode them.
        self._marshal.msg_map.pop(cn_proc.PROC_EVENT_COMM, None)
        self._socket = connection
        self.overflows = 0
        self.received = 0

    @classmethod
    def open(cls) -> ProcessEventSocket:
        """Start listening.

        Raises:
            UnavailableError: the kernel or our privileges do not allow it.
        """
        from pyroute2.netlink import NETLINK_CONNECTOR

        flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        try:
            connection = socket.socket(socket.AF_NETLINK, flags, NETLINK_CONNECTOR)
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

    def fileno(self) -> int:
        """The descriptor to poll for reading."""
        return self._socket.fileno()

    def drain(self) -> ProcessEvents:
        """All events that are there now; never blocks."""
        found = ProcessEvents()
        decoded = 0
        while True:
            try:
                data, sender = self._socket.recvfrom(_DATAGRAM)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                found.lost = True
                continue
            if sender[0] != 0:
                continue  # only the kernel is number 0
            if decoded >= MOST_EVENTS:
                found.lost = True
                continue  # empty the socket without paying for decoding
            try:
                for message in self._marshal.parse(data):
                    decoded += 1
                    _note(message, found)
            except (struct.error, ValueError, KeyError, TypeError):
                found.lost = True
        self.received += decoded
        self.overflows += found.lost
        return found

    def close(self) -> None:
        """Stop listening."""
        if self._socket.fileno() >= 0:
            with contextlib.suppress(OSError):
                self._control(self._cn.PROC_CN_MCAST_IGNORE)
            self._socket.close()

    def _listen(self) -> None:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BYTES)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self._socket.bind((0, self._cn.CN_IDX_PROC))
        number = secrets.randbits(31)
        self._control(self._cn.PROC_CN_MCAST_LISTEN, number)
        # Every kernel since 2.6.26 answers with PROC_EVENT_NONE and an errno.
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        end = time.monotonic() + _ANSWER_SECONDS
        while poller.poll(max(0.0, end - time.monotonic()) * 1000):
            data = self._socket.recv(_DATAGRAM)
            for message in self._marshal.parse(data):
                # Answers to other listeners reach us too, with other numbers; only `ack`
                # comes back, one higher (cn_proc_ack in drivers/connector/cn_proc.c).
                if message.get("what") == self._cn.PROC_EVENT_NONE and message["ack"] == number + 1:
                    code = _answer_errno(data)
                    if code:
                        raise OSError(code, errno.errorcode.get(code, str(code)))
                    return
        raise UnavailableError(
            "the kernel did not answer a request for process events",
            hint="it has no CONFIG_PROC_EVENTS, or tierd runs in a pid or user namespace; "
            "processes are found by reading /proc instead",
        )

    def _control(self, action: int, number: int = 0) -> None:
        message = self._cn.proc_event_control()
        message["action"] = action
        message["idx"] = self._cn.CN_IDX_PROC
        message["val"] = self._cn.CN_VAL_PROC
        message["ack"] = number
        message["len"] = 4  # bytes of the action
        message["header"]["type"] = self._cn.NLMSG_DONE
        message.reset()
        message.encode()
        self._socket.sendto(bytes(message.data), (0, 0))


def _answer_errno(data: bytes) -> int:
    """The errno in a PROC_EVENT_NONE: event_data.ack.err, after what, cpu, timestamp_ns."""
    offset = _HEADER_BYTES + 16
    return int(struct.unpack_from("=I", data, offset)[0]) if len(data) >= offset + 4 else 0


def _note(message: Any, found: ProcessEvents) -> None:
    event = message.get("event")
    if event == "PROC_EVENT_FORK":
        if message["child_pid"] == message["child_tgid"]:
            found.started.add(message["child_tgid"])
    elif event == "PROC_EVENT_EXEC":
        found.executed.add(message["process_tgid"])
    elif event == "PROC_EVENT_UID":
        found.changed.add(message["process_tgid"])
    elif event == "PROC_EVENT_EXIT" and message["process_pid"] == message["process_tgid"]:
        found.ended.add(message["process_tgid"])


def _refused(error: OSError) -> UnavailableError:
    return UnavailableError(
        f"cannot listen to process events: {error.strerror}",
        hint="it needs CAP_NET_ADMIN and CONFIG_PROC_EVENTS; "
        "processes are found by reading /proc instead",
    )
