# SPDX-License-Identifier: Apache-2.0
"""Fields of a recording's frames: a table of them says how a value is written and read.

Arrays and lists take at least one byte an item, so that the length of a frame bounds what a reader
allocates for it. They are stored with the first bytes of all items, then the second, and so on,
which zlib likes; page keys as differences.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd.core.pagekey import U64Array
from tierd.observe.recording import RecordingError

MAX_TEXT: Final = 1 << 20
MAX_DEPTH: Final = 6
"""Lists in lists in a value that is stored as JSON."""
MISSHAPEN: Final = (
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What can be raised by taking apart a value of another shape."""


class Source:
    """The bytes of a frame, taken from the front; `rows`: page keys in the last list of them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.rows = 0

    def take(self, size: int) -> bytes:
        """The next bytes. Raises RecordingError: there are fewer."""
        end = self._at + size
        if end > len(self._data):
            raise RecordingError(f"a frame of {len(self._data)} bytes ends inside a value")
        part = self._data[self._at : end]
        self._at = end
        return part

    @property
    def left(self) -> int:
        """Bytes that nobody took."""
        return len(self._data) - self._at


@dataclass(frozen=True, slots=True)
class Field:
    """How one kind of value is written and read.

    Attributes:
        take: takes a value off, or raises a `RecordingError`.
    """

    put: Callable[[list[bytes], Any], None]
    take: Callable[[Source], Any]

    def encode(self, value: Any) -> bytes:
        """The bytes of a frame that holds this value alone."""
        out: list[bytes] = []
        self.put(out, value)
        return b"".join(out)

    def decode(self, data: bytes) -> Any:
        """The value of a frame.

        Raises:
            RecordingError: the bytes are not those of exactly one value.
        """
        source = Source(data)
        value = self.take(source)
        if source.left:
            raise RecordingError(f"{source.left} bytes too many in a frame")
        return value


def number(form: str, least: float | None = None, most: float | None = None) -> Field:
    """A number in a form of `struct`, little-endian, from `least` to `most`."""
    packed = struct.Struct("<" + form)

    def put(out: list[bytes], value: float) -> None:
        out.append(packed.pack(value))

    def take(source: Source) -> Any:
        value = packed.unpack(source.take(packed.size))[0]
        # Not a number is not within any bounds.
        if (least is not None and not value >= least) or (most is not None and not value <= most):
            raise RecordingError(f"{value} is not between {least} and {most}")
        return value

    return Field(put, take)


COUNT: Final = number("I")
"""How many items follow."""


def _put_text(out: list[bytes], value: str) -> None:
    data = value.encode("utf-8", "backslashreplace")
    COUNT.put(out, len(data))
    out.append(data)


def _take_text(source: Source) -> str:
    size = COUNT.take(source)
    if size > MAX_TEXT:
        raise RecordingError(f"a text of {size} bytes")
    try:
        return source.take(size).decode()
    except UnicodeDecodeError as error:
        raise RecordingError(f"a text is not UTF-8: {error.reason}") from None


TEXT: Final = Field(_put_text, _take_text)
"""A text in UTF-8; what cannot be encoded is escaped."""


def column(kind: Any, least: float | None = None, most: float | None = None) -> Field:
    """An array with as many items as the page keys before it."""
    dtype = np.dtype(kind)
    stored = dtype.newbyteorder("<")

    def put(out: list[bytes], value: npt.NDArray[Any]) -> None:
        plain = np.ascontiguousarray(value, stored)
        out.append(plain.view(np.uint8).reshape(len(plain), plain.itemsize).T.tobytes())

    def take(source: Source) -> Any:
        planes = np.frombuffer(source.take(source.rows * dtype.itemsize), np.uint8)
        plain = np.ascontiguousarray(planes.reshape(dtype.itemsize, source.rows).T)
        value = plain.reshape(-1).view(stored).astype(dtype, copy=False)
        if (least is not None and not np.all(value >= least)) or (
            most is not None and not np.all(value <= most)
        ):
            raise RecordingError(f"an item is not between {least} and {most}")
        return value

    return Field(put, take)


def array(kind: Any, least: float | None = None, most: float | None = None) -> Field:
    """An array with a count of its own."""
    items = column(kind, least, most)

    def put(out: list[bytes], value: npt.NDArray[Any]) -> None:
        COUNT.put(out, len(value))
        items.put(out, value)

    def take(source: Source) -> Any:
        source.rows = COUNT.take(source)
        return items.take(source)

    return Field(put, take)


_DIFFERENCES: Final = array(np.uint64)


def _put_pages(out: list[bytes], value: U64Array) -> None:
    delta = np.diff(value, prepend=np.uint64(0)).view(np.int64)
    _DIFFERENCES.put(out, delta << 1 ^ delta >> 63)  # (small either way: zigzag)


def _take_pages(source: Source) -> U64Array:
    zigzag = _DIFFERENCES.take(source)
    return np.cumsum(zigzag >> 1 ^ -(zigzag & 1), dtype=np.uint64)


PAGES: Final = Field(_put_pages, _take_pages)
"""Page keys, uint64[n]."""


def optional(field: Field) -> Field:
    """A value, or None."""

    def put(out: list[bytes], value: Any) -> None:
        out.append(b"\0" if value is None else b"\1")
        if value is not None:
            field.put(out, value)

    def take(source: Source) -> Any:
        return None if source.take(1) == b"\0" else field.take(source)

    return Field(put, take)


def many(field: Field) -> Field:
    """Any number of values of one kind; a tuple when it is read."""

    def put(out: list[bytes], value: Any) -> None:
        COUNT.put(out, len(value))
        for each in value:
            field.put(out, each)

    def take(source: Source) -> tuple[Any, ...]:
        return tuple(field.take(source) for _ in range(COUNT.take(source)))

    return Field(put, take)


def table(key: Field, value: Field) -> Field:
    """A dictionary with one kind of key and one kind of value."""

    return converted(many(row(key, value)), lambda mapping: mapping.items(), dict)


def record(
    make: Callable[..., Any], check: Callable[[Any], str] | None = None, /, **fields: Field
) -> Field:
    """Named fields in their order.

    Args:
        make: makes the value of its fields; `dict` for a plain dictionary.
        check: returns what is wrong with a value that was read, "" for nothing.
    """

    def put(out: list[bytes], value: Any) -> None:
        plain = isinstance(value, dict)
        for name, field in fields.items():
            field.put(out, value[name] if plain else getattr(value, name))

    def take(source: Source) -> Any:
        values = {}
        for name, field in fields.items():
            try:
                values[name] = field.take(source)
            except RecordingError as error:
                raise RecordingError(f"{name}: {error}") from None
        value = make(**values)
        if check is not None and (wrong := check(value)):
            raise RecordingError(wrong)
        return value

    return Field(put, take)


def row(*fields: Field) -> Field:
    """Fields in their order, as a tuple."""

    def put(out: list[bytes], values: Any) -> None:
        for field, value in zip(fields, values, strict=True):
            field.put(out, value)

    return Field(put, lambda source: tuple(field.take(source) for field in fields))


def named(make: Callable[[str, Any], Any], kinds: Mapping[str, Field]) -> Field:
    """A pair of one of some names and its value; the number of the name goes before the value."""
    names = list(kinds)
    numbers = {name: number for number, name in enumerate(names)}

    def put(out: list[bytes], pair: Any) -> None:
        name, value = pair
        out.append(bytes([numbers[name]]))
        kinds[name].put(out, value)

    def take(source: Source) -> Any:
        number = source.take(1)[0]
        if number >= len(names):
            raise RecordingError(f"a value of unknown kind {number}")
        return make(names[number], kinds[names[number]].take(source))

    return Field(put, take)


def converted(field: Field, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> Field:
    """A value that is stored as another one."""

    def put(out: list[bytes], value: Any) -> None:
        field.put(out, pack(value))

    def take(source: Source) -> Any:
        value = field.take(source)
        try:
            return unpack(value)
        except MISSHAPEN as error:
            raise RecordingError(f"{value!r:.80} makes no sense: {error!s:.80}") from None

    return Field(put, take)


def choice(kinds: Mapping[type, Field]) -> Field:
    """A value of one of some types; the number of its type goes before it."""
    by_name = {kind.__name__: field for kind, field in kinds.items()}
    return converted(
        named(lambda _, value: value, by_name),
        lambda value: (type(value).__name__, value),
        lambda value: value,
    )


def member(kind: type[StrEnum]) -> Field:
    """A member of an enumeration, by its text."""
    return converted(TEXT, str, kind)


def _put_json(out: list[bytes], value: Any) -> None:
    out.append(json.dumps(value, separators=(",", ":"), default=_item).encode())


def _take_json(source: Source) -> Any:
    try:
        value = json.loads(source.take(source.left))
        _check(value, MAX_DEPTH)
    except MISSHAPEN as error:
        raise RecordingError(f"a value in JSON is not as it should be: {error!s:.80}") from None
    return value


JSON: Final = Field(_put_json, _take_json)
"""Numbers, texts, truth values, None, and lists of them, to the end of the frame.

JSON gives each float64 back bit for bit.
"""


def plain(value: object) -> Any:
    """A value as `JSON` gives it back: NumPy's numbers are numbers, tuples are lists."""
    return json.loads(json.dumps(value, default=_item))


def _item(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    return value.item()


def _check(value: Any, depth: int) -> None:
    if type(value) is list and depth:
        for each in value:
            _check(each, depth - 1)
    elif value is not None and type(value) not in (int, float, str, bool):
        raise TypeError(f"a {type(value).__name__} in it")
    elif type(value) is int and not -(1 << 63) <= value < 1 << 64:
        raise ValueError("a number of more than 64 bits")
