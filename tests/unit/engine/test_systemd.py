# SPDX-License-Identifier: Apache-2.0
"""What the service manager hears, and when."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from loopbench import CONFIG, Bench, interrupt_at, tier_map

from tierd.config.whole import load, loads
from tierd.core.errors import ExitCode
from tierd.engine.reload import Reloader
from tierd.engine.systemd import SystemdNotifier


class Systemd:
    """The other end of the socket."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(path.replace("@", "\0"))

    def heard(self) -> list[str]:
        """The messages since the last call."""
        messages = []
        while True:
            try:
                messages.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return messages


@pytest.fixture(params=["path", "abstract"])
def systemd(request, tmp_path: Path) -> Iterator[Systemd]:
    name = f"@tierd-test-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "n")
    made = Systemd(name)
    yield made
    made.socket.close()


def managed(bench: Bench, manager: SystemdNotifier) -> Bench:
    bench.service.manager = manager
    bench.service.work.observers.append(manager)
    return bench


def test_ready_comes_after_the_first_good_tick_and_stopping_at_the_end(systemd: Systemd) -> None:
    bench = managed(Bench(tier_map(118, 430)), SystemdNotifier({"NOTIFY_SOCKET": systemd.path}))
    seen: list[list[str]] = []
    bench.tracking.on_tick = lambda count: (seen.append(systemd.heard()), interrupt_at(2)(count))
    assert bench.service.run() == ExitCode.OK
    assert seen[0] == []  # in the middle of the first tick
    assert seen[1][0].startswith("READY=1\nSTATUS=1 targets watched by made-up, ")
    assert len(seen[1]) == 1
    ended = systemd.heard()
    assert ended[-1].startswith("STOPPING=1\n")
    assert not any("READY=1" in message for message in [*seen[1][1:], *ended])


def test_a_tick_without_a_source_is_not_good(systemd: Systemd) -> None:
    """Not ready yet: the source breaks in the first pass and comes back in the third."""
    bench = managed(Bench(tier_map(118, 430)), SystemdNotifier({"NOTIFY_SOCKET": systemd.path}))
    bench.source.ok = True
    heard: list[str] = []

    def on_poll(count: int) -> None:
        bench.source.ok = False

    bench.source.on_poll = on_poll
    bench.tracking.on_tick = lambda count: (heard.extend(systemd.heard()), interrupt_at(4)(count))
    assert bench.service.run() == ExitCode.OK
    assert not any("READY" in message for message in heard)


def test_waiting_for_a_second_tier_is_ready(systemd: Systemd) -> None:
    bench = Bench(tier_map(118), wait=True)
    manager = SystemdNotifier({"NOTIFY_SOCKET": systemd.path})
    managed(bench, manager)
    bench.service.calls.post(lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert bench.service.run() == ExitCode.OK
    ready, stopping = systemd.heard()
    assert ready == "READY=1\nSTATUS=one tier only: waiting for a second"
    assert stopping.startswith("STOPPING=1\n")


def test_two_beats_fit_into_the_watchdogs_time(systemd: Systemd) -> None:
    now = [0]
    manager = SystemdNotifier(
        {"NOTIFY_SOCKET": systemd.path, "WATCHDOG_USEC": "4000000"}, clock=lambda: now[0]
    )
    beats = []
    for now[0] in range(0, 20 * 10**9, 10**8):
        manager.beat()
        beats += [now[0]] * len(systemd.heard())
    assert max(after - before for before, after in pairwise(beats)) <= 2 * 10**9
    manager.close()


def test_the_loop_feeds_the_watchdog_also_while_it_sleeps(systemd: Systemd) -> None:
    """A tick of a minute, a watchdog of 200 ms: the beats come from the sleeping loop."""
    now = [0]

    def clock() -> int:
        now[0] += 10**9
        return now[0]

    environment = {
        "NOTIFY_SOCKET": systemd.path,
        "WATCHDOG_USEC": "4000000",
        "WATCHDOG_PID": str(os.getpid()),
    }
    bench = managed(Bench(tier_map(118, 430)), SystemdNotifier(environment, clock=clock))
    beats = []

    def on_tick(count: int) -> None:
        beats.append(systemd.heard().count("WATCHDOG=1"))
        if count == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    bench.service.reconfigure(loads(CONFIG.replace("10ms", "3s")))
    bench.service._hurry = False
    bench.tracking.on_tick = on_tick
    assert bench.service.run() == ExitCode.OK
    assert beats[0] == 1
    assert beats[1] >= 3


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": ""},
        {"NOTIFY_SOCKET": "relative"},
        {"NOTIFY_SOCKET": "/nonexistent/socket", "WATCHDOG_USEC": "x"},
        {"NOTIFY_SOCKET": "/nonexistent/socket", "WATCHDOG_USEC": "1"},
    ],
)
def test_without_a_manager_that_listens_nothing_happens(environment: dict[str, str]) -> None:
    manager = SystemdNotifier(environment)
    manager.beat()
    manager.ready("fine")
    manager.reloading()
    manager.reload_result(False, "bad")
    manager.stopping()
    manager.close()
    manager.beat()


def test_a_watchdog_of_another_process_is_not_fed(systemd: Systemd) -> None:
    manager = SystemdNotifier(
        {"NOTIFY_SOCKET": systemd.path, "WATCHDOG_USEC": "1", "WATCHDOG_PID": str(os.getpid() + 1)}
    )
    manager.beat()
    assert systemd.heard() == []


def test_a_failed_reload_is_in_the_status_until_one_works(systemd: Systemd, tmp_path: Path) -> None:
    manager = SystemdNotifier({"NOTIFY_SOCKET": systemd.path})
    bench = managed(Bench(tier_map(118, 430)), manager)
    file = tmp_path / "tierd.toml"
    file.write_text("[loop\n")
    bench.service.reloader = Reloader(lambda: load(file), bench.service.reconfigure)
    bench.service.reloader.listeners.append(manager)
    heard: list[list[str]] = []

    def on_tick(count: int) -> None:
        heard.append(systemd.heard())
        if count == 2:
            os.kill(os.getpid(), signal.SIGHUP)
        if count == 3:
            file.write_text(CONFIG)
            os.kill(os.getpid(), signal.SIGHUP)
        interrupt_at(5)(count)

    bench.tracking.on_tick = on_tick
    assert bench.service.run() == ExitCode.OK
    failed = [m for m in heard[2] if "READY=1" in m or "RELOADING=1" in m]
    assert failed[0].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert failed[1].startswith("READY=1\nSTATUS=reload failed: ")
    assert "not valid TOML" in failed[1]
    worked = [m for m in heard[3] if "READY=1" in m or "RELOADING=1" in m]
    assert worked[1] == "READY=1"
    assert all("reload failed" not in m for message in heard[4:] for m in message)


def test_what_a_file_says_cannot_forge_a_message(systemd: Systemd) -> None:
    manager = SystemdNotifier({"NOTIFY_SOCKET": systemd.path})
    manager.ready("fine\nMAINPID=1\x00")
    manager.reload_result(False, "bad\nWATCHDOG=trigger\n" + "x" * 100_000)
    for message in systemd.heard():
        assert len(message) < 1000
        assert message.count("\n") == 1
