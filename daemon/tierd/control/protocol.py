# SPDX-License-Identifier: Apache-2.0
"""The lines that go over the control socket.

A request is one line of JSON, `{"command": "status", "args": {...}, "id": 1}`; `args` and
`id` may be left out. The answer is one line, `{"ok": true, "result": ..., "id": 1}` or
`{"ok": false, "error": {"kind": ..., "message": ..., "hint": ...}, "id": 1}`.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

MOST_BYTES: Final = 64 << 10
"""Length of a request line, with its newline."""
_LONGEST_ID: Final = 64


class ErrorKind(enum.StrEnum):
    """Why a request failed; clients may rely on these words."""

    MALFORMED = "malformed"
    """The line is not a request."""
    UNKNOWN = "unknown"
    """There is no such command, or it has no such argument."""
    DENIED = "denied"
    """The peer may not do that."""
    REFUSED = "refused"
    """The service will not or cannot do that now; nothing has changed."""
    STUCK = "stuck"
    """The control loop did not answer in time."""
    BUSY = "busy"
    """Too many connections."""
    STOPPING = "stopping"
    """The service is about to end."""
    DEFECT = "defect"
    """A mistake in tierd; the log has more."""


class RequestError(Exception):
    """A request that fails; it becomes the answer's `error`."""

    def __init__(self, kind: ErrorKind, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Request:
    """A well-formed request; whether the command exists is not known yet."""

    command: str
    args: Mapping[str, Any] = field(default_factory=dict)
    id: str | int | None = None


def parse(line: bytes) -> Request:
    """The request in a line, with or without its newline.

    Raises:
        RequestError: MALFORMED, and what is wrong.
    """
    if len(line) > MOST_BYTES:
        raise _malformed(f"a request is at most {MOST_BYTES} bytes")
    try:
        value = json.loads(line.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise _malformed("a request is UTF-8 text") from None
    except RecursionError:
        raise _malformed("a request is not nested that deep") from None
    except ValueError as error:  # no JSON, or an integer of thousands of digits
        raise _malformed(f"not a line of JSON: {error}") from None
    if not isinstance(value, dict):
        raise _malformed("a request is a JSON object")
    unknown = value.keys() - {"command", "args", "id"}
    if unknown:
        raise _malformed(f"a request has no {sorted(unknown)[0][:40]!r}")
    command, args, number = value.get("command"), value.get("args", {}), value.get("id")
    if not isinstance(command, str):
        raise _malformed('"command" must be a string')
    if not isinstance(args, dict):
        raise _malformed('"args" must be an object')
    if isinstance(number, bool) or not isinstance(number, str | int | None):
        raise _malformed('"id" must be a string or an integer')
    if len(str(number)) > _LONGEST_ID:
        raise _malformed(f'"id" is at most {_LONGEST_ID} characters')
    return Request(command, args, number)


def answer(result: Any, number: str | int | None = None) -> bytes:
    """The line for a success."""
    return _line({"ok": True, "result": result}, number)


def failure(error: RequestError, number: str | int | None = None) -> bytes:
    """The line for a failure."""
    told = {"kind": str(error.kind), "message": error.message, "hint": error.hint}
    return _line({"ok": False, "error": told}, number)


def event(value: Mapping[str, Any]) -> bytes:
    """The line for one event of a stream."""
    return _line({"event": value}, None)


def _line(value: dict[str, Any], number: str | int | None) -> bytes:
    if number is not None:
        value["id"] = number
    # ASCII only: names that processes gave themselves are no valid UTF-8, perhaps.
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _malformed(message: str) -> RequestError:
    return RequestError(ErrorKind.MALFORMED, message)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
