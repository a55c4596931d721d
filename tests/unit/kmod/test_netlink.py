# SPDX-License-Identifier: Apache-2.0
"""`Control` against a socket that plays the kernel's part."""

from __future__ import annotations

import errno
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genl_kernel import FAMILY, NUMBER, Kernel, acknowledgement, attribute, done, message

from tierd.core.errors import SecondMmuError, TargetGoneError, UnavailableError
from tierd.sources.kmod import netlink
from tierd.sources.kmod.netlink import Control, nodes_of, pack_ranges
from tierd.sources.kmod.uapi import STATS, Command, ScanFlags


@pytest.fixture
def kernel() -> Kernel:
    return Kernel(TimeoutError("no answer"))


@pytest.fixture
def control(kernel: Kernel) -> Control:
    connection: Any = kernel
    return Control(connection, FAMILY)


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
        (errno.EOPNOTSUPP, SecondMmuError),
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
    assert set(found) == {NUMBER["BUDGET_PPM"], NUMBER["FLAGS"], NUMBER["HOT_NODES"]}
    assert nodes_of(found[NUMBER["HOT_NODES"]]) == {1, 64}


def test_an_older_module_tells_fewer_counters(kernel: Kernel, control: Control) -> None:
    nodes = netlink.node_words([0])
    stats = struct.pack("=2Q", 11, 22)
    fields = [
        attribute("PERIOD_US", struct.pack("=I", 400_000)),
        attribute("BUDGET_PPM", struct.pack("=I", 50_000)),
        attribute("HOT_SCANS", b"\2"),
        attribute("COLD_SCANS", b"\0"),
        attribute("REPORT_SCANS", b"\1"),
        attribute("FLAGS", struct.pack("=I", 0)),
        attribute("HOT_NODES", nodes),
        attribute("COLD_NODES", nodes),
        attribute("STATS", stats),
    ]
    kernel.answers += [message(Command.SCAN_GET, *fields), acknowledgement()]
    state = control.scan_get()
    assert state.stats == {STATS[0]: 11, STATS[1]: 22}
    assert (state.period_us, state.hot_scans, state.hot_nodes) == (400_000, 2, frozenset({0}))
    assert state.report_scans == 1


def test_a_dump_is_read_to_its_end(kernel: Kernel, control: Control) -> None:
    parts = [
        message(
            Command.TARGET_GET,
            attribute("TARGET", struct.pack("=H", n)),
            attribute("PID", struct.pack("=I", 100 + n)),
            attribute("TARGET_STATS", bytes(64)),
        )
        for n in (1, 2)
    ]
    kernel.answers += [parts[0], parts[1] + done()]
    assert [(t.target, t.pid) for t in control.targets()] == [(1, 101), (2, 102)]


def test_ranges_of_no_range_are_empty() -> None:
    assert pack_ranges([]) == b""


def test_without_the_module_it_says_so() -> None:
    if Path("/sys/module/tierd").exists():
        pytest.skip("the module is loaded")
    with pytest.raises(UnavailableError, match="netlink"):
        Control.open().close()


def test_a_request_that_is_asked_again_differs_in_its_number_only(
    kernel: Kernel, control: Control
) -> None:
    for target in (3, 3, 4):
        kernel.answers.append(acknowledgement())
        control.target_del(target)
    first, second, other = kernel.asked
    assert [struct.unpack_from("=I", each, 8)[0] for each in kernel.asked] == [1, 2, 3]
    assert (first[:8], first[12:]) == (second[:8], second[12:])
    assert attributes_of(other)[NUMBER["TARGET"]] == struct.pack("=H", 4)


def test_numbers_of_each_width_come_into_a_request_that_was_asked_before(
    kernel: Kernel, control: Control
) -> None:
    for base in (1, 7):
        kernel.answers.append(acknowledgement())
        control.scan_set(period_us=base << 24, hot_scans=base, cold_scans=0, hot_nodes=[base])
    found = attributes_of(kernel.asked[-1])
    assert found[NUMBER["PERIOD_US"]] == struct.pack("=I", 7 << 24)
    assert found[NUMBER["HOT_SCANS"]] == b"\7"
    assert found[NUMBER["COLD_SCANS"]] == b"\0"
    assert nodes_of(found[NUMBER["HOT_NODES"]]) == {7}


def test_of_attributes_of_one_name_the_first_holds(kernel: Kernel, control: Control) -> None:
    twice = [attribute("TARGET", struct.pack("=H", number)) for number in (5, 6)]
    rest = [attribute("PID", bytes(4)), attribute("TARGET_STATS", bytes(8))]
    kernel.answers += [message(Command.TARGET_GET, *twice, *rest), done()]
    assert [state.target for state in control.targets()] == [5]


def test_an_answer_is_read_anew_where_it_differs_from_the_one_before(
    kernel: Kernel, control: Control
) -> None:
    counts = []
    for rounds in (3, 3, 4):
        told = [attribute("TARGET", bytes(2)), attribute("PID", bytes(4))]
        stats = attribute("TARGET_STATS", struct.pack("=Q", rounds))
        kernel.answers += [message(Command.TARGET_GET, *told, stats), done()]
        (state,) = control.targets()
        counts.append(dict(state.stats))
    assert counts == [{"rounds": 3}, {"rounds": 3}, {"rounds": 4}]
