# SPDX-License-Identifier: Apache-2.0
"""`tierd trial`: does tiering pay on this host? It is measured with tierd and without, by turns."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tierd.cli._client import add_arguments as add_common
from tierd.cli._client import connect
from tierd.cli._meters import InstructionMeter, Meter, counting
from tierd.cli.undo import NOT_PUT_BACK, ask_patiently, undone
from tierd.control.protocol import UNDO_REASON, Client
from tierd.core.errors import ExitCode, TierdError, UnavailableError
from tierd.core.units import format_size, parse_duration_ns
from tierd.observe.trial import LEAST_PAIRS, Answer, verdict, without_moves

EXIT_CODES: Final = {
    Answer.PAYS: ExitCode.OK,
    Answer.DOES_NOT_PAY: ExitCode.NOTHING_TO_DO,
    Answer.CANNOT_TELL: ExitCode.TIMEOUT,
}


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time with tierd acting, or with its moves undone."""

    acting: bool
    measure: float
    cpu_share: float
    moved_bytes_per_s: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd trial`."""
    add_common(parser)
    parser.add_argument(
        "--measure",
        metavar="COMMAND",
        help="a command of the shell that prints one number, more for better (default: instructions"
        " a second of the control groups of the watched processes, where the CPU counts them)",
    )
    parser.add_argument(
        "--counter", action="store_true", help="the number only grows: its rate is what counts"
    )
    parser.add_argument(
        "--lower-is-better", action="store_true", help="such as a latency, or the time of a query"
    )
    for name, default, what in (
        ("--window", "60s", "what is measured in each window"),
        ("--settle", "30s", "time for pages to come to their places, before a window with tierd"),
        ("--wash-out", "10s", "time after an undo, before a window without"),
    ):
        parser.add_argument(name, type=_seconds, default=_seconds(default), metavar="TIME",
                            help=f"{what} (default: {default})")  # fmt: skip
    parser.add_argument(
        "--pairs", type=_pairs, default=8, metavar="N", help=f"at least {LEAST_PAIRS} (default: 8)"
    )
    parser.add_argument(
        "--worthwhile",
        type=float,
        default=0.01,
        metavar="SHARE",
        help="a gain below this does not pay (default: 0.01)",
    )
    parser.add_argument("--seed", type=int, default=None, help="of the random order")


def _seconds(text: str) -> float:
    try:
        return parse_duration_ns(text) / 1e9
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _pairs(text: str) -> int:
    if int(text) < LEAST_PAIRS:
        raise argparse.ArgumentTypeError(f"at least {LEAST_PAIRS}: fewer prove nothing")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run all windows; whatever ends them, the service acts afterwards as it did before."""
    windows: list[Window] = []
    with connect(args) as client, contextlib.ExitStack() as opened:
        status = ask_patiently(client, "status")
        _check(status)
        trial = Trial(client, opened.enter_context(_meter(args, status)), args)
        with _acting_again(args), _ended_by_signals():
            try:
                for window in trial.windows(random.Random(args.seed)):
                    windows.append(window)
            except KeyboardInterrupt:
                print("ended early: whole pairs count", file=sys.stderr)
    return EXIT_CODES[_conclude(windows, args)]


def _conclude(windows: list[Window], args: argparse.Namespace) -> Answer:
    """What whole pairs of windows say; told as asked for."""
    whole = len(windows) // 2 * 2
    pairs = zip(windows[:whole:2], windows[1:whole:2], strict=True)
    ordered = [sorted(pair, key=lambda each: each.acting) for pair in pairs]
    ratios = [
        off.measure / on.measure if args.lower_is_better else on.measure / off.measure
        for off, on in ordered
    ]
    found = verdict(ratios, args.worthwhile)
    if len(ratios) >= LEAST_PAIRS and not any(each.moved_bytes_per_s for each in windows[:whole]):
        found = without_moves(found)
    acting = [each for each in windows if each.acting]
    told = {
        **asdict(found),
        "high": found.high if math.isfinite(found.high) else None,
        "pairs": len(ratios),
        "ratios": [round(each, 6) for each in ratios],
        "cpu_share": sum(each.cpu_share for each in acting) / max(1, len(acting)),
        "moved_bytes_per_s": sum(each.moved_bytes_per_s for each in acting) / max(1, len(acting)),
        "windows": [asdict(each) for each in windows],
    }
    if args.json:
        print(json.dumps(told))
    else:
        print(f"tiering {found.answer} here: {found.why}")
        print(
            f"  with it, the service took {told['cpu_share']:.2%} of a CPU and moved "
            f"{format_size(told['moved_bytes_per_s'])} a second"
        )
    return found.answer


@contextlib.contextmanager
def _meter(args: argparse.Namespace, status: dict[str, Any]) -> Iterator[Meter | InstructionMeter]:
    """What was asked for is measured, or else instructions of the watched processes' groups."""
    if args.measure is not None:
        yield Meter(args.measure, counter=args.counter)
        return
    if args.counter or args.lower_is_better:
        raise UnavailableError("--counter and --lower-is-better are about the number of --measure")
    groups = [each["cgroup"] for each in status["targets"]["groups"]]
    with contextlib.closing(counting(groups)) as instructions:
        yield InstructionMeter(instructions)


def _check(status: dict[str, Any]) -> None:
    """Whether a trial can say anything. Raises UnavailableError: it cannot."""
    if not status.get("may_change", True):  # an older service does not say
        raise UnavailableError("a trial has the service undo its moves, for which it needs root")
    if status["paused"] is not None:
        raise UnavailableError(
            "the service is paused, and a trial begins and ends with it acting", hint="tierd resume"
        )
    if status["totals"]["account"].get("stands_down"):
        raise UnavailableError(
            "the service stands down, because it has found that moving does not pay",
            hint="tierd resume has it act",
        )
    if status["dry_run"]:
        raise UnavailableError("the service is on a dry run, in which nothing moves")


@contextlib.contextmanager
def _acting_again(args: argparse.Namespace) -> Iterator[None]:
    """End the trial's own pause, by a new connection: the service may have been started again."""
    try:
        yield
    finally:
        with connect(args) as client:
            paused = ask_patiently(client, "status")["paused"]
            if paused is not None and paused["reason"] == UNDO_REASON:
                ask_patiently(client, "resume")


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Have a closed terminal and SIGTERM end the block as Ctrl-C does."""

    def end(number: int, frame: object) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = {each: signal.signal(each, end) for each in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class Trial:
    """Alternates windows."""

    def __init__(
        self,
        client: Client,
        meter: Meter | InstructionMeter,
        args: argparse.Namespace,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._meter, self._args = client, meter, args
        self._clock, self._sleep = clock, sleep
        self._pid = int(ask_patiently(client, "status")["pid"])
        self._acting = True

    def windows(self, order: random.Random) -> Iterator[Window]:
        """Two windows a pair, one with and one without tierd, in random order."""
        count = 2 * self._args.pairs
        for pair in range(self._args.pairs):
            for half, acting in enumerate(order.choice(((True, False), (False, True)))):
                begun, before = self._clock(), self._spent()
                self._switch(acting=acting)
                measure = self._meter.over(self._args.window, self._clock, self._sleep)
                self._check(acting=acting)
                seconds = self._clock() - begun
                cpu_s, moved = (now - then for now, then in zip(self._spent(), before, strict=True))
                window = Window(acting, measure, cpu_s / seconds, moved / seconds)
                number = 2 * pair + half + 1
                what = "with tierd" if acting else "without"
                print(f"[{number}/{count}] {what}: {measure:.6g}", file=sys.stderr, flush=True)
                yield window

    def _switch(self, *, acting: bool) -> None:
        if acting:
            if not self._acting:
                ask_patiently(self._client, "resume")
            self._sleep(self._args.settle)
        else:
            if self._acting:
                ask_patiently(self._client, "undo")
                while undone(self._client)["active"]:
                    self._sleep(min(1.0, self._args.window))
            self._sleep(self._args.wash_out)
        self._acting = acting

    def _check(self, *, acting: bool) -> None:
        """Whether the window was what it should be.

        Raises:
            TierdError: somebody else paused or resumed the service, or most pages stayed.
        """
        status = ask_patiently(self._client, "status")
        paused, undo = status["paused"], status["undo"]
        if acting != (paused is None) or (paused is not None and paused["reason"] != UNDO_REASON):
            raise TierdError("somebody paused or resumed the service during a window of the trial")
        if acting and status["totals"]["account"].get("stands_down"):
            raise TierdError(
                "the service has stood down in a window: moving does not pay, it found"
            )
        left = sum(undo["left_alone"].get(reason, 0) for reason in NOT_PUT_BACK)
        if not acting and left > undo["put_back"]:
            raise TierdError(
                f"{left} pages could not be put back, so that a window without tierd has its moves",
                hint="tierd undo says why",
            )

    def _spent(self) -> tuple[float, float]:
        """CPU seconds of the service, and bytes that it has moved, since its start."""
        status: dict[str, Any] = ask_patiently(self._client, "status")
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        except OSError as error:
            raise TierdError(f"tierd (process {self._pid}) has ended: {error.strerror}") from None
        ticks = int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK"), float(status["totals"]["moved_bytes"])
