# SPDX-License-Identifier: Apache-2.0
"""The Unix socket where GPU clients come: who may, how many, how fast.

A client is who the kernel says it is (SO_PEERCRED); what it says of itself is only
where it computes. A user that is not permitted is turned away and counted. A client
that breaks the protocol, floods, or does not read its answers is cut off; its memory
stays its own and the driver's. Who is turned away or breaks the protocol is told why
(`wire.REFUSED`), and after refusals the next connections wait, so that whoever tries without a
pause costs little.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import stat
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tierd.core.errors import UnavailableError
from tierd_gpu import wire
from tierd_gpu.harvest import Harvester
from tierd_gpu.session import HEARTBEAT_MS, Session

_CREDENTIALS = struct.Struct("3i")
LISTENER = 0
"""In place of a client's number, which are from 1."""
PER_TURN = 64
"""Messages taken from one client before the others have their turn."""
RECORDS = 8192
"""Records taken in one turn from all clients together; then a tick may be due."""
ACCEPTED = 16
"""Connections taken in one turn."""
PAUSE_NS = 10_000_000
"""After a refusal, nobody is let in for so long."""
UNSENT = 1024
"""Messages kept for a client that does not read."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Who may connect and how many.

    Attributes:
        path: the socket's path.
        users: permitted user numbers; the daemon's own user always is.
        groups: permitted group numbers (of the process, not its supplementary groups).
        clients: connections at a time; `per_user` of them for one user.
        mode: permission bits of the socket.
    """

    path: Path
    users: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()
    clients: int = 256
    per_user: int = 64
    mode: int = 0o600


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    session: Session
    unsent: deque[bytes] = field(default_factory=deque)


