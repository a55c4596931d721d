# SPDX-License-Identifier: Apache-2.0
"""QEMU as a child process that never outlives tierd, and its output as it comes.

QEMU runs in a session of its own, so that a Ctrl-C at the terminal reaches tierd alone,
and `setpriv --pdeathsig` has the kernel kill it when the thread that started it ends,
whatever ended that.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from tierd_lab.host import find_program

_CHUNK: Final = 65536
_LAST_WORDS_S: Final = 1.0
"""How long to read on after QEMU has ended."""


class QemuProcess:
    """QEMU and its streams "stdout", "stderr" and "console".

    Use as a context manager; leaving it ends QEMU. To be used by the thread that
    made it, as QEMU ends with that thread.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._selector = selectors.DefaultSelector()
        self._ends: list[int] = []
        self.console_fd, self._wake_fd = -1, -1

    def __enter__(self) -> Self:
        """Make the console's pipe, whose number the command line needs."""
        self.console_fd = self._pipe("console")
        self._wake_fd = self._pipe("wake")
        return self

    def __exit__(self, *_: object) -> None:
        """End QEMU and close everything."""
        try:
            self.kill()
        finally:
            for key in list(self._selector.get_map().values()):
                self._selector.unregister(key.fileobj)
                os.close(key.fd)
            for end in self._ends:
                os.close(end)
            self._ends.clear()
            self._selector.close()

    def _pipe(self, name: str) -> int:
        """Make the pipe `name`; returns its write end."""
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self._selector.register(ours, selectors.EVENT_READ, name)
        self._ends.append(theirs)
        return theirs

    def start(self, command: Sequence[str], *, pass_fds: Sequence[int] = ()) -> None:
        """Start QEMU.

        Raises:
            UnavailableError: no setpriv.
        """
        setpriv = find_program("setpriv", "util-linux")
        stdout, stderr = self._pipe("stdout"), self._pipe("stderr")
        self._process = subprocess.Popen(
            [setpriv, "--pdeathsig", "KILL", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(self.console_fd, *pass_fds),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """QEMU's process number (0 before its start)."""
        return self._process.pid if self._process else 0

    @property
    def status(self) -> int | None:
        """QEMU's own exit status, None while it runs."""
        return self._process.poll() if self._process else None

    def wake(self) -> None:
        """Make `output` return; may be called by any thread."""
        with contextlib.suppress(OSError):
            os.write(self._wake_fd, b"!")

    def output(self, timeout_s: float) -> Iterator[tuple[str, bytes]]:
        """What QEMU's streams have said, waiting for `timeout_s` seconds at most."""
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            with contextlib.suppress(BlockingIOError):
                if (data := os.read(key.fd, _CHUNK)) and key.data != "wake":
                    yield key.data, data

    def last_words(self) -> Iterator[tuple[str, bytes]]:
        """What was still in the streams when QEMU had ended."""
        deadline = time.monotonic() + _LAST_WORDS_S
        while time.monotonic() < deadline:
            said = list(self.output(0))
            if not said:
                return
            yield from said

    def kill(self) -> None:
        """End QEMU at once; it has no state worth saving."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def qemu_children(of: int | None = None) -> list[int]:
    """Process numbers of the QEMUs among the descendants of this process, or of `of`."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                stat = (entry / "stat").read_text()
                name, rest = stat[stat.index("(") + 1 :].rsplit(") ", 1)
                if rest[0] != "Z":
                    names[int(entry.name)] = name
                    parents[int(entry.name)] = int(rest.split()[1])
    top = of or os.getpid()
    found = []
    for pid, name in names.items():
        above = pid
        while above in parents and above != top:
            above = parents[above]
        if above == top and name.startswith("qemu-system"):
            found.append(pid)
    return sorted(found)
