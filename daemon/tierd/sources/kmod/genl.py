# SPDX-License-Identifier: Apache-2.0
"""`Family`: questions to the module's generic netlink family.

`kmod/tierd.yaml` describes the family. Messages are coded by pyroute2; the socket is a
plain one, for pyroute2's own reads through an event loop, which the control loop has not.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib.util
import logging
import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

from tierd.core import bounds
from tierd.core.errors import TargetGoneError, TierdError, UnavailableError
from tierd.sources.kmod.uapi import ATTRIBUTES, FAMILY, VERSION, Command


class _Netlink:
    """Numbers of linux/netlink.h."""

    REQUEST, ACK, DUMP = 0x1, 0x4, 0x300
    ERROR, DONE = 2, 3
    GENERIC: Final = 16
    SOL_NETLINK, CAP_ACK, EXT_ACK = 270, 10, 11
    ACK_TLVS, TLV_MESSAGE = 0x200, 1
    SEQUENCE_AT: Final = 8
    """In struct nlmsghdr: length, type, flags, sequence number."""
    VALUE_AT: Final = 4
    """In struct nlattr: length, type."""
    DATAGRAM: Final = 1 << 17
    """Room for the largest answer."""


_FORMS: Final = {"uint8": "=B", "uint16": "=H", "uint32": "=I"}
_INTEGERS: Final = {
    name: struct.Struct(_FORMS[kind]) for name, kind in ATTRIBUTES if kind in _FORMS
}
_RIGHTS: Final = "it needs CAP_NET_ADMIN and CAP_SYS_PTRACE"
_OTHER: Final = "the module may be of another version: tierd doctor"
# It logs a traceback for each attribute that it cannot decode; what it means is told here.
logging.getLogger("pyroute2.netlink").addHandler(logging.NullHandler())
logging.getLogger("pyroute2.netlink").propagate = False


class Family:
    """A connection to the module's family. Not for several threads at a time.

    Args:
        connection: a bound netlink socket with a timeout; closed by `close`.
    """

    def __init__(self, connection: socket.socket, family: int) -> None:
        self._socket = connection
        self._family = family
        self._sequence = 0
        # The scanner's answers about targets change only when it has looked once more.
        self._decoded = functools.lru_cache(16)(_decoded)

    @classmethod
    def open(cls) -> Self:
        """Find the module's family.

        Raises:
            UnavailableError: the module is not loaded, or netlink is refused.
        """
        try:
            connection = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _Netlink.GENERIC
            )
            connection.bind((0, 0))
            # The kernel's reasons come with its refusals, and without a copy of the request.
            connection.setsockopt(_Netlink.SOL_NETLINK, _Netlink.CAP_ACK, 1)
            connection.setsockopt(_Netlink.SOL_NETLINK, _Netlink.EXT_ACK, 1)
        except OSError as error:
            raise UnavailableError(f"generic netlink: {error.strerror}") from error
        connection.settimeout(bounds.MODULE_ANSWER_S)
        opened = cls(connection, 0)
        try:
            opened._find_family()
        except BaseException:
            connection.close()
            raise
        return opened

    def _find_family(self) -> None:
        netlink = codec()
        asked = (("CTRL_ATTR_FAMILY_NAME", FAMILY),)
        number, command = netlink.GENL_ID_CTRL, netlink.CTRL_CMD_GETFAMILY
        try:
            answers = self._ask(netlink.ctrlmsg, number, command, _Netlink.ACK, asked)
        except FileNotFoundError:
            raise _not_loaded() from None
        with understood():
            (answer,) = answers
            self._family = answer.get_attr("CTRL_ATTR_FAMILY_ID")

    def close(self) -> None:
        """Close the socket; the module forgets what was asked through it."""
        self._socket.close()

    def ask(
        self, command: Command, attributes: Sequence[list[Any]] = (), *, dump: bool = False
    ) -> list[Answer]:
        """Ask the module; its answers.

        Args:
            attributes: pairs of an attribute's name and its value; those of None are left out.

        Raises:
            TargetGoneError: no such process, target or card.
            FileExistsError: the number is taken.
            UnavailableError: the module refused, or is not there.
        """
        given = tuple((name, value) for name, value in attributes if value is not None)
        try:
            return self._ask(
                _message_class(),
                self._family,
                command,
                _Netlink.DUMP if dump else _Netlink.ACK,
                given,
            )
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
                hint=_hint(error),
            ) from error

    def _ask(
        self,
        coder: Any,
        family: int,
        command: int,
        flags: int,
        attributes: tuple[tuple[str, Any], ...],
    ) -> list[Answer]:
        """Send one request; its answers up to the acknowledgement or the end of the dump."""
        self._sequence += 1
        shape = tuple((name, 0 if name in _INTEGERS else value) for name, value in attributes)
        encoded, places = _encoded(coder, family, command, flags, shape)
        request = bytearray(encoded)
        struct.pack_into("=I", request, _Netlink.SEQUENCE_AT, self._sequence)
        for (name, value), place in zip(attributes, places, strict=True):
            if name in _INTEGERS:
                _INTEGERS[name].pack_into(request, place, value)
        self._socket.sendto(bytes(request), (0, 0))
        found: list[Answer] = []
        while True:
            data = self._socket.recv(_Netlink.DATAGRAM)
            for kind, sequence, part in _messages(data):
                if sequence != self._sequence:
                    continue
                if kind in (_Netlink.ERROR, _Netlink.DONE):
                    # A dump that ends well carries a count of 0, an error a negative errno.
                    code = -struct.unpack_from("=i", part, 16)[0] if len(part) >= 20 else 0
                    if code > 0:
                        with understood():
                            reason = _reason(part) or os.strerror(code)
                        raise OSError(code, reason)
                    return found
                found.append(self._decoded(_unnumbered(part), coder))


class Answer:
    """The attributes of a message, found by name, each decoded when it is asked for."""

    __slots__ = ("_message", "_slots")

    def __init__(self, message: Any) -> None:
        self._message = message  # its attributes hold it but weakly
        self._slots = {slot.name: slot for slot in reversed(message["attrs"])}

    def get_attr(self, name: str) -> Any:
        """The first attribute of this name, None if there is none."""
        slot = self._slots.get(name)
        return None if slot is None else slot.get_value()


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """For reading an answer: one that is not as `kmod/tierd.yaml` says is an UnavailableError."""
    try:
        yield
    except (OSError, TierdError):
        raise
    except Exception as error:  # pyroute2 has no one base class for what it cannot decode
        raise UnavailableError(
            f"the tierd module's answer cannot be read: {error!r}",
            hint=_OTHER,
        ) from error


def named(names: Sequence[str], data: bytes) -> dict[str, int]:
    """uint64 fields by name; a module of another version may tell fewer or more."""
    known = min(len(names), len(data) // 8)
    return dict(zip(names, struct.unpack_from(f"={known}Q", data), strict=False))


# Most requests are asked again and again, maybe with other numbers, and coding one costs as much
# as all the rest of the question.
@functools.lru_cache(64)
def _encoded(
    coder: Any,
    family: int,
    command: int,
    flags: int,
    attributes: tuple[tuple[str, Any], ...],
) -> tuple[bytes, tuple[int, ...]]:
    """A request with the sequence number 0, and where the value of each attribute is in it."""
    request = coder()
    request["attrs"] = [list(pair) for pair in attributes]
    request["cmd"] = command
    request["version"] = VERSION
    request["header"].update(type=family, flags=_Netlink.REQUEST | flags, sequence_number=0, pid=0)
    request.encode()
    places = tuple(slot.nla.offset + _Netlink.VALUE_AT for slot in request["attrs"])
    return bytes(request.data), places


def _unnumbered(part: bytes) -> bytes:
    """A message without its sequence number and port, which make equal ones differ."""
    return part[: _Netlink.SEQUENCE_AT] + bytes(8) + part[_Netlink.SEQUENCE_AT + 8 :]


def _decoded(part: bytes, coder: Any) -> Answer:
    message = coder(part)
    with understood():
        message.decode()
        return Answer(message)


def _reason(part: bytes) -> str:
    """The text of an extended acknowledgement, empty without one."""
    kind, flags = struct.unpack_from("=HH", part, 4)
    offset = 36  # two headers and the error number between them
    while kind == _Netlink.ERROR and flags & _Netlink.ACK_TLVS and offset + 4 <= len(part):
        length, attribute = struct.unpack_from("=HH", part, offset)
        if length < 4:
            break
        if attribute == _Netlink.TLV_MESSAGE:
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


@functools.cache
def codec() -> Any:
    """The module pyroute2.netlink, without all else of pyroute2; not for two threads at a time.

    The package itself imports whatever it has: 260 modules more, twelve times as slow. So a package
    that is not executed stands in its place for as long as the module is imported. Who imports
    pyroute2 afterwards finds no attribute `netlink` in it, and imports names from the module.
    """
    package, module = "pyroute2", "pyroute2.netlink"
    if package not in sys.modules and (spec := importlib.util.find_spec(package)) is not None:
        stand_in = sys.modules[package] = importlib.util.module_from_spec(spec)
        try:
            return importlib.import_module(module)
        finally:
            if sys.modules.get(package) is stand_in:
                del sys.modules[package]
    return importlib.import_module(module)


@functools.cache
def _message_class() -> Any:
    """pyroute2's coder of the family's messages."""
    return type("tierdmsg", (codec().genlmsg,), {"nla_map": ATTRIBUTES})


def _hint(refusal: OSError) -> str:
    """What to do; a module that does not know a command, an attribute or a flag says EINVAL."""
    if isinstance(refusal, PermissionError):
        return _RIGHTS
    return _OTHER if refusal.errno in (errno.EINVAL, errno.EOPNOTSUPP) else ""


def _not_loaded() -> UnavailableError:
    return UnavailableError(
        f"the kernel has no generic netlink family {FAMILY!r}: {os.strerror(errno.ENOENT)}",
        hint="load the module: modprobe tierd (docs/reference/kmod.md says how to build it)",
    )
