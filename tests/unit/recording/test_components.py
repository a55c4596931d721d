# SPDX-License-Identifier: Apache-2.0
"""Components that decide: one table records their calls and makes them again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from tierd.observe.recording import RecordingError
from tierd.observe.recording.codec import plain
from tierd.observe.recording.records import Call
from tierd.replay.component import Component, Method, Replayed

AROUND: Any = None


class Adder:
    """Decides a sum; asks somebody for a part of it."""

    def __init__(self, start: int) -> None:
        self.sum = start

    def add(self, ask: Any, *, times: int) -> int:
        for _ in range(times):
            self.more(ask())
        return self.sum

    def more(self, amount: int) -> None:
        self.sum += amount


class Asked:
    def __init__(self, ask: Any) -> None:
        self.ask, self.answers = ask, list[int]()

    def __call__(self) -> int:
        self.answers.append(self.ask())
        return self.answers[-1]


ADDER = Component(
    "adder",
    Adder,
    {
        "add": Method(
            keywords=("times",),
            wrap=lambda _, ask, times: (Asked(ask), times),
            given=lambda _, ask, times: [times],
            asked=lambda _, result, ask, times: [ask.answers],
            arguments=lambda _, times, answers: (iter(answers).__next__, times),
        ),
        "more": Method(
            given=lambda _, amount: [amount] if amount else None,
            decided=lambda *_: [],
        ),
    },
    given=lambda start: [start],
    state=lambda adder: [adder.sum],
    many=True,
)


def recorded() -> list[Call]:
    calls: list[Call] = []

    def journal(kind: str, given: Sequence[object], decided: Sequence[object]) -> None:
        calls.append(Call(kind, plain(given), plain(decided)))

    one = ADDER.recorded(journal, "one")(5)
    other = ADDER.recorded(journal, "other")(0)
    assert one.add(lambda: 2, times=3) == 11
    one.more(0)
    other.more(4)
    return calls


def test_calls_are_written_without_those_that_they_make_themselves() -> None:
    assert [(call.kind, call.given, call.decided) for call in recorded()] == [
        ("adder.new", ["one", 5], [5]),
        ("adder.new", ["other", 0], [0]),
        ("adder.add", ["one", 3, [2, 2, 2]], [11, 11]),
        ("adder.more", ["other", 4], [4]),
    ]


def test_each_call_decides_the_same_again() -> None:
    again = Replayed([ADDER], {})
    for call in recorded():
        assert plain(again.decide(call, AROUND)) == call.decided


@pytest.mark.parametrize(
    "call",
    [
        Call("adder.more", ["one", 1], []),
        Call("adder.new", [], []),
        Call("adder.new", ["one", 1, 2], []),
        Call("adder.new", ["one", math.nan], []),
        Call("adder.new", ["one", 1 << 63], []),
        Call("adder.less", ["one"], []),
        Call("nobody.new", [], []),
        Call("adder", ["one"], []),
    ],
    ids=lambda call: f"{call.kind} {call.given}",
)
def test_calls_that_nobody_made_are_one_error(call: Call) -> None:
    with pytest.raises(RecordingError, match="makes no sense"):
        Replayed([ADDER], {}).decide(call, AROUND)
