# SPDX-License-Identifier: Apache-2.0
"""Frames of a process from pagemap, when the address space behind the file is gone.

Reading on until all entries had come would never end there: the checks of lookups, whose
processes run other programs and end, did so now and then.
"""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from frames import frames_in, frames_of

PAGES = 64
EXECS = ["bash", "-c", "echo I run; read; exec cat"]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs another program when it is told something."""
    with subprocess.Popen(EXECS, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"I run\n"  # before, nothing may be present yet
        yield process
        process.kill()


def first_vpn(pid: int) -> int:
    """Where the mappings of a process begin."""
    return int(Path(f"/proc/{pid}/maps").read_text().split("-")[0], 16) // mmap.PAGESIZE


def test_what_is_present_has_a_frame_and_what_is_not_has_none() -> None:
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        area[: PAGES // 2 * mmap.PAGESIZE : mmap.PAGESIZE] = b"x" * (PAGES // 2)
        view = np.frombuffer(area, np.uint8)
        frames = frames_of(os.getpid(), view.ctypes.data // mmap.PAGESIZE, PAGES)
        del view
    assert np.all(frames[: PAGES // 2] > 0)
    assert len(np.unique(frames[: PAGES // 2])) == PAGES // 2
    assert not frames[PAGES // 2 :].any()


@pytest.mark.parametrize("way", ["another program", "the end"])
def test_an_address_space_that_is_gone_has_no_frames(
    child: subprocess.Popen[bytes], way: str
) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    first = first_vpn(child.pid)
    with Path(f"/proc/{child.pid}/pagemap").open("rb", buffering=0) as pagemap:
        assert frames_in(pagemap, first, PAGES).any()
        if way == "the end":
            child.kill()
            child.wait()
        else:
            child.stdin.write(b"\nI am cat\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"I am cat\n"
        assert not frames_in(pagemap, first, PAGES).any()
