# SPDX-License-Identifier: Apache-2.0
"""Process events: what a datagram of the kernel means, and that a broken one is a lost one."""

from __future__ import annotations

import random
import socket
import struct

import pytest

from tierd.workloads.events import ProcessEvents, ProcessEventSocket, _note_all

FORK, EXEC, UID, COMM, EXIT = 1, 2, 4, 0x200, 0x80000000


def message(what: int, *ids: int, pad: int = 24) -> bytes:
    """nlmsghdr, cn_msg and proc_event as include/uapi/linux/cn_proc.h lays them out."""
    data = struct.pack(f"={len(ids)}i", *ids).ljust(pad, b"\0")
    event = struct.pack("=IIQ", what, 3, 12345) + data
    header = struct.pack("=IIIIHH", 1, 1, 7, 0, len(event), 0)
    return struct.pack("=IHHII", 16 + len(header) + len(event), 3, 0, 7, 0) + header + event


def test_events_are_told_by_process_and_threads_are_left_out():
    found = ProcessEvents()
    data = b"".join(
        [
            message(FORK, 1, 1, 10, 10),
            message(FORK, 1, 1, 11, 1),  # a thread
            message(EXEC, 20, 20),
            message(EXEC, 22, 21),  # a thread executed: the process did
            message(UID, 30, 30, 0, 0),
            message(COMM, 50, 50),
            message(EXIT, 40, 40, 0, 0),
            message(EXIT, 41, 40, 0, 0),
        ]
    )
    assert _note_all(data, found) == 8
    assert found == ProcessEvents({10}, {20, 21}, {30}, {40}, lost=False)


def test_anything_that_happened_makes_it_true():
    assert not ProcessEvents()
    for name in ("started", "executed", "changed", "ended"):
        assert ProcessEvents(**{name: {1}})
    assert ProcessEvents(lost=True)


class _Fed(ProcessEventSocket):
    """Datagrams of the test's own, as if from the kernel."""

    def __init__(self, *datagrams: bytes) -> None:
        super().__init__(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._socket.close()
        queued = list(datagrams)

        class Fake:
            def recvfrom(self, size: int) -> tuple[bytes, tuple[int, int]]:
                if not queued:
                    raise BlockingIOError
                return queued.pop(0), (0, 0)

        self._socket = Fake()  # type: ignore[assignment]


@pytest.mark.parametrize("cut", [1, 15, 17, 40, 51, 60])
def test_a_datagram_that_is_cut_off_counts_as_lost(cut: int):
    events = _Fed(message(FORK, 1, 1, 10, 10)[:cut], message(EXIT, 40, 40))
    found = events.drain()
    assert found.lost
    assert found.ended == {40}
    assert (events.overflows, events.received) == (1, 1)


def test_any_bytes_are_events_or_lost():
    source = random.Random(1)
    for _ in range(20_000):
        data = bytearray(message(source.choice((FORK, EXEC, EXIT, COMM)), 1, 1, 2, 2) * 2)
        for _ in range(source.randrange(5)):
            data[source.randrange(len(data))] = source.randrange(256)
        found = _Fed(bytes(data[: source.randrange(len(data) + 1)])).drain()
        assert isinstance(found.lost, bool)
