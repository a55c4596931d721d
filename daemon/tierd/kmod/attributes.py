# SPDX-License-Identifier: Apache-2.0
"""Netlink attributes of the module's family: names and values to bytes, and back.

Owns: the coding of the flat attributes that `kmod/tierd.yaml` has.
Must not touch: sockets and message headers (`genl`).

The loop asks the module several times a second. A general coder, which walks its classes for
each attribute of each message, took more of the loop's time than the decisions did.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tierd.kmod.uapi import ATTRIBUTES

_HEADER: Final = struct.Struct("=HH")
_TYPE_MASK: Final = 0x3FFF
_NUMBERS: Final = {
    "uint8": struct.Struct("=B"),
    "uint16": struct.Struct("=H"),
    "uint32": struct.Struct("=I"),
}
_KIND: Final[Mapping[str, tuple[int, str]]] = {
    name: (number, kind) for number, (name, kind) in enumerate(ATTRIBUTES)
}


class Answer:
    """The attributes of one message.

    Args:
        data: bytes of the attributes, one after the other.

    Raises:
        ValueError: an attribute reaches beyond the end, or is too short for its type.
    """

    __slots__ = ("_values",)

    def __init__(self, data: bytes) -> None:
        values: dict[str, Any] = {}
        at, end = 0, len(data)
        while at + 4 <= end:
            length, number = _HEADER.unpack_from(data, at)
            if length < 4 or at + length > end:
                raise ValueError(f"an attribute of {length} bytes with {end - at} left")
            number &= _TYPE_MASK
            if number < len(ATTRIBUTES):
                name, kind = ATTRIBUTES[number]
                values.setdefault(name, _value(kind, data[at + 4 : at + length]))
            at += (length + 3) & ~3
        self._values = values

    def get_attr(self, name: str) -> Any:
        """An attribute's value; None where the message has none."""
        return self._values.get(name)


def encoded(attributes: Iterable[tuple[str, Any] | list[Any]]) -> bytes:
    """Attributes as bytes; those whose value is None are left out.

    Raises:
        struct.error: a number is out of its range.
    """
    parts = []
    for name, value in attributes:
        if value is None:
            continue
        number, kind = _KIND[name]
        coder = _NUMBERS.get(kind)
        if coder is not None:
            data = coder.pack(value)
        elif kind == "asciiz":
            data = value.encode() + b"\0"
        else:
            data = bytes(value)
        parts += [_HEADER.pack(4 + len(data), number), data, bytes(-len(data) % 4)]
    return b"".join(parts)


def _value(kind: str, data: bytes) -> Any:
    coder = _NUMBERS.get(kind)
    if coder is not None:
        if len(data) < coder.size:
            raise ValueError(f"{len(data)} bytes are no {kind}")
        return coder.unpack_from(data)[0]
    return data.partition(b"\0")[0].decode() if kind == "asciiz" else data
