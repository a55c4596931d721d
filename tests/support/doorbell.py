# SPDX-License-Identifier: Apache-2.0
"""The server's part of QEMU's ivshmem-doorbell: a shared memory with interrupts.

Speaks the protocol of QEMU's docs/specs/ivshmem-spec.rst to one machine at a time.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from pathlib import Path

PROTOCOL_VERSION = 0
PEER = 0
MEMORY = -1
"""Stands for a peer's number where the shared memory's descriptor is sent."""


class Doorbell:
    """Listens at `path` and hands `memory` and one interrupt to who connects."""

    def __init__(self, path: Path, memory: Path) -> None:
        self.path = path
        self._memory = os.open(memory, os.O_RDWR | os.O_CLOEXEC)
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._peer: socket.socket | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return  # closed
            if self._peer is not None:
                self._peer.close()  # a machine that was started again
            self._peer = peer
            with contextlib.suppress(OSError):  # it has hung up: the next one may come
                self._greet(peer)

    def _greet(self, peer: socket.socket) -> None:
        for number, fds in (
            (PROTOCOL_VERSION, []),
            (PEER, []),
            (MEMORY, [self._memory]),
            (PEER, [self._event]),
        ):
            socket.send_fds(peer, [struct.pack("<q", number)], fds)

    def ring(self) -> None:
        """Send the machine an interrupt."""
        os.eventfd_write(self._event, 1)

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends accept()
        self._listener.close()
        if self._peer is not None:
            self._peer.close()
        os.close(self._memory)
        os.close(self._event)
