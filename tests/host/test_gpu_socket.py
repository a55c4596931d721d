# SPDX-License-Identifier: Apache-2.0
"""The socket of the daemon that lends GPU memory: who is let in, and who is cut off."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from tierd_gpu import wire
from tierd_gpu.harvest import Harvester
from tierd_gpu.links import Gpu, GpuTopology
from tierd_gpu.server import UNSENT, GpuServer, ServerSettings
from tierd_gpu.wire import Kind

WAIT_S = 600.0
"""For what must happen at all, on however busy a host."""


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.01)


def core() -> Harvester:
    rate = np.full((3, 3), 25e9)
    gpus = tuple(Gpu(i, bytes([i] * 16), f"gpu{i}", 1 << 30) for i in range(2))
    return Harvester(GpuTopology(gpus, rate, np.zeros((2, 2), np.int64)))


@contextlib.contextmanager
def serving(path: Path, **settings: Any) -> Iterator[GpuServer]:
    server = GpuServer(core(), ServerSettings(path, **settings), time.monotonic_ns)
    try:
        yield server
    finally:
        server.close()


def dial(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.connect(str(path))
    return made


def greeting() -> bytes:
    record = np.zeros(1, wire.HELLO)
    record["version"], record["role"], record["max_chunks"] = 1, 1, 64
    return wire.encode(Kind.HELLO, record)[0]


def _greet_and_leave(path: Path, uid: int) -> NoReturn:
    """The child's part. It never returns: a refused one may find its socket closed already."""
    try:
        os.setgid(uid)
        os.setuid(uid)
        made = dial(path)
        made.settimeout(WAIT_S)
        made.send(greeting())
        made.recv(wire.MAX_BYTES)
    finally:
        os._exit(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_only_permitted_users_are_let_in(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:3]:
        with contextlib.suppress(PermissionError):
            parent.chmod(parent.stat().st_mode | 0o011)
    path = tmp_path / "gpu.sock"
    with serving(path, users=frozenset({1234}), mode=0o666) as server:
        for uid, expected in ((4321, "refused_user"), (1234, "accepted")):
            pid = os.fork()
            if not pid:
                _greet_and_leave(path, uid)
            end = time.monotonic() + WAIT_S
            while not os.waitpid(pid, os.WNOHANG)[0]:
                server.step(0.02)
                assert time.monotonic() < end
            assert server.counts[expected] == 1


def test_a_user_may_have_so_many_connections_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "gpu.sock"
    with serving(path, per_user=2) as server:
        sockets = [dial(path) for _ in range(3)]
        until(lambda: (server.step(0.01), server.counts["refused_quota"] == 1)[1], "refusal")
        assert server.clients == 2
        for made in sockets:
            made.close()


def test_a_client_that_breaks_the_protocol_or_does_not_read_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "gpu.sock"
    with serving(path) as server:
        bad, deaf = dial(path), dial(path)
        bad.send(b"nonsense")
        until(lambda: (server.step(0.01), server.counts["dropped_protocol"] == 1)[1], "drop")
        number = next(iter(server._connections))
        for _ in range(UNSENT * 4):
            if number in server._connections:
                server._queue(number, [wire.ping()])
        assert server.counts["dropped_deaf"] == 1
        bad.close()
        deaf.close()


def test_the_socket_of_a_daemon_that_lives_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "gpu.sock"
    with serving(path), pytest.raises(Exception, match="cannot listen"):
        GpuServer(core(), ServerSettings(path), time.monotonic_ns)
    path.write_text("not a socket")
    with pytest.raises(Exception, match="cannot listen"):
        GpuServer(core(), ServerSettings(path), time.monotonic_ns)
    assert path.read_text() == "not a socket"
