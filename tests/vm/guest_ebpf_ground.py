# SPDX-License-Identifier: Apache-2.0
"""What the checks of the eBPF sources stand on: the program under watch, sources, counts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tierd.config.watching import FaultsConfig
from tierd.core.access import AccessBatch, WatchedRange, WatchedTarget
from tierd.sources.ebpf import host
from tierd.sources.ebpf.table import SamplerSettings
from tierd.sources.faults import FaultSource
from tierd.sources.migrations import MigrationWatch
from tierd.sources.pmu import PmuSource
from tierd.topology.sysfs import parse_list

Result = dict[str, Any]
TARGET = 7
SYS_MOVE_PAGES = 279
MPOL_MF_MOVE = 2
VPN_MASK = (1 << 48) - 1


class Touch:
    """The program under watch."""

    def __init__(self, program: str, pages: int, rounds: int, cpu: int | None = None) -> None:
        argv = [program, str(pages), str(rounds)] + ([] if cpu is None else [str(cpu)])
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        pid, address = self.process.stdout.readline().split()
        self.pid, self.vpn = int(pid), int(address) >> 12
        self.pages, self.rounds = pages, rounds

    @property
    def target(self) -> WatchedTarget:
        """What a source shall watch."""
        return WatchedTarget(TARGET, self.pid, (WatchedRange(self.vpn, self.vpn + self.pages),))

    def say(self, words: str) -> str:
        """One command and its answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def expected(self) -> np.ndarray:
        """How often each page faults in one "go"."""
        return 1 + np.arange(self.pages) % self.rounds

    def faults(self) -> int:
        """The sum of that."""
        return int(self.expected().sum())

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


def per_page(batches: list[AccessBatch], touch: Touch) -> np.ndarray:
    """Counts of the touched pages; a key of another page or target is an error."""
    counts = np.zeros(touch.pages, np.int64)
    for batch in batches:
        index = (batch.page & np.uint64(VPN_MASK)).astype(np.int64) - touch.vpn
        assert (batch.page >> np.uint64(48) == TARGET).all()
        assert ((index >= 0) & (index < touch.pages)).all()
        np.add.at(counts, index, batch.count.astype(np.int64))
    return counts


def memory_nodes() -> list[int]:
    """Nodes with memory."""
    return sorted(parse_list(Path("/sys/devices/system/node/has_memory").read_text()))


def move(touch: Touch, node: int) -> int:
    """Ask the kernel to move all pages of `touch` to a node; returns the number there."""
    libc = ctypes.CDLL(None, use_errno=True)
    pages = (ctypes.c_void_p * touch.pages)(*((touch.vpn + i) << 12 for i in range(touch.pages)))
    nodes = (ctypes.c_int * touch.pages)(*([node] * touch.pages))
    status = (ctypes.c_int * touch.pages)()
    result = libc.syscall(
        SYS_MOVE_PAGES, touch.pid, touch.pages, pages, nodes, status, MPOL_MF_MOVE
    )
    assert result >= 0, os.strerror(ctypes.get_errno())
    return sum(value == node for value in status)


class Ground:
    """Sources for one way of loading; what takes minutes to compile is kept."""

    def __init__(self, touch: str, way: str) -> None:
        self.program = touch
        self.ways = (way,)
        self.watch: MigrationWatch | None = None
        self.kept: FaultSource | None = None

    def settings(self, table_bytes: int = 4 << 20) -> SamplerSettings:
        return SamplerSettings(
            table_bytes=table_bytes, ring_bytes=128 * host.possible_cpus() * 4096, ways=self.ways
        )

    def faults(self, mode: str = "table", table_bytes: int = 4 << 20) -> FaultSource:
        # A rate beyond reach: each fault counts, whatever the machine's speed.
        return FaultSource(
            FaultsConfig(samples_per_s=10**9, cpu_limit=1e3, mode=mode),
            sampler=self.settings(table_bytes),
        )

    def kept_faults(self) -> FaultSource:
        """One source of all faults for several checks."""
        if self.kept is None:
            self.kept = self.faults()
        return self.kept

    @contextlib.contextmanager
    def watching(self, source: FaultSource | PmuSource, touch: Touch) -> Iterator[Result]:
        """Let a source watch the program; the dictionary tells what loading cost."""
        try:
            state = source.available()
            assert state.ok, state
            begin = time.monotonic()
            source.watch([touch.target])
            assert source.ready(wait=True)
            assert source._sampler is not None and source._sampler.loaded is not None
            loaded = source._sampler.loaded
            yield {
                "way": loaded.way,
                "load_s": round(time.monotonic() - begin, 2),
                "helper_mib": loaded.peak_rss_kib >> 10,
            }
        finally:
            if source is self.kept:
                source.watch([])
            else:
                source.close()
            touch.close()

    def exact(self, source: FaultSource | PmuSource, pages: int, rounds: int) -> Result:
        """Every page of `touch` exactly as often as it was touched, nothing lost."""
        touch = Touch(self.program, pages, rounds)
        with self.watching(source, touch) as told:
            source.poll()
            lost = source.totals.lost
            done = touch.say("go")
            counts = per_page(source.poll(), touch)
            again = per_page(source.poll(), touch)
            wrong = int((counts != touch.expected()).sum())
            extra = source.counters if isinstance(source, FaultSource) else {}
            return told | {
                "ok": wrong == 0
                and again.sum() == 0
                and source.totals.lost == lost
                and done == f"done {touch.faults()}",
                "pages": pages,
                "wrong_pages": wrong,
                "faults": touch.faults(),
                "counted": int(counts.sum()),
                "lost": source.totals.lost - lost,
                "missed": extra.get("missed", 0),
            }

    def migrations(self) -> MigrationWatch:
        """One watch for all checks: loading it takes minutes in an emulated guest."""
        if self.watch is None:
            self.watch = MigrationWatch(SamplerSettings(table_bytes=1 << 20, ways=self.ways))
            state = self.watch.available()
            assert state.ok, state
            self.watch.start()
            assert self.watch.ready(wait=True)
        return self.watch
