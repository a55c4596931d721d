# SPDX-License-Identifier: Apache-2.0
"""`TraceInstance`: tracepoints as text, in an instance of tracefs that nobody else reads.

Documentation/trace/ftrace.rst, Instances. The buffers are bounded; the kernel counts the events
that it overwrote before they were read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tierd.core.errors import UnavailableError

TRACEFS: Final = Path("sys/kernel/tracing")
_OVERRUN: Final = re.compile(rb"^overrun: (\d+)$", re.MULTILINE)


class TraceInstance:
    """Opened by `open`, removed by `close`.

    Args:
        root: of the host's files.
        name: of the instance's folder.
        buffer_kib: size of the buffer on each CPU.
    """

    def __init__(self, root: Path, name: str, buffer_kib: int) -> None:
        self._folder = root / TRACEFS / "instances" / name
        self._buffer_kib = buffer_kib
        self._fd = -1
        self._tail = b""
        self._overrun = 0
        self._stats: list[str] = []
        self.enabled: set[str] = set()

    @property
    def is_open(self) -> bool:
        """Whether events can be read."""
        return self._fd >= 0

    def open(self, events: Iterable[str]) -> None:
        """Make the instance, or take over one that a killed tierd left, and enable the events.

        Args:
            events: as folders, `damon/damon_aggregated`; see `enable`.

        Raises:
            UnavailableError: tracefs refused.
        """
        if self.is_open:
            return
        try:
            self._folder.mkdir(exist_ok=True)
            self._write("events/enable", "0")
            self._write("buffer_size_kb", str(self._buffer_kib))
            self._write("trace", "")
            self._fd = os.open(self._folder / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
            # One folder for each CPU that there can be.
            self._stats = [str(path) for path in self._folder.glob("per_cpu/cpu*/stats")]
            self._overrun = self._count_overrun()
            self.enable(events)
        except OSError as error:
            self.close()
            raise UnavailableError(
                f"tracefs refused the instance {self._folder.name}: {error.strerror} "
                f"({error.filename})",
                hint=f"tierd needs to be root, with tracefs mounted at /{TRACEFS}",
            ) from error

    def enable(self, events: Iterable[str]) -> None:
        """Enable those that the kernel has and that are not `enabled`; modules bring some later.

        Raises:
            OSError: the kernel refused one that it has; the others are enabled.
        """
        refused: OSError | None = None
        for event in events:
            if event in self.enabled or not (self._folder / "events" / event).is_dir():
                continue
            try:
                self._write(f"events/{event}/enable", "1")
            except OSError as error:
                refused = refused or error
            else:
                self.enabled.add(event)
        if refused is not None:
            raise refused

    def read(self, limit_bytes: int = 16 << 20) -> tuple[bytes, int]:
        """Whole lines since the last call, at most `limit_bytes`; and events overwritten unread."""
        parts = [self._tail]
        left = limit_bytes
        while self.is_open and left > 0:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                break
            parts.append(data)
            left -= len(data)
        text = b"".join(parts)
        cut = text.rfind(b"\n") + 1
        self._tail = text[cut:]
        # What was overwritten gave way to something that is read now: else no file need be read.
        overrun = self._count_overrun() if len(parts) > 1 else self._overrun
        lost, self._overrun = overrun - self._overrun, overrun
        return text[:cut], max(0, lost)

    def _count_overrun(self) -> int:
        count = 0
        for stats in self._stats:
            with contextlib.suppress(OSError), open(stats, "rb", buffering=0) as file:  # noqa: PTH123 - speed
                match = _OVERRUN.search(file.read())
                count += int(match[1]) if match else 0
        return count

    def _write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def close(self) -> None:
        """Disable the events and remove the instance."""
        if self.is_open:
            os.close(self._fd)
            self._fd = -1
        self._tail, self.enabled = b"", set()
        with contextlib.suppress(OSError):
            self._write("events/enable", "0")
        with contextlib.suppress(OSError):
            self._folder.rmdir()