class GpuServer:
    """The listening socket and its clients.

    Raises:
        UnavailableError: the socket cannot be made there.
    """

    def __init__(self, core: Harvester, settings: ServerSettings, clock: Callable[[], int]) -> None:
        self.core = core
        self.settings = settings
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._next = 1
        self._connections: dict[int, _Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = self._listen()
        self._selector.register(self._listener, selectors.EVENT_READ, LISTENER)
        self._pinged_ns = 0
        self._left = 0
        """Records that may still be taken in this turn."""
        self._turn = 0
        self._paused_ns = -1
        """Since when nobody is let in; -1: not now."""

    def _listen(self) -> socket.socket:
        path = self.settings.path
        with contextlib.suppress(FileNotFoundError):
            # Only a socket that nobody listens on any more is removed.
            if stat.S_ISSOCK(path.lstat().st_mode) and not _answers(path):
                path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        old = os.umask(0o177)
        try:
            listener.bind(str(path))
        except OSError as error:
            listener.close()
            raise UnavailableError(f"cannot listen on {path}: {error.strerror}") from error
        finally:
            os.umask(old)
        path.chmod(self.settings.mode)
        listener.listen(32)
        return listener

    @property
    def clients(self) -> int:
        """Connections now."""
        return len(self._connections)

    def close(self) -> None:
        """Hang up on everybody and remove the socket."""
        for number in list(self._connections):
            self._drop(number, "closed")
        self._selector.close()
        self._listener.close()
        with contextlib.suppress(FileNotFoundError):
            self.settings.path.unlink()

    def step(self, timeout_s: float) -> None:
        """Wait for messages at most so long, take them, answer."""
        heard: set[int] = set()
        self._resume()
        if self._paused_ns >= 0:
            timeout_s = min(timeout_s, PAUSE_NS / 1e9)
        self._left, self._turn = RECORDS, self._turn + 1
        late = [n for n, each in self._connections.items() if each.session.waiting]
        for number in self._in_turn(late):
            if self._left > 0:
                self._left -= self._connections[number].session.go_on()
                heard.add(number)
        ready = self._selector.select(0.0 if late else timeout_s)
        for number in self._in_turn([key.data for key, _ in ready]):
            if number == LISTENER:
                self._let_in()
            elif self._read(number):
                heard.add(number)
        now = self._clock()
        for number in heard & self._connections.keys():
            self._queue(number, self._connections[number].session.answer(now))
        if now - self._pinged_ns > HEARTBEAT_MS * 1_000_000:
            self._pinged_ns = now
            for number in list(self._connections):
                self._queue(number, [wire.bare(wire.Kind.PING)])

    def _in_turn(self, numbers: list[int]) -> list[int]:
        """The same, beginning with another one each time."""
        first = self._turn % max(1, len(numbers))
        return numbers[first:] + numbers[:first]

    def flush(self) -> None:
        """Send what the core decided outside of an answer (after `Harvester.tick`)."""
        for number in list(self._connections):
            self._queue(number, self._connections[number].session.send())

    def _let_in(self) -> None:
        """Take a few connections; after a refusal, none for a while."""
        refused = [self._accept() for _ in range(ACCEPTED)].count(False)
        if refused:
            self._paused_ns = self._clock()
            self._selector.unregister(self._listener)

    def _resume(self) -> None:
        if self._paused_ns >= 0 and self._clock() - self._paused_ns >= PAUSE_NS:
            self._paused_ns = -1
            self._selector.register(self._listener, selectors.EVENT_READ, LISTENER)

    def _accept(self) -> bool | None:
        """Whether one was let in; None where nobody waits."""
        try:
            client, _ = self._listener.accept()
        except OSError:  # nobody, or gone again, or no descriptor is left
            return None
        client.setblocking(False)
        raw = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, gid = _CREDENTIALS.unpack(raw)
        reason = self._refusal(uid, gid)
        if reason:
            self.counts[f"refused_{reason}"] += 1
            _hang_up(client, *REFUSALS[reason])
            return False
        number, self._next = self._next, self._next + 1
        session = Session(self.core, number, uid)
        self._connections[number] = _Connection(client, session)
        self._selector.register(client, selectors.EVENT_READ, number)
        self.counts["accepted"] += 1
        return True

    def _refusal(self, uid: int, gid: int) -> str:
        settings = self.settings
        if uid != os.geteuid() and uid not in settings.users and gid not in settings.groups:
            return "user"
        if len(self._connections) >= settings.clients:
            return "full"
        own = sum(1 for c in self._connections.values() if c.session.uid == uid)
        return "quota" if own >= settings.per_user else ""

    def _read(self, number: int) -> bool:
        connection = self._connections[number]
        for _ in range(PER_TURN):
            if connection.session.waiting or self._left <= 0:
                return True  # what is unread has the next turn
            try:
                message = connection.socket.recv(wire.MAX_BYTES + 1)
            except BlockingIOError:
                return True
            except OSError:
                message = b""
            if not message:
                self._drop(number, "gone")
                return False
            try:
                self._left -= connection.session.receive(message, self._clock())
            except wire.WireError as error:
                self._drop(number, "protocol", error)
                return False
        return True

    def _queue(self, number: int, messages: Iterable[bytes]) -> None:
        connection = self._connections[number]
        connection.unsent.extend(messages)
        while connection.unsent:
            try:
                connection.socket.send(connection.unsent[0], socket.MSG_NOSIGNAL)
            except BlockingIOError:
                break
            except OSError:
                self._drop(number, "gone")
                return
            connection.unsent.popleft()
        if len(connection.unsent) > UNSENT:
            self._drop(number, "deaf")

    def _drop(self, number: int, reason: str, error: wire.WireError | None = None) -> None:
        connection = self._connections.pop(number)
        self._selector.unregister(connection.socket)
        if error is None:
            connection.socket.close()
        else:
            _hang_up(connection.socket, error.status, str(error))
        connection.session.close()
        self.counts[f"dropped_{reason}"] += 1


REFUSALS = {
    "user": (errno.EACCES, "this user is not permitted"),
    "full": (errno.EUSERS, "there are as many clients as there may be"),
    "quota": (errno.EMFILE, "this user has as many clients as one may have"),
}
"""What a client that is turned away is told, by the reason that is counted."""


def _hang_up(client: socket.socket, status: int, text: str) -> None:
    """Say why, as far as it goes without waiting, and close."""
    with contextlib.suppress(OSError):
        for _ in range(PER_TURN):  # unread messages would have the client see a reset instead
            if not client.recv(wire.MAX_BYTES + 1):
                break
    with contextlib.suppress(OSError):
        client.send(wire.refused(status, text), socket.MSG_NOSIGNAL)
    client.close()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
