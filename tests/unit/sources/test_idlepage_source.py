# SPDX-License-Identifier: Apache-2.0
"""The source `idlepage`: where it can be used, and how it fails; with its thread at work."""

from __future__ import annotations

import contextlib
import errno
import select
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from idle_kernel import BITMAP, FLAGS, IdleKernel

from tierd.config.watching import IdlePageConfig
from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.errors import UnavailableError
from tierd.sources.idlepage import host
from tierd.sources.idlepage.native import IdlePages
from tierd.sources.idlepage.ring import RingWriter
from tierd.sources.idlepage.scanner import IdleScanner
from tierd.sources.idlepage.source import IdlePageSource, Scanning
from tierd.sources.scan import ScanSource
from tierd.sources.selection import SourceSelector
from tierd.topology.node_meminfo import node_frames
from tierd.workloads.bounded_reads import BoundedReads

FIRST = 0x4000


def tree(root: Path, *, blocks: dict[int, list[int]] | None = None) -> Path:
    """The files of a host that has idle page tracking."""
    for name in (host.BITMAP, host.FLAGS):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    memory = root / "sys/devices/system/memory"
    memory.mkdir(parents=True)
    (memory / "block_size_bytes").write_text("8000000\n")
    for node, numbers in (blocks or {}).items():
        for number in numbers:
            (root / f"sys/devices/system/node/node{node}/memory{number}").mkdir(parents=True)
    return root


def show_frames(root: Path, monkeypatch: pytest.MonkeyPatch, entry: int) -> None:
    """What pagemap tells of any page of this process."""
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/pagemap").touch()
    monkeypatch.setattr(host.os, "pread", lambda *given: entry.to_bytes(8, "little"))


def test_a_kernel_without_it_is_named(tmp_path: Path) -> None:
    state = IdlePageSource(root=tmp_path).available()
    assert (state.ok, state.reason) == (False, "idle page tracking is not in this kernel")
    assert "CONFIG_IDLE_PAGE_TRACKING" in state.hint
    with pytest.raises(UnavailableError, match="not in this kernel"), host.idle_pages(tmp_path):
        pass


def test_frames_that_are_hidden_are_told_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = IdlePageSource(root=tree(tmp_path))
    show_frames(tmp_path, monkeypatch, 1 << 63)
    assert "hides page frames" in source.available().reason
    assert "CAP_SYS_ADMIN" in source.available().hint
    show_frames(tmp_path, monkeypatch, 1 << 63 | 77)
    assert source.available().ok


def test_files_that_may_not_be_used_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = IdlePageSource(root=tree(tmp_path))
    monkeypatch.setattr(host.os, "access", lambda path, mode: not mode & host.os.W_OK)
    assert source.available().reason == f"/{host.BITMAP} may not be written"
    monkeypatch.setattr(host.os, "access", lambda path, mode: "kpageflags" not in str(path))
    assert source.available().reason == f"/{host.FLAGS} may not be read"


def test_blocks_of_memory_say_which_node_has_which_frames(tmp_path: Path) -> None:
    root = tree(tmp_path, blocks={0: [0, 1, 4], 1: [2, 3, 4], 2: [8]})
    frames = (128 << 20) >> 12
    # Block 4 has memory of both.
    assert node_frames(root) == [
        (0, 2 * frames, 0),
        (2 * frames, 4 * frames, 1),
        (8 * frames, 9 * frames, 2),
    ]


class PlayedScanning(Scanning):
    """A scanner over a played kernel."""

    def __init__(self, kernel: IdleKernel, root: Path) -> None:
        self.kernel = kernel
        self.closed = threading.Event()
        super().__init__(root, self.pages)

    @contextlib.contextmanager
    def pages(self, root: Path) -> Iterator[IdlePages]:
        self.closed.clear()
        yield IdlePages(BITMAP, FLAGS, self.kernel.frames, 1 << 20, self.kernel.calls)
        self.closed.set()

    def make_scanner(self, pages: IdlePages, writer: RingWriter, **given: Any) -> IdleScanner:
        given |= {"open_pagemap": self.kernel.open, "bounded": lambda: BoundedReads(0.25)}
        return super().make_scanner(pages, writer, **given)


def source_of(kernel: IdleKernel, root: Path) -> tuple[IdlePageSource, PlayedScanning]:
    made: list[PlayedScanning] = []

    def scanning(root: Path) -> Scanning:
        made.append(PlayedScanning(kernel, root))
        return made[0]

    settings = IdlePageConfig(
        interval_ns=20_000_000, cpu_limit=1.0, hot_threshold=1, cold_threshold=0
    )
    return IdlePageSource(settings, root=root, scanning=scanning), made[0]


def wait(source: IdlePageSource) -> None:
    """Until a scan ends."""
    assert select.select([source.phase_change_fd], [], [], 60)[0]


