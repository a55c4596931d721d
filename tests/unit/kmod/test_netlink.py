# SPDX-License-Identifier: Apache-2.0
"""`Control` against a socket that plays the kernel's part."""

from __future__ import annotations

import errno
import socket
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tierd.errors import TargetGoneError, UnavailableError
from tierd.kmod import netlink
from tierd.kmod.netlink import Control, nodes_of, pack_ranges
from tierd.kmod.uapi import ATTRIBUTES, STATS, Command, ScanFlags

FAMILY = 40


def number(name: str) -> int:
    """The number of an attribute."""
    return [full for full, _ in ATTRIBUTES].index(f"TIERD_A_{name}")


class Kernel:
    """A socket whose answers are given by a test; it keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.answers: list[bytes] = []

    def sendto(self, data: bytes, address: object) -> int:
        self.asked.append(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        if not self.answers:
            raise TimeoutError("no answer")
        sequence = struct.unpack_from("=I", self.asked[-1], 8)[0]
        return self.answers.pop(0).replace(b"SEQ!", struct.pack("=I", sequence))

    def close(self) -> None:
        pass


def acknowledgement(code: int = 0) -> bytes:
    return struct.pack("=IHH", 36, 2, 0) + b"SEQ!" + struct.pack("=Ii", 0, -code) + bytes(16)


def message(command: int, attributes: list[tuple[int, bytes]], kind: int = FAMILY) -> bytes:
    body = struct.pack("=BBH", command, 1, 0)
    for number, data in attributes:
        body += struct.pack("=HH", 4 + len(data), number) + data + bytes(-len(data) % 4)
    return struct.pack("=IHH", 16 + len(body), kind, 0) + b"SEQ!" + bytes(4) + body


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def control(kernel: Kernel) -> Control:
    connection: Any = kernel
    return Control(connection, FAMILY, 7)


def attributes_of(data: bytes) -> dict[int, bytes]:
    found, offset = {}, 20
    while offset < len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        found[kind] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def test_a_target_is_named_with_number_pid_and_byte_ranges(
    kernel: Kernel, control: Control
) -> None:
    kernel.answers.append(acknowledgement())
    control.target_add(3, 1234, [(16, 32), (64, 65)])
    (asked,) = kernel.asked
    assert struct.unpack_from("=H", asked, 4)[0] == FAMILY
    assert asked[16] == Command.TARGET_ADD
    found = attributes_of(asked)
    assert struct.unpack("=H", found[2][:2])[0] == 3
    assert struct.unpack("=I", found[3])[0] == 1234
    assert np.frombuffer(found[4], np.uint64).tolist() == [16 << 12, 32 << 12, 64 << 12, 65 << 12]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.ESRCH, TargetGoneError),
        (errno.EEXIST, FileExistsError),
        (errno.ENOENT, UnavailableError),
        (errno.EPERM, UnavailableError),
        (errno.ENOSPC, UnavailableError),
    ],
)
def test_what_the_kernel_refuses_has_a_type(
    kernel: Kernel, control: Control, code: int, error: type[Exception]
) -> None:
    kernel.answers.append(acknowledgement(code))
    with pytest.raises(error):
        control.target_add(1, 1)


def test_a_kernel_that_does_not_answer_is_unavailable(control: Control) -> None:
    with pytest.raises(UnavailableError):
        control.target_del(1)


def test_settings_that_are_not_given_are_not_sent(kernel: Kernel, control: Control) -> None:
    kernel.answers.append(acknowledgement())
    control.scan_set(budget_ppm=5, flags=ScanFlags.FLUSH, hot_nodes=[1, 64])
    found = attributes_of(kernel.asked[0])
    assert set(found) == {number("BUDGET_PPM"), number("FLAGS"), number("HOT_NODES")}
    assert nodes_of(found[number("HOT_NODES")]) == {1, 64}


def test_an_older_module_tells_fewer_counters(kernel: Kernel, control: Control) -> None:
    nodes = netlink.node_words([0])
    stats = struct.pack("=2Q", 11, 22)
    fields = [
        (number("PERIOD_US"), struct.pack("=I", 400_000)),
        (number("BUDGET_PPM"), struct.pack("=I", 50_000)),
        (number("HOT_SCANS"), b"\2"),
        (number("COLD_SCANS"), b"\0"),
        (number("REPORT_SCANS"), b"\1"),
        (number("FLAGS"), struct.pack("=I", 0)),
        (number("HOT_NODES"), nodes),
        (number("COLD_NODES"), nodes),
        (number("STATS"), stats),
    ]
    kernel.answers += [message(Command.SCAN_GET, fields), acknowledgement()]
    state = control.scan_get()
    assert state.stats == {STATS[0]: 11, STATS[1]: 22}
    assert (state.period_us, state.hot_scans, state.hot_nodes) == (400_000, 2, frozenset({0}))
    assert state.report_scans == 1


def test_a_dump_is_read_to_its_end(kernel: Kernel, control: Control) -> None:
    parts = [
        message(
            Command.TARGET_GET,
            [
                (number("TARGET"), struct.pack("=H", n)),
                (number("PID"), struct.pack("=I", 100 + n)),
                (number("TARGET_STATS"), bytes(64)),
            ],
        )
        for n in (1, 2)
    ]
    done = struct.pack("=IHH", 20, 3, 2) + b"SEQ!" + bytes(8)
    kernel.answers += [parts[0], parts[1] + done]
    assert [(t.target, t.pid) for t in control.targets()] == [(1, 101), (2, 102)]


def test_ranges_of_no_range_are_empty() -> None:
    assert pack_ranges([]) == b""


def test_without_the_module_it_says_so() -> None:
    if not hasattr(socket, "AF_NETLINK") or Path("/sys/module/tierd").exists():
        pytest.skip("no netlink here, or the module is loaded")
    with pytest.raises(UnavailableError, match="netlink"):
        Control.open().close()
