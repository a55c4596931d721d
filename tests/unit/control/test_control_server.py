# SPDX-License-Identifier: Apache-2.0
"""The control socket: its limits, a stuck loop, streams, and what clients may do to it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from control_fuzz import mutate
from desk import connect, listening, make_desk, serving

from tierd.control import protocol, server
from tierd.control.events import EventFeed, Reader
from tierd.control.protocol import AnswerError, Client, NotRunningError
from tierd.core.errors import UnavailableError
from tierd.observe.metrics.families import CONTROL_CONNECTIONS, CONTROL_REQUESTS

ENOUGH_S = 120


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "control.sock"


def ask_raw(connection: socket.socket, line: bytes) -> dict[str, Any]:
    connection.sendall(line)
    answer: dict[str, Any] = json.loads(connection.makefile("rb").readline())
    return answer


def test_a_client_asks_and_is_answered_in_order(tmp_path: Path, path: Path):
    bench, desk = make_desk(tmp_path)
    with serving(bench), listening(path, desk) as control, Client(path) as client:
        assert client.ask("version")["pid"] == os.getpid()
        told = client.ask("status", hottest=True)
        assert [tier["name"] for tier in told["tiers"]] == ["dram", "cxl"]
        assert told["hottest"][0]["comm"] == "init"
        with pytest.raises(AnswerError, match="no command 'nonsense'") as caught:
            client.ask("nonsense")
        assert caught.value.kind == "unknown"
        counts = control.counts()
        assert counts[CONTROL_REQUESTS][("status", "ok")] == 1
        assert counts[CONTROL_REQUESTS][("unknown", "unknown")] == 1
        assert counts[CONTROL_CONNECTIONS] == {("accepted",): 1}
    assert not path.exists()


def test_the_socket_is_for_its_owner_only(tmp_path: Path, path: Path):
    _, desk = make_desk(tmp_path)
    with listening(path, desk):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_socket_is_for_the_group_that_may_read(tmp_path: Path, path: Path):
    _, desk = make_desk(tmp_path)
    with listening(path, desk, readers=os.getgid()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert path.stat().st_gid == os.getgid()


def test_a_socket_left_behind_is_replaced_and_one_in_use_is_not(tmp_path: Path, path: Path):
    _, desk = make_desk(tmp_path)
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    with listening(path, desk):
        with pytest.raises(UnavailableError, match="another tierd listens"):
            server.ControlServer(path, desk)
        with Client(path) as client:
            assert client.ask("version")


def test_a_socket_has_its_name_only_once_it_can_be_connected_to(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
):
    _, desk = make_desk(tmp_path)
    listen, there = socket.socket.listen, []

    def watched(listener: socket.socket, most: int) -> None:
        there.append(path.exists())
        listen(listener, most)

    monkeypatch.setattr(socket.socket, "listen", watched)
    with listening(path, desk):
        assert there == [False]
        assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_file_in_the_place_of_the_socket_stays(tmp_path: Path, path: Path):
    _, desk = make_desk(tmp_path)
    path.parent.mkdir()
    path.write_text("precious")
    with pytest.raises(UnavailableError, match="is no socket"):
        server.ControlServer(path, desk)
    assert path.read_text() == "precious"


def test_nobody_listening_says_so(path: Path):
    with pytest.raises(NotRunningError, match="does not run"):
        Client(path)


def test_a_stuck_loop_is_an_error_and_no_hang(tmp_path: Path, path: Path):
    bench, desk = make_desk(tmp_path, timeout_s=0.2)
    with listening(path, desk), Client(path, ENOUGH_S) as client:
        with pytest.raises(AnswerError, match=r"did not answer within 0\.2 s") as caught:
            client.ask("status")
        assert caught.value.kind == "stuck"
        # What was given up is not done later.
        with pytest.raises(AnswerError, match="did not answer"):
            client.ask("resume")
        bench.service.paused = True
        assert bench.service.calls.serve() == 2
        assert bench.service.paused


def test_pause_works_even_where_the_loop_is_stuck(tmp_path: Path, path: Path):
    bench, desk = make_desk(tmp_path, timeout_s=0.2)
    with listening(path, desk), Client(path, ENOUGH_S) as client:
        told = client.ask("pause", reason="now")
        assert bench.service.paused
        assert bench.mover.stopped.is_set()
        assert told["kept"] is True
        assert "did not answer" in told["note"]


def test_a_service_that_ends_says_so(tmp_path: Path, path: Path):
    bench, desk = make_desk(tmp_path)
    with listening(path, desk), Client(path) as client:
        bench.service.calls.refuse("the service is stopping")
        with pytest.raises(AnswerError, match="stopping") as caught:
            client.ask("status")
        assert caught.value.kind == "stopping"


def test_a_defect_of_a_command_is_an_answer_too(tmp_path: Path, path: Path, caplog):
    bench, desk = make_desk(tmp_path)
    desk.conflicts = [].pop
    with serving(bench), listening(path, desk), Client(path) as client:
        with pytest.raises(AnswerError, match="IndexError; the log has more") as caught:
            client.ask("status")
        assert caught.value.kind == "defect"
        assert client.ask("version")
    assert "control_defect" in caplog.text


def test_one_connection_too_many_is_told_so(tmp_path: Path, path: Path):
    _, desk = make_desk(tmp_path)
    with listening(path, desk, connections=2) as control:
        with Client(path) as first, Client(path) as second:
            assert first.ask("version")
            assert second.ask("version")
            with Client(path) as third, pytest.raises(AnswerError, match="too many") as caught:
                third.ask("version")
            assert caught.value.kind == "busy"
            assert control.counts()[CONTROL_CONNECTIONS][("busy",)] == 1
        # Room again as soon as the threads of the first two have seen that they hung up.
        for _ in range(ENOUGH_S * 100):
            time.sleep(0.01)
            with Client(path) as later, contextlib.suppress(AnswerError):
                assert later.ask("version")
                break
        else:
            pytest.fail("there was never room again")


def test_a_line_without_end_costs_a_bounded_buffer_and_the_connection(tmp_path: Path, path: Path):
    _, desk = make_desk(tmp_path)
    with listening(path, desk), connect(path) as connection:
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(b"x" * (protocol.MOST_BYTES + 100_000))
        answer = json.loads(connection.makefile("rb").readline())
        assert answer["error"]["kind"] == "malformed"
        assert "at most 65536 bytes" in answer["error"]["message"]


def test_half_a_line_loses_its_connection_after_a_time(tmp_path: Path, path: Path, monkeypatch):
    monkeypatch.setattr(server, "LINE_S", 0.2)
    _, desk = make_desk(tmp_path)
    with listening(path, desk) as control, connect(path) as connection:
        connection.sendall(b'{"command":')
        assert connection.recv(100) == b""
        assert control.counts()[CONTROL_CONNECTIONS][("cut_off",)] == 1


def test_an_idle_connection_is_closed(tmp_path: Path, path: Path, monkeypatch):
    monkeypatch.setattr(server, "IDLE_S", 0.2)
    _, desk = make_desk(tmp_path)
    with listening(path, desk), connect(path) as connection:
        assert connection.recv(100) == b""


def test_nonsense_is_answered_line_by_line_until_it_is_too_much(tmp_path: Path, path: Path):
    _, desk = make_desk(tmp_path)
    with listening(path, desk), connect(path) as connection:
        stream = connection.makefile("rb")
        for _ in range(server.MOST_MALFORMED):
            connection.sendall(b"nonsense\n")
            assert json.loads(stream.readline())["error"]["kind"] == "malformed"
        assert stream.readline() == b""


def test_events_are_streamed_while_the_client_listens(tmp_path: Path, path: Path):
    _, desk = make_desk(tmp_path)
    over = threading.Event()

    def tell() -> None:
        while not over.wait(0.01):
            desk.feed.tell({"kind": "n"})

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        with listening(path, desk), Client(path, ENOUGH_S) as client:
            events = client.events()
            assert [next(events) for _ in range(3)] == [{"kind": "n"}] * 3
    finally:
        over.set()
        teller.join()
    assert desk.feed._readers == []


def test_the_end_does_not_wait_for_a_streams_heartbeat(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server, "_HEARTBEAT_S", 3600.0)
    monkeypatch.setattr(server, "LINE_S", 60.0)
    _, desk = make_desk(tmp_path, timeout_s=1.0)
    subscribe = desk.feed.subscribe

    def subscribe_and_tell() -> Reader:
        reader = subscribe()
        desk.feed.tell({"kind": "n"})
        return reader

    monkeypatch.setattr(desk.feed, "subscribe", subscribe_and_tell)
    with listening(path, desk), Client(path, ENOUGH_S) as client:
        assert next(client.events()) == {"kind": "n"}
    assert desk.feed._readers == []


def test_a_reader_that_is_too_slow_misses_events_and_is_told_how_many():
    feed = EventFeed(dict)
    reader = feed.subscribe(space=2)
    for number in range(5):
        feed.tell({"n": number})
    assert feed.dropped == reader.dropped == 3
    seen = [reader.get(0) for _ in range(4)]
    assert seen == [{"kind": "dropped", "events": 3}, {"n": 0}, {"n": 1}, None]


def test_thousands_of_wrong_lines_over_the_socket_leave_it_at_work(tmp_path: Path, path: Path):
    bench, desk = make_desk(tmp_path)
    source = random.Random(7)
    answered = 0
    with serving(bench), listening(path, desk):
        for _ in range(200):
            with connect(path) as connection:
                lines = [
                    line.replace(b"\n", b"")
                    for line in (mutate(source) for _ in range(15))
                    if b'"events"' not in line and b'"pause"' not in line
                ]
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(b"\n".join(lines) + b"\n")
                    connection.shutdown(socket.SHUT_WR)
                for line in connection.makefile("rb"):
                    told = json.loads(line)
                    assert told["ok"] is True or told["error"]["message"]
                    assert told["ok"] is True or told["error"]["kind"] != "defect"
                    answered += 1
        with Client(path) as client:
            assert client.ask("version")
    assert answered > 1000
