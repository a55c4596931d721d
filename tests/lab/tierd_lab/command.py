# SPDX-License-Identifier: Apache-2.0
"""A command in a guest: while it runs, and what came of it."""

from __future__ import annotations

import base64
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tierd_lab.session import GuestError

if TYPE_CHECKING:
    from tierd_lab.guest import Guest

_GRACE_S: Final = 30.0
"""How much later than a command's own time the host gives up on the guest."""


def encode(data: bytes | str) -> str:
    """Bytes in the form in which the agent takes them."""
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What came of one command in a guest.

    Attributes:
        argv: the command.
        status: exit status; negative: the signal that ended it.
        stdout, stderr: all it wrote, as text.
        timed_out: True if it was killed because its time was up.
    """

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    timed_out: bool

    def check(self) -> CommandResult:
        """This result, if the command succeeded.

        Raises:
            GuestError: it did not.
        """
        if self.status != 0 or self.timed_out:
            why = "ran out of time" if self.timed_out else f"ended with status {self.status}"
            said = (self.stderr or self.stdout).strip()[-2000:]
            raise GuestError(f"in the guest, {' '.join(self.argv)} {why}: {said}")
        return self


class GuestProcess:
    """A command that runs in a guest. Made by `Guest.start`."""

    def __init__(self, guest: Guest, job: int, argv: tuple[str, ...], timeout_s: float) -> None:
        self.argv = argv
        self.pid = 0
        self._guest = guest
        self._job = job
        self._deadline = time.monotonic() + timeout_s + _GRACE_S
        self._said: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._ended: dict[str, Any] | None = None
        self._failed = ""
        self.on_line: Callable[[str], None] | None = None
        self._partial = b""

    def take(self, message: dict[str, Any]) -> None:
        """Take a message of the agent; called by the guest's reader with its lock held."""
        event = message["event"]
        if event in self._said:
            data = base64.b64decode(message["data"])
            self._said[event] += data
            if event == "stdout" and self.on_line:
                *lines, self._partial = (self._partial + data).split(b"\n")
                for line in lines:
                    self.on_line(line.decode("utf-8", "replace"))
        elif event == "started":
            self.pid = message["pid"]
        elif event == "failed":
            self._failed = message["message"]
        elif event == "ended":
            self._ended = message

    @property
    def running(self) -> bool:
        """True until the command has ended."""
        return self._ended is None and not self._failed and self._guest.alive

    @property
    def stdout(self) -> str:
        """What it has written so far."""
        return self._said["stdout"].decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """What it has complained of so far."""
        return self._said["stderr"].decode("utf-8", "replace")

    def send_signal(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to the command and its children."""
        with self._guest.changed:
            self._guest.changed.wait_for(lambda: self.pid or not self.running, _GRACE_S)
        self._guest.send(do="signal", id=self._job, number=int(number))

    def wait(self, timeout_s: float | None = None) -> CommandResult:
        """Wait for the end.

        Raises:
            GuestError: the guest died or does not answer, or there is no such command.
            TimeoutError: `timeout_s` passed first; the command goes on.
        """
        limit = None if timeout_s is None else time.monotonic() + timeout_s
        with self._guest.changed:
            while self._ended is None and not self._failed:
                self._guest.check_alive()
                now = time.monotonic()
                if now > self._deadline:
                    raise GuestError(f"the guest does not answer while {self.argv[0]} runs in it")
                if limit is not None and now > limit:
                    raise TimeoutError(f"{self.argv[0]} still runs after {timeout_s} s")
                left = min(self._deadline, limit or self._deadline) - now
                self._guest.changed.wait(max(0.01, left))
        if self._ended is None:
            raise GuestError(f"the guest cannot run {self.argv[0]}: {self._failed}")
        return CommandResult(
            self.argv,
            self._ended["status"],
            self.stdout,
            self._said["stderr"].decode("utf-8", "replace"),
            self._ended["timed_out"],
        )
