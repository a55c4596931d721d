# SPDX-License-Identifier: Apache-2.0
"""What wakes the sleeping loop: signals, requests of other threads, hotplug."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Self


class EventPoller:
    """A context; signals are handled within it.

    Args:
        hotplug_fd: readable when memory came or went, -1 for none.
        on_stop: SIGTERM or SIGINT came, by its name; called in the signal handler.
        on_hang_up: SIGHUP came; called in the signal handler.

    Attributes:
        interrupt: a socket; a byte sent on it wakes the loop, from any thread.
    """

    def __init__(
        self,
        hotplug_fd: int,
        *,
        on_stop: Callable[[str], None],
        on_hang_up: Callable[[], None],
    ) -> None:
        self._on_stop = on_stop
        self._on_hang_up = on_hang_up
        self._poll = select.epoll()
        self._wake, self.interrupt = socket.socketpair()
        self._wake.setblocking(False)
        self._poll.register(self._wake.fileno(), select.EPOLLIN)
        self._hotplug_fd = hotplug_fd
        if hotplug_fd >= 0:
            self._poll.register(hotplug_fd, select.EPOLLIN)
        self._phase_change_fd = -1
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number, handler in (
            (signal.SIGTERM, self._stop),
            (signal.SIGINT, self._stop),
            (signal.SIGHUP, self._hang_up),
        ):
            self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._poll.close()
        self._wake.close()
        self.interrupt.close()

    def listen(self, phase_change_fd: int) -> None:
        """From now on sleep no longer than until there is more to read at `phase_change_fd`; -1:
        nowhere.

        What was told of once is not told of again, whether it was read or not.
        """
        if self._phase_change_fd >= 0:
            with contextlib.suppress(OSError):  # it may be closed by now
                self._poll.unregister(self._phase_change_fd)
        self._phase_change_fd = phase_change_fd
        if phase_change_fd >= 0:
            self._poll.register(phase_change_fd, select.EPOLLIN | select.EPOLLET)

    def wait(self, seconds: float) -> tuple[bool, bool, bool]:
        """Sleep at most so long; whether somebody interrupted, memory changed, there are news."""
        ready = {fd for fd, _ in self._poll.poll(max(seconds, 0.0))}
        asked = self._wake.fileno() in ready
        if asked:
            with contextlib.suppress(BlockingIOError):
                self._wake.recv(64)
        return asked, self._hotplug_fd in ready, self._phase_change_fd in ready

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._on_stop(signal.Signals(number).name)
        self._nudge()

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._on_hang_up()
        self._nudge()

    def _nudge(self) -> None:
        with contextlib.suppress(OSError):
            self.interrupt.send(b"s")
