# SPDX-License-Identifier: Apache-2.0
"""Requests to cards' memory, from a class folder of ordinary files."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tierd.sources.hmu_devices import CLASS, RequestCount


def tell(root: Path, number: int, text: str) -> None:
    """As sysfs has it: an open file tells what holds now."""
    folder = root / CLASS / f"neoprof{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "requests").write_text(text)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_it_is_what_was_added_since_each_card_was_first_asked(tmp_path: Path) -> None:
    tell(tmp_path, 0, "1000\n")
    tell(tmp_path, 1, "5000\n")
    count = RequestCount(tmp_path)
    assert count.count([0, 1]) == 0
    tell(tmp_path, 0, "1300\n")
    tell(tmp_path, 1, "5004\n")
    assert count.count([0, 1]) == 304
    assert count.count([0, 1]) == 304


def test_a_card_that_was_reset_begins_at_nothing(tmp_path: Path) -> None:
    tell(tmp_path, 0, "1000\n")
    count = RequestCount(tmp_path)
    count.count([0])
    tell(tmp_path, 0, "7\n")
    assert count.count([0]) == 0
    tell(tmp_path, 0, "17\n")
    assert count.count([0]) == 10


def test_cards_come_and_go(tmp_path: Path) -> None:
    tell(tmp_path, 0, "0\n")
    tell(tmp_path, 1, "0\n")
    before = open_files()
    count = RequestCount(tmp_path)
    count.count([0, 1])
    tell(tmp_path, 0, "5\n")
    tell(tmp_path, 1, "100\n")
    assert count.count([0]) == 5
    assert open_files() == before + 1
    # What card 1 saw meanwhile is nobody's.
    tell(tmp_path, 1, "200\n")
    assert count.count([0, 1]) == 5
    tell(tmp_path, 1, "201\n")
    assert count.count([0, 1]) == 6
    count.close()
    assert open_files() == before


def test_cards_that_do_not_tell_count_none_and_are_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tell(tmp_path, 0, "1\n")
    tell(tmp_path, 1, "")
    tell(tmp_path, 2, "many\n")
    before = open_files()
    count = RequestCount(tmp_path)
    assert count.count([0, 1, 2, 3]) == 0
    tell(tmp_path, 0, "3\n")
    assert count.count([0, 1, 2, 3]) == 2
    assert [caplog.text.count(f"card={n} event=no_request_count") for n in range(4)] == [0, 1, 1, 1]
    assert open_files() == before + 1
