# SPDX-License-Identifier: Apache-2.0
"""What a trial measures: the number that a command prints, or instructions of the processes."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from tierd.core.errors import UnavailableError

if TYPE_CHECKING:
    from tierd.observe.instructions import Instructions

MEASURE_S: Final = 30.0
"""A measure that takes longer is none."""


def counting(groups: Collection[str]) -> Instructions:
    """Counters of these groups' instructions. Raises UnavailableError: there is no such count."""
    # Imported here: a command that measures needs neither perf events nor NumPy.
    from tierd.observe.instructions import Instructions
    from tierd.observe.metrics.values import OTHER

    if OTHER in groups:
        raise UnavailableError(
            "processes are in more control groups than metrics.groups has the service tell",
            hint="give a --measure, or set metrics.groups",
        )
    if "/" in groups:
        raise UnavailableError(
            "a watched process is in the root control group, with all of the host and tierd itself",
            hint="give a --measure",
        )
    return Instructions(groups)


class InstructionMeter:
    """Instructions a second of control groups."""

    def __init__(self, instructions: Instructions) -> None:
        self._instructions = instructions

    def over(
        self, seconds: float, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> float:
        """The mean of so many seconds. Raises UnavailableError: none of the processes ran."""
        start, first = clock(), self._instructions.read()
        sleep(seconds)
        rate = (self._instructions.read() - first) / (clock() - start)
        if rate <= 0:
            raise UnavailableError(
                "no watched process ran in a window", hint="is the load running?"
            )
        return rate


class Meter:
    """Asks a command of the shell for its number; that of a `counter` only grows."""

    def __init__(self, command: str, *, counter: bool) -> None:
        self._command = command
        self._counter = counter

    def over(
        self, seconds: float, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> float:
        """The measure of so many seconds: a counter's rate, or else the mean of samples.

        Raises:
            UnavailableError: the command fails, or prints no number above 0.
        """
        start, first = clock(), self._read()
        if self._counter:
            sleep(seconds)
            value = (self._read() - first) / (clock() - start)
        else:
            samples = [first]
            while (left := start + seconds - clock()) > 0:
                sleep(min(left, seconds / 10))
                samples.append(self._read())
            value = sum(samples) / len(samples)
        if not value > 0:
            raise UnavailableError(
                f"the measure of a window is {value:g}, and a gain is a ratio",
                hint="is the load running? --counter is for numbers that only grow",
            )
        return value

    def _read(self) -> float:
        try:
            done = subprocess.run(
                self._command,
                shell=True,
                capture_output=True,
                text=True,
                check=False,
                timeout=MEASURE_S,
            )
            if done.returncode:
                raise ValueError(f"it ended with {done.returncode}: {done.stderr.strip()[-200:]}")
            value = float(done.stdout)
            if not math.isfinite(value):
                raise ValueError(f"it printed {value}")
            return value
        except (ValueError, subprocess.TimeoutExpired) as error:
            raise UnavailableError(
                f"--measure gave no number: {error}", hint=f"try it: {self._command}"
            ) from None
