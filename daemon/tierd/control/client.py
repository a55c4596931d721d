# SPDX-License-Identifier: Apache-2.0
"""The commands' side of the control socket. It imports little, so that commands start at once."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tierd.core.errors import ExitCode, TierdError, UnavailableError

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
