# SPDX-License-Identifier: Apache-2.0
"""`Family`: questions to the module's generic netlink family, and its events.

Owns: one netlink socket, messages and their headers.
Must not touch: attributes (`attributes`), what the commands mean (`netlink` and `neoprof` do).

`kmod/tierd.yaml` describes the family. The socket is a plain one, for pyroute2's own reads
through an event loop, which the control loop has not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

from tierd.errors import TargetGoneError, TierdError, UnavailableError
from tierd.kmod.attributes import Answer, encoded
from tierd.kmod.uapi import EVENTS, FAMILY, VERSION, Command

_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE = 2, 3
_NETLINK_GENERIC = 16
_SOL_NETLINK, _ADD_MEMBERSHIP, _CAP_ACK, _EXT_ACK = 270, 1, 10, 11
_ACK_TLVS, _TLV_MESSAGE = 0x200, 1
_ANSWER_SECONDS: Final = 5.0
_DATAGRAM: Final = 1 << 17
_RIGHTS: Final = "it needs CAP_NET_ADMIN and CAP_SYS_PTRACE"
# Of a netlink message, and of generic netlink behind it.
_HEADER: Final = struct.Struct("=IHHII")
_GENERIC: Final = struct.Struct("=BBH")
_BODY: Final = _HEADER.size + _GENERIC.size


class Family:
    """A connection to the module's family. Not for several threads at a time.

    Args:
        connection: a bound netlink socket with a timeout; closed by `close`.
        family: the family's number.
        group: the number of its multicast group of events.
    """

    def __init__(self, connection: socket.socket, family: int, group: int) -> None:
        self._socket = connection
        self._family = family
        self._group = group
        self._sequence = 0

    @classmethod
    def open(cls) -> Self:
        """Find the module's family.

        Raises:
            UnavailableError: the module is not loaded, or netlink is refused.
        """
        try:
            connection = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_GENERIC
            )
            connection.bind((0, 0))
            # The kernel's reasons come with its refusals, and without a copy of the request.
            connection.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
            connection.setsockopt(_SOL_NETLINK, _EXT_ACK, 1)
        except OSError as error:
            raise UnavailableError(f"generic netlink: {error.strerror}") from error
        connection.settimeout(_ANSWER_SECONDS)
        opened = cls(connection, 0, 0)
        try:
            opened._find_family()
        except BaseException:
            connection.close()
            raise
        return opened

    def _find_family(self) -> None:
        from pyroute2.netlink import CTRL_CMD_GETFAMILY, GENL_ID_CTRL, ctrlmsg

        request = ctrlmsg()
        request["attrs"] = [["CTRL_ATTR_FAMILY_NAME", FAMILY]]
        request["cmd"], request["version"] = CTRL_CMD_GETFAMILY, 1
        request.encode()
        try:
            answers = self._ask(bytes(request.data)[16:], GENL_ID_CTRL, _ACK)
        except FileNotFoundError:
            raise _not_loaded() from None
        with understood():
            (part,) = answers
            answer = ctrlmsg(part)
            answer.decode()
            self._family = answer.get_attr("CTRL_ATTR_FAMILY_ID")
            for group in answer.get_attr("CTRL_ATTR_MCAST_GROUPS") or ():
                if group.get_attr("CTRL_ATTR_MCAST_GRP_NAME") == EVENTS:
                    self._group = group.get_attr("CTRL_ATTR_MCAST_GRP_ID")

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket; the module forgets what was asked through it."""
        self._socket.close()

    def subscribe(self) -> None:
        """Join the events' multicast group; use a connection of its own for it."""
        self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, self._group)
        self._socket.setblocking(False)

    def event_messages(self) -> Iterator[Any]:
        """Messages of the group that came since the last call, decoded; never blocks."""
        with contextlib.suppress(BlockingIOError):
            while True:
                for kind, _, part in _messages(self._socket.recv(_DATAGRAM)):
                    if kind == self._family:
                        yield _answer(part)

    def ask(
        self, command: Command, attributes: Sequence[list[Any]] = (), *, dump: bool = False
    ) -> list[Any]:
        """Ask the module; its answers, decoded (`get_attr` gives an attribute or None).

        Args:
            attributes: pairs of an attribute's name and its value; those of None are left out.
            dump: True for commands that list things.

        Raises:
            TargetGoneError: no such process, target or card.
            FileExistsError: the number is taken.
            UnavailableError: the module refused, or is not there.
        """
        request = _GENERIC.pack(command, VERSION, 0) + encoded(attributes)
        try:
            found = self._ask(request, self._family, _DUMP if dump else _ACK)
        except ProcessLookupError as error:
            raise TargetGoneError(
                f"{command.name.lower()}: no such process, target or card"
            ) from error
        except FileExistsError:
            raise
        except FileNotFoundError:
            raise _not_loaded() from None
        except OSError as error:
            raise UnavailableError(
                f"the tierd module refused {command.name.lower()}: {error.strerror or error}",
                hint=_RIGHTS if isinstance(error, PermissionError) else "",
            ) from error
        return [_answer(part) for part in found]

    def _ask(self, request: bytes, family: int, flags: int) -> list[bytes]:
        """Send one request; its answers up to the acknowledgement or the end of the dump."""
        self._sequence += 1
        header = _HEADER.pack(
            _HEADER.size + len(request), family, _REQUEST | flags, self._sequence, 0
        )
        self._socket.sendto(header + request, (0, 0))
        found: list[bytes] = []
        while True:
            data = self._socket.recv(_DATAGRAM)
            for kind, sequence, part in _messages(data):
                if sequence != self._sequence:
                    continue
                if kind in (_ERROR, _DONE):
                    # A dump that ends well carries a count of 0, an error a negative errno.
                    code = -struct.unpack_from("=i", part, 16)[0] if len(part) >= 20 else 0
                    if code > 0:
                        with understood():
                            reason = _reason(part) or os.strerror(code)
                        raise OSError(code, reason)
                    return found
                found.append(part)


