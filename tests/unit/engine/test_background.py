# SPDX-License-Identifier: Apache-2.0
"""What runs beside the loop: started, closed, and never able to end it."""

from __future__ import annotations

import contextlib

import pytest

from tierd.core.errors import UnavailableError
from tierd.engine.components import beside


class BackgroundService:
    def __init__(self, name: str, log: list[str], error: Exception | None = None) -> None:
        self.name, self.log, self.error = name, log, error

    def start(self) -> None:
        self.log.append(f"start {self.name}")
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.log.append(f"close {self.name}")
        if self.error is not None:
            raise ValueError("close fails too")


def test_companions_are_closed_in_the_other_order_whatever_ends_the_block() -> None:
    log: list[str] = []
    with (
        contextlib.suppress(KeyError),
        beside([BackgroundService("a", log), BackgroundService("b", log)]),
    ):
        log.append("loop")
        raise KeyError
    assert log == ["start a", "start b", "loop", "close b", "close a"]


@pytest.mark.parametrize("error", [UnavailableError("no GPU", hint="buy one"), OSError("boom")])
def test_one_that_does_not_start_is_told_of_and_the_loop_runs(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []
    with caplog.at_level("WARNING", "tierd"), beside([BackgroundService("a", log, error)]):
        log.append("loop")
    assert log == ["start a", "loop", "close a"]
    assert "name=a" in caplog.text
    assert str(error.args[0]) in caplog.text
