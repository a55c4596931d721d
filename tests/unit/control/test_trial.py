# SPDX-License-Identifier: Apache-2.0
"""`tierd trial`: what pairs of windows prove, and how the service is switched for them."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.cli import _meters, build_parser, trial, undo
from tierd.control.protocol import UNDO_REASON, AnswerError
from tierd.core.errors import ExitCode, TierdError, UnavailableError
from tierd.observe.trial import LEAST_PAIRS, Answer, _edge, verdict


def test_the_interval_is_that_of_the_tables() -> None:
    """Critical values of the signed-rank test, two-sided 0.05 (Hollander and Wolfe, table A.4)."""
    assert [_edge(n) for n in (6, 7, 8, 9, 10, 12, 15, 20)] == [0, 2, 3, 5, 8, 13, 25, 52]


@pytest.mark.parametrize("pairs", [6, 8, 12])
def test_the_interval_holds_the_truth_as_often_as_it_says(pairs: int) -> None:
    """By heavy-tailed noise, which is not normal; four thousand trials."""
    random = np.random.default_rng(pairs)
    noise = random.standard_t(2, (4000, pairs)) * 0.03
    held = 0
    for each in noise:
        found = verdict(np.exp(math.log(1.2) + each).tolist(), 0.01)
        held += found.low <= 0.2 <= found.high
    assert held / 4000 >= 0.95


def test_without_a_gain_it_seldom_pays() -> None:
    random = np.random.default_rng(1)
    answers = [
        verdict(np.exp(random.normal(0, 0.05, 8)).tolist(), 0.01).answer for _ in range(4000)
    ]
    assert answers.count(Answer.PAYS) / 4000 <= 0.025


@given(st.lists(st.floats(0.2, 5), min_size=LEAST_PAIRS, max_size=12), st.floats(0, 0.2))
def test_the_order_of_pairs_does_not_matter_and_what_is_said_holds(
    ratios: list[float], worthwhile: float
) -> None:
    found = verdict(ratios, worthwhile)
    assert found == verdict(ratios[::-1], worthwhile)
    assert found.low <= found.gain <= found.high
    if found.answer is Answer.PAYS:
        assert found.low > 0
        assert found.gain >= worthwhile
    if found.answer is Answer.DOES_NOT_PAY:
        assert found.high < worthwhile
    turned = verdict([1 / each for each in ratios], worthwhile)
    assert 1 + turned.gain == pytest.approx(1 / (1 + found.gain))


def test_few_pairs_prove_nothing_however_large_the_gain() -> None:
    assert verdict([3.0] * (LEAST_PAIRS - 1), 0.01).answer is Answer.CANNOT_TELL
    assert verdict([3.0] * LEAST_PAIRS, 0.01).answer is Answer.PAYS
    assert verdict([1.001, 0.999] * 4, 0.01).answer is Answer.DOES_NOT_PAY
    assert verdict([1.5, 0.7] * 4, 0.01).answer is Answer.CANNOT_TELL


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_ratio_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="ratios"):
        verdict([1.0] * 6 + [wrong], 0.01)


class Service:
    """A service that speeds a load up while it acts, once pages have come to their places."""

    def __init__(self, gain: float) -> None:
        self.gain, self.now, self.acting, self.since = gain, 100.0, True, 0.0
        self.asked: list[str] = []
        self.to_undo = 0
        self.moves = self.may_change = True
        self.pause: dict[str, Any] | None = None
        self.dry_run = self.stands_down = False
        self.left_alone: dict[str, int] = {}
        self.stuck = itertools.cycle([True, False, False])

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def ask(self, command: str, **args: Any) -> Any:
        del args
        if next(self.stuck):
            raise AnswerError("stuck", "the control loop did not answer", "")
        if command != "status":
            self.asked.append(command)
            self.acting, self.since = command == "resume", self.now
            self.to_undo = 3 if command == "undo" else 0
        self.to_undo = max(0, self.to_undo - 1)
        undo = {
            "active": self.to_undo > 0,
            "pages_left": self.to_undo,
            "put_back": 100 if self.moves else 0,
            "left_alone": self.left_alone,
        }
        return {
            "paused": self.pause or (None if self.acting else {"reason": UNDO_REASON}),
            "dry_run": self.dry_run,
            "may_change": self.may_change,
            "note": "",
            "pid": os.getpid(),
            "undo": undo,
            "totals": {
                "moved_bytes": 4096 * len(self.asked) if self.moves else 0,
                "account": {"stands_down": self.stands_down},
            },
        }

    def rate(self) -> float:
        assert not self.to_undo, "measured while pages are put back"
        settled = self.now - self.since >= (30 if self.acting else 10)
        assert settled, "measured before the end of the wait"
        return 1000.0 * (self.gain if self.acting else 1.0)


class FakeMeter:
    def __init__(self, service: Service) -> None:
        self._service = service

    def over(self, seconds: float, clock: Any, sleep: Any) -> float:
        value = self._service.rate() * (1 + 0.001 * math.sin(clock()))
        sleep(seconds)
        return value


def tried(monkeypatch: pytest.MonkeyPatch, service: Service, *options: str) -> int:
    monkeypatch.setattr(trial, "connect", lambda args: service)
    monkeypatch.setattr(trial, "Meter", lambda command, counter: FakeMeter(service))
    own = trial.Trial.__init__

    def made(self: Any, client: Any, meter: Any, args: Any) -> None:
        def sleep(seconds: float) -> None:
            service.now += seconds

        own(self, client, meter, args, clock=lambda: service.now, sleep=sleep)

    monkeypatch.setattr(trial.Trial, "__init__", made)
    args = build_parser("trial").parse_args(["trial", "--measure", "true", "--seed", "5", *options])
    return int(args.run(args))


@pytest.mark.parametrize(
    ("gain", "options", "answer"),
    [
        (1.2, [], Answer.PAYS),
        (0.8, ["--lower-is-better"], Answer.PAYS),
        (1.0, [], Answer.DOES_NOT_PAY),
        (0.9, [], Answer.DOES_NOT_PAY),
        (1.2, ["--worthwhile", "0.3"], Answer.DOES_NOT_PAY),
    ],
)
def test_a_trial_finds_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gain: float,
    options: list[str],
    answer: Answer,
) -> None:
    service = Service(gain)
    code = tried(monkeypatch, service, "--json", *options)
    assert code == (ExitCode.OK if answer is Answer.PAYS else ExitCode.NOTHING_TO_DO)
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["answer"] == answer
    assert told["gain"] == pytest.approx((1 / gain if gain == 0.8 else gain) - 1, abs=0.003)
    assert len(told["windows"]) == 16
    assert sum(each["acting"] for each in told["windows"]) == 8
    orders = {each["acting"] for each in told["windows"][::2]}
    assert orders == {True, False}, "the order is random"
    assert err.count("[") == 16
    assert service.asked[-1] == "resume"
    assert service.acting


@pytest.mark.parametrize("gain", [1.0, 1.2])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_where_nothing_was_moved_a_trial_never_says_that_it_pays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], gain: float, noise: float
) -> None:
    service, chance = Service(gain), random.Random(1)
    service.moves = False
    monkeypatch.setattr(
        FakeMeter,
        "over",
        lambda self, seconds, clock, sleep: service.rate() * (1 + noise * chance.random()),
    )
    answer = Answer.DOES_NOT_PAY if gain == 1.0 and not noise else Answer.CANNOT_TELL
    assert tried(monkeypatch, service, "--json") == trial.EXIT_CODES[answer]
    told = json.loads(capsys.readouterr().out)
    assert told["answer"] == answer
    assert ("moved no page in any window" in told["why"]) == (answer is Answer.CANNOT_TELL)


def test_a_trial_that_ends_at_once_says_that_pairs_are_too_few(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service(1.2)
    service.moves = False

    def over(self: Any, seconds: float, clock: Any, sleep: Any) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeMeter, "over", over)
    assert tried(monkeypatch, service, "--json") == ExitCode.TIMEOUT
    assert "too few" in json.loads(capsys.readouterr().out)["why"]


@pytest.mark.parametrize("ends", [KeyboardInterrupt, UnavailableError("no number")])
def test_whatever_ends_a_trial_the_service_acts_again(
    monkeypatch: pytest.MonkeyPatch, ends: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service(1.2)

    def over(self: Any, seconds: float, clock: Any, sleep: Any) -> float:
        if "undo" in service.asked:
            raise ends
        return 1.0

    monkeypatch.setattr(FakeMeter, "over", over)
    if ends is KeyboardInterrupt:
        # What was measured until then counts: too little.
        assert tried(monkeypatch, service, "--json") == ExitCode.TIMEOUT
        assert json.loads(capsys.readouterr().out)["answer"] == Answer.CANNOT_TELL
    else:
        with pytest.raises(UnavailableError, match="no number"):
            tried(monkeypatch, service)
    assert service.asked[-1] == "resume"
    assert service.acting


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_ends_a_trial_as_ctrl_c_does(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    service, before = Service(1.2), signal.getsignal(number)

    def over(self: Any, seconds: float, clock: Any, sleep: Any) -> float:
        if "undo" in service.asked:
            signal.raise_signal(number)
        return 1.0

    monkeypatch.setattr(FakeMeter, "over", over)
    assert tried(monkeypatch, service) == ExitCode.TIMEOUT
    assert service.acting
    assert signal.getsignal(number) == before


def test_a_pause_of_somebody_else_ends_a_trial_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(1.2)

    def over(self: Any, seconds: float, clock: Any, sleep: Any) -> float:
        service.pause = {"reason": "an incident"}
        return 1.0

    monkeypatch.setattr(FakeMeter, "over", over)
    with pytest.raises(TierdError, match="somebody paused"):
        tried(monkeypatch, service)
    assert "resume" not in service.asked


def test_a_service_that_stands_down_meanwhile_is_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(1.2)

    def over(self: Any, seconds: float, clock: Any, sleep: Any) -> float:
        service.stands_down = True
        return 1.0

    monkeypatch.setattr(FakeMeter, "over", over)
    with pytest.raises(TierdError, match="stood down"):
        tried(monkeypatch, service, "--pairs", "6")
    assert service.acting


def test_options_about_a_number_need_the_number() -> None:
    args = build_parser("trial").parse_args(["trial", "--lower-is-better"])
    with pytest.raises(UnavailableError, match="--measure"), trial._meter(args, {}):
        pass


def test_a_trial_that_cannot_measure_asks_the_service_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service(1.2)
    monkeypatch.setattr(trial, "connect", lambda args: service)
    args = build_parser("trial").parse_args(["trial", "--counter"])
    with pytest.raises(UnavailableError, match="--measure"):
        args.run(args)
    assert service.asked == []


def test_windows_without_must_be_without(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(1.2)
    service.left_alone = {"not_moved": 101}
    with pytest.raises(TierdError, match="101 pages could not be put back"):
        tried(monkeypatch, service)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pause", {"reason": "x"}),
        ("dry_run", True),
        ("stands_down", True),
        ("may_change", False),
    ],
)
def test_a_service_that_does_not_act_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    service = Service(1.2)
    setattr(service, name, value)
    with pytest.raises(UnavailableError):
        tried(monkeypatch, service)
    assert service.asked == []


class Time:
    now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_counter_counts_by_its_rate_and_else_samples_by_their_mean(tmp_path: Path) -> None:
    file, time = tmp_path / "value", Time()

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        file.write_text(f"{1000 + 20 * time.now}\n")

    file.write_text("1000")
    counted = _meters.Meter(f"cat {file}", counter=True)
    assert counted.over(10, lambda: time.now, sleep) == pytest.approx(20)
    time.now = 0
    file.write_text("1000")
    sampled = _meters.Meter(f"cat {file}", counter=False)
    assert sampled.over(10, lambda: time.now, sleep) == pytest.approx(1100)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("exit 3", "ended with 3"),
        ("echo many", "could not convert"),
        ("echo 0", "is 0"),
        ("echo inf", "printed inf"),
        ("sleep 9", "timed out"),
    ],
)
def test_a_measure_that_gives_no_number_is_told(
    command: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "timed out" in why:
        monkeypatch.setattr(_meters, "MEASURE_S", 0.2)
    time = Time()
    with pytest.raises(UnavailableError, match=why):
        _meters.Meter(command, counter=False).over(1, lambda: time.now, time.sleep)


@pytest.mark.parametrize(
    ("left_alone", "code"),
    [({}, ExitCode.OK), ({"gone": 3}, ExitCode.OK), ({"refused": 3}, ExitCode.FAILURE)],
)
def test_undo_is_followed_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    left_alone: dict[str, int],
    code: ExitCode,
) -> None:
    service = Service(1.0)
    service.left_alone = left_alone
    service.stuck = itertools.chain([False], itertools.cycle([True, False]))  # type: ignore[assignment]
    monkeypatch.setattr(undo, "connect", lambda args: service)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    args = build_parser("undo").parse_args(["undo"])
    assert args.run(args) == code
    out, err = capsys.readouterr()
    assert "put back: 100 pages" in out
    assert "1 pages are to be put back" in err
    assert all(f"{reason}: {pages}" in out for reason, pages in left_alone.items())
    args = build_parser("undo").parse_args(["undo", "--no-wait", "--json"])
    service.stuck = itertools.repeat(False)  # type: ignore[assignment]
    assert args.run(args) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["active"] is True
