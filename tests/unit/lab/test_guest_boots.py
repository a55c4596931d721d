# SPDX-License-Identifier: Apache-2.0
"""A guest whose kernel lost a timer while it booted is started again."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import pytest

from tierd_lab import Guest, GuestError, guest

STUCK = b"rcu: rcu_preempt kthread timer wakeup didn't happen for 5251 jiffies! g-1147\n"


class Qemus:
    """In QEMU's place: those of `stuck` say so and wait to be ended, the next one answers."""

    pid = 1

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
    monkeypatch.setattr(booted, "_boot_timeout_s", 3.0)
    with pytest.raises(GuestError, match=r"3 s and 3 boots.*\n.*timer wakeup didn't happen"):
        booted.boot()
    assert (qemus.started, qemus.ended) == (3, 3)
