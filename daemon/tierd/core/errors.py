# SPDX-License-Identifier: Apache-2.0
"""The exceptions tierd raises about the host, its configuration and its targets."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterable


class ExitCode(enum.IntEnum):
    """Exit codes of every tierd command (the numbers are part of the interface)."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    """Bad command line (argparse's own number)."""
    CONFIG = 3
    """The configuration is wrong; nothing was started."""
    NOTHING_TO_DO = 4
    """The host has one tier only: there is nothing to move between."""
    UNAVAILABLE = 5
    """The host lacks an ability that the command needs (kernel, package, privilege)."""
    TIMEOUT = 6
    """A bounded wait ran out (a lab guest that hung)."""


class TierdError(Exception):
    """A failed expectation, told as what was tried, what was found, what to do.

    Args:
        message: what was tried and what was found, one sentence.
        hint: what the operator can do about it, or an empty string.
    """

    exit_code = ExitCode.FAILURE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(TierdError):
    """A configuration mistake; `path` is the dotted path of the key."""

    exit_code = ExitCode.CONFIG

    def __init__(self, path: str, message: str, *, hint: str = "", file: str = "") -> None:
        where = f"{file}: {path}" if file and path else file or path
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.path = path
        self.file = file


class UnavailableError(TierdError):
    """The host lacks what was asked for; the message says what is missing."""

    exit_code = ExitCode.UNAVAILABLE


class TargetGoneError(TierdError):
    """The process ended, or its number belongs to another process now."""


class UnjudgeableError(TierdError):
    """Whether a process is meant cannot be told from here."""


class HiddenProgramError(UnjudgeableError):
    """The kernel shows the program of a process only to who may trace it."""


class NotAnsweringError(TargetGoneError):
    """The kernel gives no answer about the process for now.

    Somebody holds the lock of its memory maps, or the host lacks memory or descriptors.

    Whoever looks at processes leaves it out and comes back later, as if it had gone.
    """


class SecondMmuError(TierdError):
    """A virtual machine or a device uses the process's memory unseen by accessed bits."""


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The hint that names the nearest word that is known, if one is near."""
    import difflib  # only a mistake needs it

    near = difflib.get_close_matches(word[:100], list(known), n=1, cutoff=cutoff)
    return f"did you mean {near[0]!r}?" if near else ""


def exit_code_of(program: str, command: Callable[[], int]) -> int:
    """Run a command of `program`; a `TierdError` becomes a message on stderr and an exit code."""
    try:
        return int(command())
    except TierdError as error:
        print(f"{program}: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return 128 + 2
    except BrokenPipeError:
        return int(ExitCode.FAILURE)