def _answer(part: bytes) -> Answer:
    with understood():
        return Answer(part[_BODY:])


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """For reading an answer: one that is not as `kmod/tierd.yaml` says is an UnavailableError."""
    try:
        yield
    except (OSError, TierdError):
        raise
    except Exception as error:  # whatever is made of what was not expected
        raise UnavailableError(
            f"the tierd module's answer cannot be read: {error!r}",
            hint="the module may be of another version: tierd doctor",
        ) from error


def named(names: Sequence[str], data: bytes) -> dict[str, int]:
    """uint64 fields by name; a module of another version may tell fewer or more."""
    known = min(len(names), len(data) // 8)
    return dict(zip(names, struct.unpack_from(f"={known}Q", data), strict=False))


def _reason(part: bytes) -> str:
    """The text of an extended acknowledgement, empty without one."""
    kind, flags = struct.unpack_from("=HH", part, 4)
    offset = 36  # two headers and the error number between them
    while kind == _ERROR and flags & _ACK_TLVS and offset + 4 <= len(part):
        length, attribute = struct.unpack_from("=HH", part, offset)
        if length < 4:
            break
        if attribute == _TLV_MESSAGE:
            return part[offset + 4 : offset + length].rstrip(b"\0").decode("utf-8", "replace")
        offset += (length + 3) & ~3
    return ""


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Type, sequence number and bytes of each netlink message of a datagram."""
    offset = 0
    while offset + 16 <= len(data):
        length, kind, _, sequence = struct.unpack_from("=IHHI", data, offset)
        if length < 16:
            return
        yield kind, sequence, data[offset : offset + length]
        offset += (length + 3) & ~3


def _not_loaded() -> UnavailableError:
    return UnavailableError(
        f"the kernel has no generic netlink family {FAMILY!r}: {os.strerror(errno.ENOENT)}",
        hint="load the module: modprobe tierd (docs/kmod.md says how to build it)",
    )
