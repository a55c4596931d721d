# SPDX-License-Identifier: Apache-2.0
"""The interrupt server that tests give a machine serves one after another."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from doorbell import Doorbell


def greeted(path: Path) -> tuple[list[int], int]:
    """The numbers that a new machine is sent, and how many descriptors."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as machine:
        machine.settimeout(30)
        machine.connect(str(path))
        numbers, got = [], 0
        while len(numbers) < 4:
            data, fds, _, _ = socket.recv_fds(machine, 8, 1)
            assert len(data) == 8
            numbers += struct.unpack("<q", data)
            got += len(fds)
            for fd in fds:
                os.close(fd)
    return numbers, got


def test_a_machine_that_is_started_again_is_served_again(tmp_path: Path) -> None:
    (tmp_path / "memory").write_bytes(bytes(4096))
    bell = Doorbell(tmp_path / "doorbell", tmp_path / "memory")
    try:
        for _ in range(20):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
                gone.connect(str(tmp_path / "doorbell"))
            assert greeted(tmp_path / "doorbell") == ([0, 0, -1, 0], 2)
    finally:
        bell.close()
