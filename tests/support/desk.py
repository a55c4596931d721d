# SPDX-License-Identifier: Apache-2.0
"""A control desk on a made-up service, with or without a loop that serves its calls."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopbench import Bench, tier_map

from tierd.control.commands import ControlContext
from tierd.control.events import EventFeed
from tierd.control.kept import PauseFile
from tierd.control.protocol import Peer
from tierd.control.server import ControlServer
from tierd.observe.metrics.state import MetricsState

ROOT = Peer(pid=1, uid=0, may_change=True)
READER = Peer(pid=2, uid=1000, may_change=False)


def make_desk(folder: Path, *, timeout_s: float = 60.0) -> tuple[Bench, ControlContext]:
    """A service that does not run, and its desk."""
    bench = Bench(tier_map(118, 430))
    service = bench.service
    state = MetricsState(service)
    feed = EventFeed(lambda: service.components.tracking.targets)
    service.observe(state)
    service.observe(feed)
    return bench, ControlContext(
        service, state, feed, PauseFile(folder / "state"), timeout_s=timeout_s
    )


@contextlib.contextmanager
def serving(bench: Bench) -> Iterator[None]:
    """A thread that serves calls, as the loop does between ticks."""
    over = threading.Event()

    def serve() -> None:
        while not over.wait(0.002):
            bench.service.calls.serve()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def listening(path: Path, desk: ControlContext, **options: Any) -> Iterator[ControlServer]:
    """A control server at `path`."""
    server = ControlServer(path, desk, **options)
    server.start()
    try:
        yield server
    finally:
        server.close()


def connect(path: Path) -> socket.socket:
    """A raw connection."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(120)
    connection.connect(str(path))
    return connection
