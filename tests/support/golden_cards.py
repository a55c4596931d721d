# SPDX-License-Identifier: Apache-2.0
"""A host of golden recordings with a card, whose pages the native path moves on a fake kernel."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from fakecards import FakeCards, card, host
from fakering import FakeRing, hot_records
from golden_hosts import MS, START_NS, Host
from madeup_module import FAST, SLOW, Pages

from tierd.config.model import Config
from tierd.config.watching import NeoProfConfig
from tierd.core.tiermap import NodeUsage
from tierd.migration import executor as mover_binding
from tierd.migration import promoter as promoter_binding
from tierd.migration.executor import NativeMover, tuning_of_mover
from tierd.migration.promoter import Promoter
from tierd.observe.recording.recorder import Recorder
from tierd.sources.kmod.neoprof import histogram_edges
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import DEVICE, PARAMETERS
from tierd.sources.neoprof import NeoProfSource
from tierd.sources.scan import ScanSource


class Cards(NeoProfSource):
    """A card whose count of requests the test keeps."""

    requested = 0

    def requests(self) -> int:
        """So many since the start."""
        return self.requested


class CardHost(Host):
    """A card tells of pages, and the native path moves them on a fake kernel."""

    def __init__(
        self,
        recorder: Recorder,
        config: Config,
        pages: Pages,
        fast_pages: int,
        *,
        native: Any,
        root: Path,
    ) -> None:
        self.lib = native.lib
        self.lib.fake_reset(1000)
        self.lib.fake_pass(START_NS - int(self.lib.fake_now()))
        for page in range(pages.count):
            # Some are busy for a while, and some cannot be moved.
            busy, error = 3 * (page % 40 == 7), 16 * (page % 50 == 3)
            self.lib.fake_page(page, SLOW, busy, error)
        super().__init__(recorder, config, pages, fast_pages)
        self.lib.fake_room(FAST, fast_pages)
        self.lib.fake_room(SLOW, self.capacity[SLOW] - pages.count)
        host(root, {0: (0, 4), 1: (4, 8)})
        (root / DEVICE).parent.mkdir(parents=True, exist_ok=True)
        (root / DEVICE).touch()
        (root / PARAMETERS).mkdir(parents=True, exist_ok=True)
        self.cards = FakeCards(card(0, (512, 1024)))
        self.rings: list[FakeRing] = []
        self.reported = np.zeros(pages.count, np.bool_)
        self.epoch_ns = self.taken = self.drift = 0
        self.source = Cards(
            NeoProfConfig(lines_per_access=1),
            root=root,
            clock=lambda: self.now,
            open_cards=self.cards.open,  # type: ignore[arg-type]
            open_ring=self.open_ring,
            make_scan=lambda settings, nodes, keep: ScanSource(
                settings,
                nodes=nodes,
                alone=False,
                clock=lambda: self.now,
                open_control=self.module.open_control,
                open_ring=self.module.open_ring,
                keep=keep,
            ),
        )
        mover = NativeMover(rate_bytes_per_s=1 << 30)
        mover._processes = mock.Mock(hold=lambda pids: [(0, 100, 1)])
        self.serve(self.source, mover, open_ring=self.open_ring, root=root)

    @property
    def now(self) -> int:
        """CLOCK_MONOTONIC."""
        return int(self.lib.fake_now())

    def open_ring(self, root: Path, kinds: Any) -> Ring:
        """A ring that the card's records go to."""
        self.rings.append(FakeRing())
        return Ring(self.rings[-1].memory)

    def step(self) -> bool:
        """10 ms: the card counts, the native path works, now and then a scan ends."""
        self.lib.fake_pass(10 * MS)
        self._others()
        self.pages.drift(self.drift)
        self._count()
        native: Any = self.service.components.fast_path._native  # type: ignore[union-attr]
        if native is not None and native.running:
            native._promoter.step()
        self._see_moves()
        self.module.advance(self.now)
        return False

    def _others(self) -> None:
        """Other processes take fast memory, and give it back, now and then."""
        if self.pages.random.random() < 0.1:
            wanted = int(self.pages.random.integers(0, 40))
            left = int(self.lib.fake_room_left(FAST)) + self.taken - wanted
            if left >= 0:
                self.taken = wanted
                self.lib.fake_room(FAST, left)

    def _see_moves(self) -> None:
        for page in range(self.pages.count):
            self.pages.node[page] = self.lib.fake_node(page)

    def _count(self) -> None:
        """Records of pages whose count in this epoch has passed the threshold."""
        self.pages_seen = self.pages.node == SLOW
        self.source.requested += int((self.pages.rate * self.pages_seen).sum() * 0.01)
        epoch = self.source.epochs.get(0)
        if epoch is None:
            return
        if epoch.start_ns != self.epoch_ns:
            self.epoch_ns = epoch.start_ns
            self.reported[:] = False
        count = self.pages.rate * (self.now - self.epoch_ns) / 1e9
        threshold = min(30, self.cards.known[0].settings.threshold)
        counted = np.where(self.pages_seen, count, 0).astype(np.int64)
        bins = np.searchsorted(histogram_edges(), counted, side="right") - 1
        self.cards.histogram = np.bincount(bins, minlength=64).astype(np.uint64)
        self.cards.counters = {
            "read_beats": self.source.requested,
            "cycles": (self.now - START_NS) // 100,
            "reports": int(self.reported.sum()),
        }
        told = np.flatnonzero(self.pages_seen & ~self.reported & (count >= threshold))
        self.reported[told] = True
        for ring in self.rings:
            counts = np.minimum(count[told], 65535).astype(np.uint16)
            ring.put(hot_records(self.pages.key[told], counts, self.now, node=SLOW))

    def usage(self) -> Mapping[int, NodeUsage]:
        """As the fake kernel has it."""
        self._see_moves()
        return super().usage()


