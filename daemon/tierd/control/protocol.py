# SPDX-License-Identifier: Apache-2.0
"""The lines that go over the control socket, who is at its other end, and the commands' side of it.

A request is one line of JSON, `{"command": "status", "args": {...}, "id": 1}`; `args` and
`id` may be left out. The answer is one line, `{"ok": true, "result": ..., "id": 1}` or
`{"ok": false, "error": {"kind": ..., "message": ..., "hint": ...}, "id": 1}`.

The kernel says who the peer is (SO_PEERCRED, SO_PEERGROUPS; unix(7)), never the peer itself.
"""

from __future__ import annotations

import contextlib
import enum
import grp
import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from tierd.core.errors import ConfigError, ExitCode, TierdError, UnavailableError

MOST_BYTES: Final = 64 << 10
"""Length of a request line, with its newline."""
UNDO_REASON: Final = "tierd undo"
"""The reason of the pause that an undo begins with."""
_LONGEST_ID: Final = 64
_CREDENTIALS: Final = struct.Struct("iII")
_SO_PEERGROUPS: Final = 59
"""include/uapi/asm-generic/socket.h; Python's socket module does not name it."""
_MOST_GROUPS: Final = 256
"""Python's getsockopt takes no more than 1024 bytes: of a peer in more groups none count."""


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


@dataclass(frozen=True, slots=True)
class Peer:
    """Who asks, by the kernel's word.

    Attributes:
        may_change: root, or the user tierd runs as; else only reading is allowed.
    """

    pid: int
    uid: int
    may_change: bool


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
    """The peer, or None where it may do nothing at all. `readers`: the group that may read."""
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
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _MOST_GROUPS)
    except OSError:
        return ()
    return struct.unpack(f"{len(raw) // 4}I", raw)


WAIT_S: Final = 90.0
"""Longer than the service itself waits for its loop, whatever is configured."""


class NotRunningError(UnavailableError):
    """Nobody listens on the control socket."""


class AnswerError(TierdError):
    """The service refused; `kind` is its word for why."""

    def __init__(self, kind: str, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.exit_code = ExitCode.TIMEOUT if kind == "stuck" else ExitCode.FAILURE


class Client:
    """A connection to the service.

    Raises:
        NotRunningError: nobody listens there.
        UnavailableError: this user may not connect.
    """

    def __init__(self, path: Path, wait_s: float = WAIT_S) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(wait_s)
        try:
            self._socket.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            self._socket.close()
            raise NotRunningError(
                f"tierd does not run, or not with the socket {path}",
                hint="systemctl start tierd; --socket or control.socket says where it listens",
            ) from None
        except PermissionError:
            self._socket.close()
            raise UnavailableError(
                f"you may not connect to {path}",
                hint="run this as root, or join the group that control.group names",
            ) from None
        except OSError as error:
            self._socket.close()
            raise UnavailableError(f"cannot connect to {path}: {error.strerror or error}") from None
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._socket.close()

    def ask(self, command: str, **args: Any) -> Any:
        """Send a request; the answer's result.

        Raises:
            AnswerError: the service said no.
            UnavailableError: it did not answer.
        """
        line = json.dumps({"command": command, "args": args}).encode() + b"\n"
        try:
            self._socket.sendall(line)
        except BrokenPipeError:
            pass  # it may have said why it hung up
        except OSError as broken:
            raise _broken(broken) from None
        answer = self._receive()
        if answer.get("ok") is True:
            return answer.get("result")
        error = answer.get("error")
        error = error if isinstance(error, Mapping) else {}
        raise AnswerError(
            str(error.get("kind", "")), str(error.get("message", "")), str(error.get("hint", ""))
        )

    def events(self) -> Iterator[dict[str, Any]]:
        """The stream of events until the service ends."""
        self.ask("events")
        self._socket.settimeout(None)
        while True:
            try:
                line = self._file.readline()
            except OSError:
                return
            if not line:
                return
            told = json.loads(line).get("event")
            if isinstance(told, dict):
                yield told

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._file.readline()
            answer = json.loads(line) if line else None
        except (OSError, ValueError) as error:
            raise _broken(error) from None
        if not isinstance(answer, dict):
            raise UnavailableError("tierd hung up without an answer", hint="its log may say why")
        return answer


def _broken(error: Exception) -> UnavailableError:
    return UnavailableError(f"the connection to tierd broke: {error}")
