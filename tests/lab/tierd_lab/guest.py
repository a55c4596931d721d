# SPDX-License-Identifier: Apache-2.0
"""`Guest`: a booted machine that runs many commands, one after another or together.

Protocol: one JSON object a line in both directions, over a virtio port. The host
sends `start` (id, argv, env, cwd, stdin, timeout_s), `signal` (id, number), `end`;
the agent answers `ready`, `started` (id, pid), `failed` (id, message),
`stdout`/`stderr` (id, data in base64) and `ended` (id, status, timed_out).
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from tierd_lab.boot_watch import BootWatch
from tierd_lab.command import CommandResult, GuestProcess, encode
from tierd_lab.compose import AGENT_PORT, Share
from tierd_lab.machine import Machine
from tierd_lab.plugin import is_watched
from tierd_lab.process import QemuProcess
from tierd_lab.session import GuestError, LabResult, run
from tierd_lab.tail import Tail
from tierd_lab.traffic import Traffic

DEFAULT_BOOT_TIMEOUT_S: Final = 900.0
"""For hosts with little to spare; what never answers is seen before (`BootWatch`)."""
DEFAULT_LIFE_S: Final = 4 * 3600.0
_END_S: Final = 10.0
_SEND_S: Final = 30
_BOOTS: Final = 3
_AGENT: Final = Path(__file__).resolve().parent / "agent.py"
_SPLAT: Final = re.compile(
    r"WARNING: |BUG: |kernel BUG|Oops|general protection fault|"
    r"blocked for more than|INFO: .* (self-detected stall|detected stalls)|Kernel panic|"
    r"turning off the locking correctness validator"
)


class Guest:
    """A booted machine. Use as a context manager, or `boot()` and `close()`.

    Args:
        machine: a machine or its name.
        kernel: as for `tierd_lab.run`.
        env, share, cwd, accel: the same, for all commands.
        boot_timeout_s: host seconds until the agent must answer.
        life_s: host seconds after which the guest is ended whatever happens.

    Attributes:
        boots: how often it was started until it answered: again, up to three times, when
            `BootWatch` says that it never will.
        traffic: the exact memory traffic of a machine with cards or a cache, else None.
    """

    def __init__(
        self,
        machine: Machine | str,
        *,
        kernel: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        share: Sequence[Share | Path | str] = (),
        cwd: str | Path | None = None,
        accel: str = "auto",
        boot_timeout_s: float = DEFAULT_BOOT_TIMEOUT_S,
        life_s: float = DEFAULT_LIFE_S,
    ) -> None:
        self.machine = machine if isinstance(machine, Machine) else Machine.load(machine)
        self.boot_s = 0.0
        self.boots = 0
        self.pid = 0
        self.result: LabResult | None = None
        self.traffic: Traffic | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self.changed = threading.Condition()
        self._sending = threading.Lock()
        self._closing = False
        self._cwd = str(cwd or Path.cwd())
        self._options: dict[str, Any] = {
            "kernel": kernel,
            "env": env,
            "share": share,
            "accel": accel,
            "timeout_s": life_s,
            "cwd": "/",
        }
        self._boot_timeout_s = boot_timeout_s
        self._stuck = ""
        self._console = Tail(65536)
        self._socket: socket.socket | None = None
        self._process: QemuProcess | None = None
        self._threads: list[threading.Thread] = []
        self._jobs: dict[int, GuestProcess] = {}
        self._next_job = 1
        self._ready = False
        self._over = False
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        """Boot."""
        return self.boot()

    def __exit__(self, *_: object) -> None:
        """End the guest."""
        self.close()

    @property
    def alive(self) -> bool:
        """True while commands can be run."""
        return self._ready and not self._over

    @property
    def console(self) -> str:
        """The end of what the guest's console said."""
        return self._console.text

    def boot(self) -> Self:
        """Boot the machine and wait for its agent.

        Raises:
            GuestError: it did not boot, or did not within `boot_timeout_s`.
            UnavailableError: the host lacks something.
        """
        begin = time.monotonic()
        end = begin + self._boot_timeout_s
        while not self._answers(end):
            error, console = self._error, self.console
            self.close()
            for thread in self._threads:
                thread.join(_END_S)
            # A thread that lives on would take the next guest for ended.
            late = time.monotonic() >= end or any(each.is_alive() for each in self._threads)
            if self._stuck and self.boots < _BOOTS and not late:
                self._closing = self._over = False
                self._error, self._process, self._console, self.pid = None, None, Tail(65536), 0
                continue
            if error is not None:
                raise error
            raise GuestError(
                f"the guest {self.machine.name} did not answer in {time.monotonic() - begin:.0f} s "
                f"and {self.boots} boots{f': {self._stuck}' if self._stuck else ''}; "
                f"the end of its console:\n{console[-2000:]}"
            )
        self.boot_s = time.monotonic() - begin
        return self

    def _answers(self, end: float) -> bool:
        """Start QEMU and wait for the agent, until `end` of the host's clock."""
        self.boots += 1
        self._folder = TemporaryDirectory(prefix="tierd-lab-")
        self._options["folder"] = Path(self._folder.name)
        if is_watched(self.machine):
            self.traffic = Traffic(Path(self._folder.name))
        ours, theirs = socket.socketpair()
        # A guest that stopped reading must not stop its caller.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_S, 0))
        self._socket = ours
        self._threads = [
            threading.Thread(target=self._live, args=(theirs,), name="tierd-lab-guest"),
            threading.Thread(target=self._listen, args=(ours,), name="tierd-lab-agent"),
        ]
        for thread in self._threads:
            thread.daemon = True
            thread.start()
        watch = BootWatch()
        self._stuck = ""
        with self.changed:
            while not (self._ready or self._over):
                if (left := end - time.monotonic()) <= 0:
                    break
                self._stuck = watch.stuck(self.pid, self.console)
                if self._stuck:
                    break
                self.changed.wait(min(1.0, left))
            return self._ready

    def close(self) -> None:
        """End the guest; no QEMU is left when this returns. May be called twice."""
        self._closing = True
        with contextlib.suppress(OSError, GuestError):
            self.send(do="end")
        if self._threads:
            self._threads[0].join(_END_S if self._ready else 0)
            if self._threads[0].is_alive() and self._process is not None:
                self._process.kill()
                self._process.wake()
            self._threads[0].join(_END_S)
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def start(
        self,
        argv: Sequence[str] | str,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdin: bytes | str = b"",
        timeout_s: float = 60.0,
        on_line: Callable[[str], None] | None = None,
    ) -> GuestProcess:
        """Start a command and do not wait for it.

        Args:
            argv: the words of a command, or a shell line.
            env: added to the agent's environment.
            cwd: working folder; None: the one the guest was made with.
            stdin: what the command reads.
            timeout_s: guest seconds after which the command is killed.
            on_line: called with each line of stdout as it comes, by another thread; it must
                not call the guest.

        Raises:
            GuestError: the guest is dead.
        """
        words = ("/bin/sh", "-c", argv) if isinstance(argv, str) else tuple(map(str, argv))
        with self.changed:
            job, self._next_job = self._next_job, self._next_job + 1
            process = self._jobs[job] = GuestProcess(self, job, words, timeout_s)
            process.on_line = on_line
        self.send(
            do="start",
            id=job,
            argv=words,
            env=dict(env or {}),
            cwd=str(cwd or self._cwd),
            stdin=encode(stdin),
            timeout_s=timeout_s,
        )
        return process

    def run(
        self,
        argv: Sequence[str] | str,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdin: bytes | str = b"",
        timeout: float = 60.0,
    ) -> CommandResult:
        """Run a command and wait for its end; arguments as for `start`.

        Raises:
            GuestError: the guest is dead or does not answer, or there is no such command.
        """
        return self.start(argv, env=env, cwd=cwd, stdin=stdin, timeout_s=timeout).wait()

    def read_text(self, path: str | Path) -> str:
        """The text of a file in the guest.

        Raises:
            GuestError: it cannot be read.
        """
        return self.run(["cat", str(path)]).check().stdout

    def dmesg(self) -> str:
        """The guest's kernel log."""
        return self.run(["dmesg"]).check().stdout

    def kernel_complaints(self) -> list[str]:
        """Lines of the kernel log with which the kernel reports a fault of its own."""
        return [line for line in self.dmesg().splitlines() if _SPLAT.search(line)]

    def check_alive(self) -> None:
        """Nothing, while the guest lives.

        Raises:
            GuestError: it died; the message has the end of its console.
        """
        if self.alive:
            return
        if isinstance(self._error, GuestError):
            raise GuestError(self._error.message)
        why = f": {self._error}" if self._error else ""
        raise GuestError(
            f"the guest {self.machine.name} is not running{why}; "
            f"the end of its console:\n{self.console[-2000:]}"
        )

    def send(self, **message: Any) -> None:
        """Send the agent a message of the protocol.

        Raises:
            GuestError: the guest is dead.
        """
        self.check_alive()
        assert self._socket is not None
        try:
            with self._sending:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._set_over()
            self.check_alive()

    def _set_over(self) -> None:
        with self.changed:
            self._over = True
            self.changed.notify_all()

    def _live(self, port: socket.socket) -> None:
        """The thread that QEMU belongs to."""

        def started(process: QemuProcess) -> None:
            self._process, self.pid = process, process.pid
            port.close()
            if self._closing:
                raise GuestError(f"the guest {self.machine.name} was closed while it started")

        def take(stream: str, data: bytes) -> None:
            if stream != "stdout":
                self._console.add(data)

        command = [sys.executable, "-I", "-S", str(_AGENT), f"/dev/virtio-ports/{AGENT_PORT}"]
        try:
            self.result = run(
                self.machine,
                command,
                agent_fd=port.fileno(),
                started=started,
                on_output=take,
                **self._options,
            )
        except BaseException as error:
            self._error = error
        finally:
            port.close()
            self._set_over()

    def _listen(self, port: socket.socket) -> None:
        """The thread that takes the agent's messages."""
        with contextlib.suppress(OSError, ValueError), port.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                with self.changed:
                    if message["event"] == "ready":
                        self._ready = True
                    elif message["id"] in self._jobs:
                        self._jobs[message["id"]].take(message)
                        if message["event"] in ("ended", "failed"):
                            del self._jobs[message["id"]]
                    self.changed.notify_all()
        # The port closes with the guest: leave its thread the time to say why.
        self._threads[0].join(2.0)
        self._set_over()
