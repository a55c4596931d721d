# SPDX-License-Identifier: Apache-2.0
"""Wakes the sleeping loop: for signals, calls of other threads, hotplug and phase changes.

`EventPoller` is the sleep, `LoopExecutor` queues calls of other threads, `SighupFlag` keeps SIGHUP.
"""

from __future__ import annotations

import contextlib
import queue
import select
import signal
import socket
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType
from typing import Any, Self, TypeVar


class SighupFlag:
    """A signal handler that sets a flag. `waits`: a request that has not been served."""

    def __init__(self) -> None:
        self.waits = False

    def __call__(self, number: int = 0, frame: FrameType | None = None) -> None:
        """The signal came."""
        del number, frame
        self.waits = True


T = TypeVar("T")


class LoopEndedError(RuntimeError):
    """The loop has ended and serves no calls."""


class LoopExecutor:
    """Runs functions of other threads in the loop's thread, between two ticks."""

    LIMIT = 64
    """The most calls that may wait; further ones are refused."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[tuple[Callable[[], Any], Future[Any]]] = queue.Queue(self.LIMIT)
        self._wake: socket.socket | None = None
        self._refusal = ""

    def wakes(self, wake: socket.socket | None) -> None:
        """The socket to write a byte to when a call comes in."""
        self._wake = wake

    def post(self, function: Callable[[], T]) -> Future[T]:
        """Ask the loop to run `function`; from any thread.

        Returns:
            Its result, or its exception.

        Raises:
            queue.Full: the loop has too many calls waiting (it may be stuck).
        """
        future: Future[T] = Future()
        if self._refusal:
            future.set_exception(LoopEndedError(self._refusal))
            return future
        self._waiting.put_nowait((function, future))
        if self._wake is not None:
            with contextlib.suppress(OSError):
                self._wake.send(b"c")
        return future

    def serve(self) -> int:
        """Run the waiting calls in this thread; returns their number."""
        served = 0
        while True:
            try:
                function, future = self._waiting.get_nowait()
            except queue.Empty:
                return served
            served += 1
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except Exception as error:  # raised in the calling thread
                future.set_exception(error)

    def refuse(self, reason: str) -> None:
        """Refuse the calls that wait and all later ones, because the loop has ended."""
        self._refusal = reason
        while True:
            try:
                _, future = self._waiting.get_nowait()
            except queue.Empty:
                return
            if future.set_running_or_notify_cancel():
                future.set_exception(LoopEndedError(reason))


class EventPoller:
    """The loop's sleep; a context manager that handles signals within it.

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
        """From now on `wait` ends when `phase_change_fd` becomes readable; -1 for none.

        It is edge-triggered: an event ends one wait, whether it is read or not.
        """
        if self._phase_change_fd >= 0:
            with contextlib.suppress(OSError):  # the file may be closed by now
                self._poll.unregister(self._phase_change_fd)
        self._phase_change_fd = phase_change_fd
        if phase_change_fd >= 0:
            self._poll.register(phase_change_fd, select.EPOLLIN | select.EPOLLET)

    def wait(self, seconds: float) -> tuple[bool, bool, bool]:
        """Sleep for at most so long; returns (interrupted, hotplug, phase change)."""
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