def test_its_thread_scans_until_it_is_closed(tmp_path: Path) -> None:
    kernel = IdleKernel()
    process = kernel.process(10)
    kernel.map(process, FIRST, *range(100, 400))
    source, scanning = source_of(kernel, tmp_path)
    source.watch([WatchedTarget(5, 10, (WatchedRange(FIRST, FIRST + 300),))])
    seen: set[int] = set()
    while len(seen) < 30:
        process.touch(*range(FIRST, FIRST + 30))
        wait(source)
        seen |= {int(page) for batch in source.poll() for page in batch.page}
    assert seen == {5 << 48 | vpn for vpn in range(FIRST, FIRST + 30)}
    assert source.progress()[0] >= 0
    assert source.state() is not None
    assert source.unwatched == 0
    source.close()
    assert scanning.closed.wait(60)
    assert (source.phase_change_fd, source.state()) == (-1, None)


def test_when_the_kernel_refuses_poll_lets_go_and_says_why(tmp_path: Path) -> None:
    kernel = IdleKernel()
    kernel.map(kernel.process(10), FIRST, *range(100, 400))
    source, scanning = source_of(kernel, tmp_path)
    source.watch([WatchedTarget(5, 10, (WatchedRange(FIRST, FIRST + 300),))])
    wait(source)
    kernel.hidden = True
    with pytest.raises(UnavailableError, match="hides page frames"):
        while True:
            wait(source)
            source.poll()
    assert scanning.closed.wait(60)
    kernel.hidden = False
    source.watch([WatchedTarget(5, 10, (WatchedRange(FIRST, FIRST + 300),))])
    wait(source)
    source.close()


def test_an_interval_may_be_chosen_without_the_kernel_module(tmp_path: Path) -> None:
    """The module refuses one where it cannot flush the TLB; idle page tracking never does."""
    parameters = tmp_path / "sys/module/tierd/parameters"
    parameters.mkdir(parents=True)
    (parameters / "can_flush").write_text("N\n")
    kernel = IdleKernel()
    kernel.map(kernel.process(10), FIRST, *range(100, 400))
    source, _ = source_of(kernel, tmp_path)
    source.pace(800_000)
    source.longest_us = 20_000
    source.watch([WatchedTarget(5, 10, (WatchedRange(FIRST, FIRST + 300),))])
    state = source.state()
    assert state is not None
    assert state.sampling_interval_us == 20_000
    source.close()


def test_it_is_used_where_the_module_is_not_and_gives_way_to_the_next_where_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = IdleKernel()
    kernel.map(kernel.process(10), FIRST, *range(100, 400))
    idlepage, _ = source_of(kernel, tree(tmp_path))
    show_frames(tmp_path, monkeypatch, 1 << 63 | 77)
    selector = SourceSelector([ScanSource(root=tmp_path), idlepage])
    targets = [WatchedTarget(5, 10, (WatchedRange(FIRST, FIRST + 300),))]
    selector.watch(targets, 0)
    assert selector.active is idlepage
    assert selector.event_driven is idlepage
    assert selector.reasons == {"scan": "the tierd kernel module is not loaded"}
    kernel.hidden = True
    while selector.active is idlepage:
        wait(idlepage)
        selector.poll(1)
    assert "hides page frames" in selector.reasons["idlepage"]
    with pytest.raises(UnavailableError, match="no source"):
        selector.watch(targets, 2)


def watched(number: int, pid: int) -> WatchedTarget:
    return WatchedTarget(number, pid, (WatchedRange(FIRST, FIRST + 300),))


def test_a_process_that_does_not_answer_delays_nothing_of_the_others(tmp_path: Path) -> None:
    """Scans of the others go on and count, and closing does not wait for it."""
    kernel = IdleKernel()
    stuck = kernel.process(10)
    kernel.map(stuck, FIRST, *range(100, 400))
    other = kernel.process(11)
    kernel.map(other, FIRST, *range(500, 800))
    stuck.answers.clear()
    source, scanning = source_of(kernel, tmp_path)
    source.watch([watched(5, 10), watched(6, 11)])
    for _ in range(40):
        other.touch(*range(FIRST, FIRST + 100))
        wait(source)
        source.poll()
    assert source.progress()[0] >= 1
    assert source.passed_over == 1
    assert source.unseen == frozenset()
    source.close()
    assert scanning.closed.wait(60)
    assert not stuck.answers.is_set()
    stuck.answers.set()


def test_only_a_process_that_may_not_be_looked_at_counts_as_unseen(tmp_path: Path) -> None:
    """One whose pagemap cannot be opened for another reason is tried again."""
    kernel = IdleKernel()
    process = kernel.process(10)
    kernel.map(process, FIRST, *range(100, 400))
    source, _ = source_of(kernel, tmp_path)
    for number in (errno.EMFILE, errno.ENOMEM):
        kernel.open_error = number
        source.watch([watched(5, 10)])
        assert source.unseen == frozenset()
    kernel.open_error = 0
    source.watch([watched(5, 10)])
    wait(source)
    source.close()
    for number in (errno.EACCES, errno.EPERM):
        kernel.open_error = number
        source.watch([watched(5, 10)])
        assert source.unseen == {5}
        source.close()
