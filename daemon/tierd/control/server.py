# SPDX-License-Identifier: Apache-2.0
"""The control socket: connections, their threads and their limits.

Each connection has a thread, and there are few: one more is told so and hung up on. A
client that sends half a line, or does not read its answer, loses its connection after a
time; one that sends nonsense gets an error for each line, and not many of them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tierd.config.serving import EARLY
from tierd.control import protocol
from tierd.control.commands import REQUESTS, ControlContext, dispatch
from tierd.control.protocol import ErrorKind, Peer, RequestError, identify
from tierd.core.errors import UnavailableError
from tierd.core.logfmt import logfmt
from tierd.observe.metrics.families import CONTROL_CONNECTIONS, CONTROL_REQUESTS, EVENTS_DROPPED
from tierd.observe.metrics.values import Labels

log = logging.getLogger(__name__)

IDLE_S: Final = 60.0
"""A connection without a request for so long is closed."""
LINE_S: Final = 5.0
"""A line must be whole so long after its first byte, and an answer read."""
MOST_MALFORMED: Final = 16
"""Malformed lines after which a connection is closed."""
_HEARTBEAT_S: Final = 0.5
"""A stream looks so often whether its reader is gone, or the service is stopping."""


class ControlServer:
    """Listens from its construction until `close`.

    Args:
        readers: number of the group that may read, or None.

    Raises:
        UnavailableError: the socket cannot be made there.
    """

    def __init__(
        self, path: Path, desk: ControlContext, *, readers: int | None = None, connections: int = 16
    ) -> None:
        self._path = path
        self._desk = desk
        self._readers = readers
        self._slots = threading.Semaphore(connections)
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._requests: Counter[tuple[str, str]] = Counter()
        self._connections: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._listener = _listen(path, readers)
        self._inode = path.stat().st_ino
        self._thread = threading.Thread(target=self._accept, name="tierd-control", daemon=True)

    def start(self) -> None:
        """Accept from now on."""
        self._thread.start()

    def close(self) -> None:
        """Hang up on everybody and remove the socket."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._desk.feed.wake()
        with self._lock:
            left = dict(self._open)
        for connection in left:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in (*left.values(), self._thread):
            if thread.is_alive():
                thread.join(self._desk.timeout_s + LINE_S)
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:  # not another tierd's by now
                self._path.unlink()

    def counts(self) -> Mapping[str, Mapping[Labels, float]]:
        """What was asked and refused, for the collector; from any thread."""
        with self._lock:
            requests, connections = dict(self._requests), dict(self._connections)
        return {
            CONTROL_REQUESTS: {key: float(n) for key, n in requests.items()},
            CONTROL_CONNECTIONS: {(key,): float(n) for key, n in connections.items()},
            EVENTS_DROPPED: {(): float(self._desk.feed.dropped)},
        }

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if not self._stopping.is_set():  # out of descriptors, perhaps
                    self._count("failed")
                    self._stopping.wait(0.2)
                continue
            self._admit(connection)

    def _admit(self, connection: socket.socket) -> None:
        connection.settimeout(LINE_S)
        try:
            peer = identify(connection, self._readers)
        except OSError:
            peer = None
        if peer is None:
            self._turn_away(connection, "denied", ErrorKind.DENIED, "only root may control tierd")
            return
        if not self._slots.acquire(blocking=False):
            self._turn_away(connection, "busy", ErrorKind.BUSY, "too many connections")
            return
        self._count("accepted")
        thread = threading.Thread(
            target=self._serve, args=(connection, peer), name="tierd-client", daemon=True
        )
        with self._lock:
            self._open[connection] = thread
        try:
            thread.start()
        except RuntimeError:  # no more threads
            self._end(connection)

    def _turn_away(self, connection: socket.socket, result: str, kind: ErrorKind, why: str) -> None:
        self._count(result)
        with contextlib.suppress(OSError), connection:
            connection.settimeout(0)  # never wait for someone who may not even connect
            connection.send(protocol.failure(RequestError(kind, why)))

    def _serve(self, connection: socket.socket, peer: Peer) -> None:
        try:
            lines = _Lines(connection)
            malformed = 0
            while malformed < MOST_MALFORMED and not self._stopping.is_set():
                line = lines.next()
                if line is None:
                    return
                if not self._answer(connection, peer, line):
                    malformed += 1
        except _TooLongError:
            self._request("", ErrorKind.MALFORMED)
            error = RequestError(
                ErrorKind.MALFORMED, f"a request is at most {protocol.MOST_BYTES} bytes"
            )
            with contextlib.suppress(OSError):
                connection.sendall(protocol.failure(error))
        except OSError:
            self._count("cut_off")  # hung up, too slow, or did not read
        except Exception:
            log.exception(logfmt(event="control_defect"))
        finally:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.pop(connection, None)
        connection.close()
        self._slots.release()

    def _answer(self, connection: socket.socket, peer: Peer, line: bytes) -> bool:
        """Answer one line; False if it was malformed."""
        name, number = "", None
        result: str = "ok"
        try:
            request = protocol.parse(line)
            name, number = request.command, request.id
            answer = protocol.answer(dispatch(self._desk, peer, request), number)
        except RequestError as error:
            result = error.kind
            answer = protocol.failure(error, number)
        except Exception as error:
            log.exception(logfmt(event="control_defect", command=name[:40]))
            result = ErrorKind.DEFECT
            told = RequestError(ErrorKind.DEFECT, f"{type(error).__name__}; the log has more")
            answer = protocol.failure(told, number)
        self._request(name, result)
        connection.sendall(answer)
        if result == "ok" and REQUESTS[name].streams:
            self._stream(connection)
        return result != ErrorKind.MALFORMED

    def _stream(self, connection: socket.socket) -> None:
        """Send events until the peer is gone (or says anything more) or the service stops."""
        reader = self._desk.feed.subscribe()
        try:
            while not self._stopping.is_set():
                event = reader.get(_HEARTBEAT_S)
                if event is not None:
                    connection.sendall(protocol.event(event))
                elif _gone(connection):
                    return
        finally:
            self._desk.feed.unsubscribe(reader)

    def _request(self, command: str, result: str) -> None:
        known = command if command in REQUESTS else "unknown"
        with self._lock:
            self._requests[known, str(result)] += 1

    def _count(self, result: str) -> None:
        with self._lock:
            self._connections[result] += 1


