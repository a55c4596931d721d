# SPDX-License-Identifier: Apache-2.0
"""A guest that will never answer is started again; one that is only slow is waited for."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from typing import Any

import pytest

from tierd_lab import Guest, GuestError, boot_watch, guest
from tierd_lab.boot_watch import BootWatch, activity

STUCK = b"rcu: rcu_preempt kthread timer wakeup didn't happen for 5251 jiffies! g-1147\n"


class Qemus:
    """In QEMU's place: those of `stuck` say so and wait to be ended, the next one answers."""

    pid = 2**22 + 1
    """Nobody's: what the process ran would be taken for QEMU's."""

    def __init__(self, stuck: int) -> None:
        self.stuck, self.started, self.ended = stuck, 0, 0
        self._end = threading.Event()

    def kill(self) -> None:
        self._end.set()

    def wake(self) -> None:
        pass

    def run(self, *_: Any, agent_fd: int, started: Any, on_output: Any, **__: Any) -> None:
        """As `tierd_lab.run`."""
        self.started += 1
        self._end.clear()
        agent = os.dup(agent_fd)
        started(self)
        if self.started <= self.stuck:
            for half in (STUCK[:30], STUCK[30:]):
                on_output("console", half)
        else:
            os.write(agent, json.dumps({"event": "ready"}).encode() + b"\n")
        assert self._end.wait(30)
        os.close(agent)
        self.ended += 1


@pytest.fixture(autouse=True)
def quickly_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of these answers a request to end."""
    monkeypatch.setattr(guest, "_END_S", 0.2)


def boots(monkeypatch: pytest.MonkeyPatch, stuck: int) -> tuple[Guest, Qemus]:
    """A guest that gets `stuck` times stuck."""
    qemus = Qemus(stuck)
    monkeypatch.setattr(guest, "run", qemus.run)
    return Guest("flat", boot_timeout_s=20), qemus


@pytest.mark.parametrize("stuck", [0, 1, 2])
def test_a_stuck_machine_is_started_again(monkeypatch: pytest.MonkeyPatch, stuck: int) -> None:
    booted, qemus = boots(monkeypatch, stuck)
    with booted:
        assert booted.alive
        assert (booted.boots, qemus.started, qemus.ended) == (stuck + 1, stuck + 1, stuck)
    assert qemus.ended == stuck + 1
    assert not booted.alive


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    booted, qemus = boots(monkeypatch, 9)
    with pytest.raises(GuestError, match=r"3 boots: .* does not come(.|\n)*wakeup didn't happen"):
        booted.boot()
    assert (qemus.started, qemus.ended) == (3, 3)


def test_the_time_for_all_boots_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    booted, qemus = boots(monkeypatch, 9)
    monkeypatch.setattr(boot_watch, "_NO_TIMER", re.compile("never said"))
    monkeypatch.setattr(booted, "_boot_timeout_s", 1.0)
    with pytest.raises(GuestError, match=r"1 boots; the end"):
        booted.boot()
    assert (qemus.started, qemus.ended) == (1, 1)


class Qemu:
    """A process whose threads run and wait for a processor for given shares of the time."""

    def __init__(self, ran: float, waited: float) -> None:
        self.shares, self.now = (ran, waited), 100.0

    def watched_for(self, seconds: int) -> str:
        """What a watch says that is asked each second."""
        watch = BootWatch(lambda _: (self.at(0), self.at(1)), lambda: self.now)
        for _ in range(seconds):
            self.now += 1
            if why := watch.stuck(1, "[    0.0] Linux version 6.1"):
                return f"{why}, after {self.now - 100:.0f}"
        return ""

    def at(self, which: int) -> float:
        return (self.now - 100) * self.shares[which]


def test_a_machine_that_sleeps_is_stuck() -> None:
    assert Qemu(0.01, 0.0).watched_for(900) == "QEMU slept for 30 s, after 30"


def test_a_machine_that_turns_for_ever_is_stuck() -> None:
    assert Qemu(1.0, 0.0).watched_for(900) == "QEMU used 241 s of processor time, after 241"


def test_a_machine_on_a_busy_host_is_not() -> None:
    assert Qemu(0.02, 0.9).watched_for(900) == ""
    assert Qemu(0.2, 0.0).watched_for(900) == ""


@pytest.mark.parametrize("pid", [0, 1])
def test_a_machine_whose_activity_is_not_known_is_not(pid: int) -> None:
    now = iter(range(0, 900, 40))
    watch = BootWatch(lambda _: (0.0, 0.0), lambda: next(now))
    assert [watch.stuck(pid, "") for _ in range(9)] == [""] * 9


def test_the_activity_of_a_process_is_what_it_ran_and_waited() -> None:
    begin = activity(os.getpid())[0]
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert activity(os.getpid())[0] - begin >= 0.15
    assert activity(2**22 + 1) == (0.0, 0.0)
