# SPDX-License-Identifier: Apache-2.0
"""`LoopExecutor`: other threads have functions run in the loop's thread, between two ticks."""

from __future__ import annotations

import contextlib
import queue
import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopEndedError(RuntimeError):
    """The loop has ended; nobody will serve the call."""


class LoopExecutor:
    """Functions that other threads want run in the loop's thread, between two ticks."""

    LIMIT = 64
    """Calls that may wait; one more is refused."""

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
        """Run what waits, in the caller's thread; the number of calls."""
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
            except Exception as error:  # handed to the thread that asked
                future.set_exception(error)

    def refuse(self, reason: str) -> None:
        """The loop has ended: nobody will serve what still waits, or comes later."""
        self._refusal = reason
        while True:
            try:
                _, future = self._waiting.get_nowait()
            except queue.Empty:
                return
            if future.set_running_or_notify_cancel():
                future.set_exception(LoopEndedError(reason))
