# SPDX-License-Identifier: Apache-2.0
"""The socket of the daemon that lends GPU memory: who is let in, and who is cut off."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from tierd_gpu import wire
from tierd_gpu.harvest import Harvester
from tierd_gpu.links import Gpu, GpuTopology
from tierd_gpu.server import ACCEPTED, PAUSE_NS, RECORDS, UNSENT, GpuServer, ServerSettings
from tierd_gpu.session import CHUNKS_AT_ONCE
from tierd_gpu.settings import HarvestSettings
from tierd_gpu.wire import Kind

sys.path.insert(0, str(Path(__file__).parents[1] / "fakegpu"))

from standin import CHUNK, World

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
    topology = GpuTopology(gpus, rate, np.zeros((2, 2), np.int64))
    return Harvester(topology, HarvestSettings(context_bytes=0))


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
    record["version"], record["role"], record["max_chunks"] = wire.VERSION, 1, 64
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
                server._queue(number, [wire.bare(wire.Kind.PING)])
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


def refusal(made: socket.socket, server: GpuServer) -> tuple[int, str]:
    """The last message of a connection that the daemon ends: (errno, text)."""
    made.setblocking(False)
    last, end = b"", time.monotonic() + WAIT_S
    while time.monotonic() < end:
        server.step(0.01)
        try:
            message = made.recv(wire.MAX_BYTES)
        except (BlockingIOError, ConnectionResetError):
            continue
        if not message:
            kind, (record,) = wire.decode(last)
            assert kind is Kind.REFUSED
            return int(record["status"]), record["text"].decode()
        last = message
    raise AssertionError("the connection does not end")


def test_who_is_turned_away_is_told_why(tmp_path: Path) -> None:
    path = tmp_path / "gpu.sock"
    with serving(path, per_user=2) as server:
        kept = [dial(path) for _ in range(2)]
        until(lambda: (server.step(0.01), server.clients == 2)[1], "two clients")
        third = dial(path)
        third.send(greeting())
        assert refusal(third, server) == (
            errno.EMFILE,
            "this user has as many clients as one may have",
        )
        strange = np.frombuffer(greeting()[8:], wire.HELLO).copy()
        strange["uuid"] = 9
        kept[0].send(wire.encode(Kind.HELLO, strange)[0])
        assert refusal(kept[0], server) == (errno.ENODEV, "a GPU that is not served here")
        kept[1].send(b"nonsense")
        kept[1].send(greeting())  # behind it, and never read
        assert refusal(kept[1], server)[0] == errno.EPROTO
        for made in (third, *kept):
            made.close()


def test_clients_that_come_back_without_a_pause_take_no_turn_of_others(tmp_path: Path) -> None:
    """Counted in turns of the server: a few are let in a turn, and after a refusal none at once."""
    path, now = tmp_path / "gpu.sock", [10**9]
    server = GpuServer(core(), ServerSettings(path, per_user=1), lambda: now[0])
    kept = MadeUp(path, server, 0)
    hammering: list[socket.socket] = []
    pings = turns = 0
    while turns < 2000:
        turns += 1
        now[0] += 1_000_000
        with contextlib.suppress(BlockingIOError):
            made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            hammering.append(made)
            made.connect(str(path))
        while len(hammering) > 64:
            hammering.pop(0).close()
        server.step(0.0)
        pings += kept.hear()
        kept.say(Kind.ALIVE, np.zeros(1, wire.ALIVE))
    waits = PAUSE_NS // 1_000_000
    assert 0 < server.counts["refused_quota"] <= ACCEPTED * (turns // waits + 1)
    assert server.clients == 1
    assert pings >= 5  # one in 200 ms
    for made in (*hammering, kept.socket):
        made.close()
    server.close()


def test_a_flood_of_one_client_leaves_others_and_ticks_their_turn(tmp_path: Path) -> None:
    """Counted in chunks and records a turn; nothing of the flood is lost, and its order stays."""
    path = tmp_path / "gpu.sock"
    with serving(path) as server:
        kept = MadeUp(path, server, 0)
        flood = MadeUp(path, server, 0, chunks=1 << 21)
        session = server._connections[2].session
        until(lambda: (server.step(0.0), not session.waiting)[1], "its first range")
        taken: list[int] = []
        take = server.core.chunks
        server.core.chunks = lambda who, rows: (  # type: ignore[method-assign]
            taken.append(int(rows["count"].sum())), take(who, rows),
        )[1]  # fmt: skip
        whole = [(0, 1 << 21, 1 - i % 2, 0) for i in range(21)]
        (message,) = wire.encode(Kind.CHUNKS, np.array(whole, wire.CHUNKS))
        flood.socket.send(message)
        flood.claim(-1, 10)  # behind it; the last range makes chunks live
        turns = longest_ms = 0
        while not turns or session.waiting or server.core.tenants[2].count[-1] != 10:
            turns += 1
            before, started = len(taken), time.perf_counter()
            kept.say(Kind.ALIVE, np.zeros(1, wire.ALIVE))  # one step
            longest_ms = max(longest_ms, int((time.perf_counter() - started) * 1e3))
            # The rest of one message, and the beginning of another.
            assert sum(taken[before:]) <= 2 * CHUNKS_AT_ONCE
            assert turns < 10_000
        assert sum(taken) == 21 << 21
        assert turns >= (21 << 21) // CHUNKS_AT_ONCE // 2
        print(f"{turns} turns, the longest {longest_ms} ms")
        uses = np.zeros(500, wire.USE)
        server.step(0.0)
        for _ in range(40):
            with contextlib.suppress(BlockingIOError):
                flood.socket.setblocking(False)
                flood.socket.send(wire.encode(Kind.USE, uses)[0])
        seen = server.core.tenants[2].uses
        server.step(0.0)
        assert 0 < server.core.tenants[2].uses - seen <= RECORDS + len(uses)
        for client in (kept, flood):
            client.socket.close()


class MadeUp:
    """A client that says what a test has it say."""

    def __init__(
        self, path: Path, server: GpuServer, gpu: int, *, role: int = 1, chunks: int = 512
    ) -> None:
        self.socket, self.server = dial(path), server
        record = np.zeros(1, wire.HELLO)
        record["version"], record["role"], record["max_chunks"] = wire.VERSION, role, chunks
        record["uuid"], record["visible"] = gpu, 2
        record["visible_uuid"][0][1] = 1  # and GPU 0, whose UUID is zeros
        self.say(Kind.HELLO, record)
        self.say(Kind.CHUNKS, np.array([(0, chunks, 1, 0)], wire.CHUNKS))
        self.leases: list[tuple[int, int]] = []
        """(chunks leased, bytes borrowed), a GPU."""

    def say(self, kind: Kind, records: wire.Records) -> None:
        for message in wire.encode(kind, records):
            self.socket.send(message)
            self.server.step(0.0)

    def claim(self, place: int, chunks: int, flags: int = 0) -> None:
        """Say that chunks are there."""
        rows = np.zeros(chunks, wire.STATE)
        rows["chunk"], rows["place"], rows["flags"] = np.arange(chunks), place, flags
        self.say(Kind.STATE, rows)

    def hear(self) -> int:
        """Take in the leases that were sent; answers no command. Returns the number of pings."""
        self.socket.setblocking(False)
        pings = 0
        with contextlib.suppress(BlockingIOError):
            while message := self.socket.recv(wire.MAX_BYTES):
                kind, records = wire.decode(message)
                pings += kind is Kind.PING
                if kind is Kind.LEASE:
                    self.leases = [(each[1], each[-1]) for each in records.tolist()]
        return pings


def test_a_tenant_that_lies_changes_nobody_elses_figures(tmp_path: Path) -> None:
    """A client claims all of a neighbour's memory; others are told what they are without it."""
    seen = []
    for place in (-1, 1):
        path = tmp_path / f"{place}.sock"
        with serving(path) as server:
            victim = MadeUp(path, server, 1, role=2)
            other = MadeUp(path, server, 0)
            liar = MadeUp(path, server, 0)
            other.claim(-1, 512)
            liar.claim(place, 512)
            start = time.monotonic_ns()
            for turn in range(400):
                for gpu in range(2):
                    server.core.set_memory(gpu, 1 << 29)
                server.core.tick(start + turn * 1_000_000)
                server.flush()
                server.step(0.0)
                for client in (victim, other, liar):
                    client.hear()
            assert server.clients == 3
            seen.append((victim.leases, other.leases))
            for client in (victim, other, liar):
                client.socket.close()
    assert seen[0] == seen[1]
    assert seen[1][0][1] == (0, 0)
    assert seen[1][1][1][0] > 0


@pytest.mark.parametrize("how", ["at once", "with a reason", "after a welcome"])
def test_a_client_waits_longer_after_each_refusal(tmp_path: Path, how: str) -> None:
    """However the connection ends: 1 s, then 2 s; no more than the wait is asserted."""
    path = str(tmp_path / "gpu.sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(8)
    listener.settimeout(WAIT_S)
    came = []
    with World(gpu_bytes=8 * CHUNK) as world:
        client = world.client(0, chunks=8, socket=path)
        for _ in range(3):
            made, _ = listener.accept()
            came.append(time.monotonic())
            if how == "with a reason":
                made.send(wire.refused(errno.EACCES, "not you"))
            elif how == "after a welcome":
                welcome = np.array([(wire.VERSION, 1, 200, 0)], wire.WELCOME)
                made.send(wire.encode(Kind.WELCOME, welcome)[0])
                made.send(b"nonsense")
            made.close()
        stats = world.lib.ffi.new("struct tg_stats *")
        world.lib.tg.tg_stats_get(client, stats)
        assert stats.refused == (errno.EACCES if how == "with a reason" else 0)
    listener.close()
    assert came[1] - came[0] >= 0.9
    assert came[2] - came[1] >= 1.9
