# SPDX-License-Identifier: Apache-2.0
"""`SystemdNotifier`: reports the service's state to systemd (sd_notify(3)).

READY=1 is sent after the first good tick: one with a source at work, or with a single tier under
--wait, where there is nothing to watch yet. WATCHDOG=1 is sent by the loop itself, never by a
thread of its own, so that a stuck loop is noticed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping

from tierd.core import bounds
from tierd.core.logfmt import logfmt
from tierd.core.units import format_size
from tierd.observe.tick_record import TickRecord

log = logging.getLogger(__name__)


class SystemdNotifier:
    """Observes ticks and reloads, and reports to the service manager.

    Args:
        environment: where NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are looked up.
    """

    def __init__(
        self,
        environment: Mapping[str, str] = os.environ,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._clock = clock
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        patience_ns = _watchdog_ns(environment) if self._address else 0
        self._beat_every_ns = int(patience_ns * bounds.WATCHDOG_FRACTION)
        self._next_beat_ns = self._next_status_ns = 0
        self._ready = False
        self._reload_note = ""
        self._moved_bytes = 0
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            )

    def beat(self) -> None:
        """Report that the loop is alive; it is cheap, so call it often."""
        now = self._clock()
        if self._beat_every_ns and now >= self._next_beat_ns:
            self._next_beat_ns = now + self._beat_every_ns
            self._send("WATCHDOG=1")

    def ready(self, status: str) -> None:
        """Report that the service is ready; only the first call counts."""
        if self._ready:
            return
        self._ready = True
        self._next_status_ns = self._clock() + bounds.SUMMARY_INTERVAL_NS
        if self._socket is not None:
            log.info(logfmt(event="ready"))
        self._send("READY=1", f"STATUS={_line(status)}")

    def on_tick(self, tick: TickRecord) -> None:
        """Report readiness after the first good tick, and the status line at intervals."""
        if tick.report is not None:
            self._moved_bytes += tick.report.moved_bytes
        good = bool(tick.source)
        renewed = self._ready and self._clock() >= self._next_status_ns
        if self._socket is None or not (renewed or (good and not self._ready)):
            return
        if good:
            self.ready(self._status(tick))
        self.tell(self._status(tick))

    def tell(self, status: str) -> None:
        """Report the status line, at intervals."""
        if self._ready and self._clock() >= self._next_status_ns:
            self._next_status_ns = self._clock() + bounds.SUMMARY_INTERVAL_NS
            self._send(f"STATUS={_line(status)}")

    def _status(self, tick: TickRecord) -> str:
        source = tick.source or "no source"
        moved = format_size(self._moved_bytes)
        notes = tick.plan.notes
        stands = "paused; " if "paused" in notes else ""
        stands = "moving does not pay; " if "stands_down" in notes else stands
        text = f"{stands}{tick.targets} targets watched by {source}, {moved} moved"
        return text + self._reload_note

    def reloading(self) -> None:
        """Report that the configuration is being read again."""
        if self._ready:
            self._send("RELOADING=1", f"MONOTONIC_USEC={self._clock() // 1000}")

    def reload_result(self, ok: bool, reason: str) -> None:
        """A reload ended; the status line says so if it failed, until one works."""
        self._reload_note = "" if ok else f"; reload failed: {reason}"
        self._next_status_ns = 0
        if not self._ready:
            return
        if ok:
            self._send("READY=1")
        else:
            self._send("READY=1", f"STATUS={_line(self._reload_note.removeprefix('; '))}")

    def stopping(self) -> None:
        """Report that the service is stopping."""
        self._send("STOPPING=1", "STATUS=stopping; pages stay where they are")

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *lines: str) -> None:
        if self._socket is not None:
            # The loop never waits for a manager that does not read.
            with contextlib.suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(errors="replace"), self._address)


def _address(name: str) -> str:
    """A path, or an abstract name, which systemd writes with "@" for the zero byte."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else ""


def _watchdog_ns(environment: Mapping[str, str]) -> int:
    """The watchdog's timeout; 0 where there is none, or it is for another process."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0
    try:
        return int(environment.get("WATCHDOG_USEC", "0")) * 1000
    except ValueError:
        return 0


def _line(text: str) -> str:
    """The text on one line, so that text from files cannot forge a message."""
    return "".join(c if c.isprintable() else " " for c in text)[:500]