@contextlib.contextmanager
def on_fake_kernel(native: Any) -> Iterator[None]:
    """Mover and promoter are those of the fake kernel, without a thread."""

    def start(promoter: Promoter, ring: Any) -> None:
        promoter.attach(ring)
        promoter.running = True

    with contextlib.ExitStack() as stack:
        for binding in (promoter_binding, mover_binding):
            stack.enter_context(mock.patch.object(binding, "ffi", native.ffi))
            stack.enter_context(mock.patch.object(binding, "lib", native.lib))
        patch = mock.patch.object
        stack.enter_context(patch(Promoter, "_descriptor", lambda promoter, node: node))
        stack.enter_context(patch(Promoter, "start", start))
        # A move's duration is told of by it.
        clock = mock.Mock(monotonic_ns=native.lib.fake_now)
        stack.enter_context(patch(mover_binding, "time", clock))
        yield


def fake_native(folder: Path, *, changed: tuple[str, str, str] | None = None) -> Any:
    """Mover and promoter on a fake kernel, compiled in a folder.

    `changed`: a C file, a piece of it, and what stands there instead.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "migration"))
    import fake_kernel

    if changed is None:
        return fake_kernel.build(folder, promoter=True)
    name, piece, other = changed
    copy = folder / "native"
    shutil.copytree(fake_kernel.NATIVE, copy, ignore=shutil.ignore_patterns("gpu"))
    text = (copy / name).read_text()
    assert text.count(piece) == 1, f"{name} has no single {piece!r}"
    (copy / name).write_text(text.replace(piece, other))
    with mock.patch.object(fake_kernel, "NATIVE", copy):
        return fake_kernel.build(folder, promoter=True)


def mover_of(native: Any) -> Callable[[], Any]:
    """Makes a mover that a promoter of this module takes; it is asked nothing."""

    def make() -> Any:
        made = native.ffi.new("struct tierd_mover **")
        tuning = tuning_of_mover(native.ffi)
        assert native.lib.tierd_mover_new(1 << 30, 2 << 20, 1, 1.0, tuning, made) == 0
        handle = native.ffi.gc(made[0], native.lib.tierd_mover_free)
        return mock.Mock(handle=handle, processes=lambda pids: [])

    return make


@contextlib.contextmanager
def replaying_on(native: Any) -> Iterator[None]:
    """Replays use the promoter of this module, as of `fake_native`."""
    patch = mock.patch.object
    with (
        patch(promoter_binding, "ffi", native.ffi),
        patch(promoter_binding, "lib", native.lib),
        mock.patch("tierd.replay.fast_path.make_mover", mover_of(native)),
    ):
        yield
