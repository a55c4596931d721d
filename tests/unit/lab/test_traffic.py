# SPDX-License-Identifier: Apache-2.0
"""The host's side of the lab's mailbox, against a stand-in for the plugin."""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from card_window import N, Window, WindowError

from tierd_lab import Traffic, TrafficError, traffic
from tierd_lab.plugin import DUMP, WINDOW, WINDOW_BYTES, make_window


class StandIn:
    """Answers the mailbox of a window file with what `answer` says."""

    def __init__(self, folder: Path, answer: Callable[[int], int]) -> None:
        make_window(folder)
        fd = os.open(folder / WINDOW, os.O_RDWR)
        self.window = mmap.mmap(fd, WINDOW_BYTES)
        os.close(fd)
        struct.pack_into("<3I", self.window, 0, N["NPW_MAGIC"], N["NPW_VERSION"], 0)
        self.asked: list[int] = []
        self._answer = answer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._over.is_set():
            if struct.unpack_from("<I", self.window, N["NPW_LAB_DOORBELL"])[0]:
                op = struct.unpack_from("<I", self.window, N["NPW_LAB_OP"])[0]
                self.asked.append(op)
                struct.pack_into("<i", self.window, N["NPW_LAB_STATUS"], self._answer(op))
                struct.pack_into("<I", self.window, N["NPW_LAB_DOORBELL"], 0)
            time.sleep(0.001)

    def end(self) -> None:
        """Answer no more."""
        self._over.set()
        self._thread.join()


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[StandIn]:
    """A stand-in that refuses operation 2 (stop)."""
    stand_in = StandIn(tmp_path, lambda op: -95 if op == N["NPW_LAB_STOP"] else 0)
    yield stand_in
    stand_in.end()


def test_window_file_holds_the_protocol_and_is_a_power_of_two(tmp_path: Path) -> None:
    make_window(tmp_path)
    size = (tmp_path / WINDOW).stat().st_size
    assert size >= N["NPW_CARD_BASE"] + N["NPW_CARDS_MAX"] * N["NPW_CARD_STRIDE"]
    assert size & (size - 1) == 0


def test_each_operation_has_the_number_of_the_header(plugin: StandIn, tmp_path: Path) -> None:
    host = Traffic(tmp_path)
    host.start()
    host.clear()
    with pytest.raises(TrafficError, match="to stop: Operation not supported"):
        host.stop()
    assert plugin.asked == [N["NPW_LAB_START"], N["NPW_LAB_CLEAR"], N["NPW_LAB_STOP"]]


def test_a_dump_is_read_back(plugin: StandIn, tmp_path: Path) -> None:
    pages = np.array([[1, 2], [3, 4], [0, 7]], dtype="<u4")
    pages.tofile((tmp_path / DUMP).with_suffix(".pages"))
    summary = {
        "guest_ns": 5,
        "clock": "virtual",
        "instructions": 9,
        "nodes": {"1": {"reads": 4, "writes": 13}},
        "outside": 0,
        "cards": [{"kind": "model"}],
    }
    (tmp_path / DUMP).with_suffix(".json").write_text(json.dumps(summary))
    counts = Traffic(tmp_path).counts()
    assert counts.requests.tolist() == [3, 7, 7]
    assert (counts.node_reads, counts.node_writes) == ({1: 4}, {1: 13})
    assert plugin.asked == [N["NPW_LAB_DUMP"]]


def test_a_window_that_nobody_serves_is_an_error(tmp_path: Path) -> None:
    make_window(tmp_path)
    with pytest.raises(TrafficError, match="no plugin serves"):
        Traffic(tmp_path).start()


def test_a_plugin_that_does_not_answer_is_an_error_and_no_hang(
    plugin: StandIn, tmp_path: Path
) -> None:
    plugin.end()
    with pytest.raises(TrafficError, match="no answer within 0 s"):
        Traffic(tmp_path).start(timeout_s=0.2)


def test_hanging_up_is_seen_by_both_sides(plugin: StandIn, tmp_path: Path) -> None:
    guest = Window(tmp_path / WINDOW)
    guest.lab("START")
    Traffic(tmp_path).hang_up()
    assert not guest.alive
    with pytest.raises(WindowError, match="has gone"):
        guest.lab("START")
    with pytest.raises(TrafficError, match="no plugin serves"):
        Traffic(tmp_path).start()


def test_numbers_are_those_of_the_header() -> None:
    names = {
        "_MAGIC": "NPW_MAGIC",
        "_WATCHING": "NPW_LAB_WATCHING",
        "_GUEST_NS": "NPW_LAB_GUEST_NS",
        "_DOORBELL": "NPW_LAB_DOORBELL",
        "_OP": "NPW_LAB_OP",
        "_STATUS": "NPW_LAB_STATUS",
    }
    assert {name: getattr(traffic, name) for name in names} == {
        name: N[header] for name, header in names.items()
    }
