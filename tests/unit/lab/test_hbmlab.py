# SPDX-License-Identifier: Apache-2.0
"""A guest that is lost in the middle of a request is replaced; one that fails is not forgiven."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hbmlab import HbmLab, worst_minute_s

from tierd_lab import GuestError

HANGS, RIGHT, WRONG, FAILS, DIES = "hangs", "right", "wrong", "fails", "dies"
UNBOOTED, TAKEN = "unbooted", "taken"
OUT_OF_MEMORY = "oom-kill:constraint=CONSTRAINT_MEMORY_POLICY"


class Process:
    """guest_hbm.py, in another thread: does as `way` says with each request."""

    stderr = "nothing"

    def __init__(self, shared: Path, way: str, on_line: Any) -> None:
        self.running, self.stdout = True, ""
        self._way, self._shared, self._on_line = way, shared, on_line
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._end.wait(0.01):
            if not (self._shared / "request").exists():
                continue
            (self._shared / "request").unlink()
            if self._way in (FAILS, TAKEN):
                self._on_line(json.dumps({"event": "failed", "why": "no memory"}))
                continue
            self._on_line(json.dumps({"event": "ready"}))
            if self._way in (HANGS, DIES):
                continue
            figures = {"end": {"ok": self._way == RIGHT}}
            (self._shared / "figures").write_text(json.dumps(figures))
            for event in ("end", "done"):
                self._on_line(json.dumps({"event": event}))

    def close(self) -> None:
        self._end.set()
        self._thread.join()


class Answer:
    """Of a command that ended well."""

    stdout = ""

    def check(self) -> Answer:
        return self

    def wait(self, timeout_s: float) -> Answer:
        return self


class Counts:
    region = "modelled"


class Traffic:
    def clear(self, timeout_s: float) -> None: ...
    def start(self, timeout_s: float) -> None: ...
    def stop(self, timeout_s: float) -> None: ...
    def counts(self, timeout_s: float) -> Counts:
        return Counts()


class Guests:
    """Makes guests that do, one after another, as `ways` say."""

    traffic = Traffic()

    def __init__(self, *ways: str) -> None:
        self._ways = list(ways)
        self.processes: list[Process] = []
        self.console = ""

    def __call__(self, *_: Any, share: Any, **__: Any) -> Guests:
        self._shared = share[0].host
        self._way = self._ways.pop(0)
        self.console = {DIES: "Kernel panic - not syncing", TAKEN: OUT_OF_MEMORY}.get(self._way, "")
        return self

    def boot(self) -> None:
        if self._way == UNBOOTED:
            raise GuestError("nothing on its console")

    def run(self, *_: Any, **__: Any) -> Answer:
        return Answer()

    def start(self, *_: Any, on_line: Any = None, **__: Any) -> Process | Answer:
        if on_line is not None:
            self.processes.append(Process(self._shared, self._way, on_line))
            return self.processes[-1]
        if self._way in (HANGS, DIES, UNBOOTED):
            raise GuestError("the guest does not answer")
        return Answer()

    def close(self) -> None:
        for process in self.processes:
            process.close()


def ask(*ways: str) -> HbmLab:
    """A lab that was asked for one run, of 0.3 s at most."""
    with HbmLab(guest=Guests(*ways)) as lab:  # type: ignore[arg-type]
        figures = lab.run(["program"], free={}, limit_s=0.3)
        assert figures == {"end": {"ok": True}, "region": "modelled"}
        return lab


def test_a_lost_guest_is_replaced_and_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(HANGS, RIGHT).boots == 2
    assert "does not answer" in capsys.readouterr().err


def test_a_guest_whose_ballast_took_too_much_is_replaced_once() -> None:
    assert ask(TAKEN, RIGHT).boots == 2
    with pytest.raises(AssertionError, match="no memory"):
        ask(TAKEN, TAKEN)


def test_a_guest_that_is_right_is_kept() -> None:
    assert ask(RIGHT).boots == 1


def test_a_guest_that_is_lost_twice_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no 'end'"):
        ask(HANGS, HANGS)


@pytest.mark.parametrize(("way", "why"), [(FAILS, "no memory"), (WRONG, "wrong"), (DIES, "end")])
def test_what_fails_is_not_tried_again(way: str, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        ask(way, RIGHT)


def test_a_request_after_a_failure_gets_a_new_guest() -> None:
    with HbmLab(guest=Guests(FAILS, RIGHT)) as lab:  # type: ignore[arg-type]
        with pytest.raises(AssertionError):
            lab.run(["program"], free={}, limit_s=5)
        lab.run(["program"], free={}, limit_s=5)
        assert lab.boots == 2


def test_a_guest_that_does_not_boot_is_replaced_once(capsys: pytest.CaptureFixture[str]) -> None:
    with HbmLab(guest=Guests(FAILS, UNBOOTED, RIGHT)) as lab:  # type: ignore[arg-type]
        with pytest.raises(AssertionError, match="no memory"):
            lab.run(["program"], free={}, limit_s=5)
        lab.run(["program"], free={}, limit_s=5)
        assert lab.boots == 3
    assert "its script: not begun" in capsys.readouterr().err


def test_guests_that_do_not_boot_are_an_error() -> None:
    with HbmLab(guest=Guests(FAILS, UNBOOTED, UNBOOTED)) as lab:  # type: ignore[arg-type]
        with pytest.raises(AssertionError, match="no memory"):
            lab.run(["program"], free={}, limit_s=5)
        with pytest.raises(GuestError, match="nothing on its console"):
            lab.run(["program"], free={}, limit_s=5)


def test_the_worst_minute_is_looked_for_within_a_run() -> None:
    end, gain = [0.0, 10.0, 65.0, 200.0], [5.0, -1.0, 2.0, 1.0]
    zeros = np.zeros(4)
    epochs = np.stack([end, zeros, zeros, gain], axis=1)
    assert worst_minute_s(epochs, -5.0, 300.0) == -1.0  # of 3 to 63 s, say
    assert worst_minute_s(epochs[:2], -1.0, 20.0) == 4.0  # a run of less than a minute: all of it
    assert worst_minute_s(epochs[:0], 0.0, 10.0) == 0.0