class _TooLongError(Exception):
    pass


class _Lines:
    """Lines of a connection, bounded in length and time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    def next(self) -> bytes | None:
        """The next line, or None at the end.

        Raises:
            _TooLongError: it is too long.
            OSError: it did not come in time, or the connection broke.
        """
        until = time.monotonic() + (LINE_S if self._buffer else IDLE_S)
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) >= protocol.MOST_BYTES:
                raise _TooLongError
            self._connection.settimeout(max(0.001, until - time.monotonic()))
            try:
                more = self._connection.recv(protocol.MOST_BYTES)
            except TimeoutError:
                if not self._buffer:
                    return None  # idle
                raise
            if not more:
                return None
            if not self._buffer:
                until = time.monotonic() + LINE_S
            self._buffer += more
        if end >= protocol.MOST_BYTES:
            raise _TooLongError
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._connection.settimeout(LINE_S)
        return line


def _gone(connection: socket.socket) -> bool:
    """Whether the peer hung up; what it says in a stream ends the stream as well."""
    try:
        connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _listen(path: Path, readers: int | None) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise UnavailableError(f"{path} is there and is no socket", hint="remove it")
        if _answers(path):
            raise UnavailableError(
                f"another tierd listens on {path}", hint="stop it, or choose another control.socket"
            )
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Who finds the socket may connect to it: it gets its name when it listens.
    early = path.with_name(path.name + EARLY)
    try:
        # The socket has these rights from its first moment: bind takes them from here.
        os.fchmod(listener.fileno(), 0o600)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        early.unlink(missing_ok=True)
        listener.bind(str(early))
        if readers is not None:
            os.chown(early, -1, readers)
            early.chmod(0o660)
        listener.listen(64)
        os.link(early, path)  # not over another tierd's that began at the same time
        early.unlink()
    except OSError as error:
        listener.close()
        with contextlib.suppress(OSError):
            early.unlink()
        raise UnavailableError(f"cannot listen on {path}: {error.strerror or error}") from error
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except OSError as error:
            return isinstance(error, TimeoutError | PermissionError)
    return True
