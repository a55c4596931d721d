# SPDX-License-Identifier: Apache-2.0
"""A promoter on a fake kernel with a clock of its own, and the pages it works on."""

from __future__ import annotations

from typing import Any

import numpy as np
from fake_kernel import FIRST_PAGE
from fakering import FakeRing, hot_records

from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult, Reason
from tierd.migration import promoter as binding
from tierd.migration.executor import tuning_of_mover
from tierd.migration.fastpath_update import SPAN, VICTIM, Orders, PromoterSettings, Way
from tierd.migration.promoter import Promoter

FAST, SLOW = 0, 1
MS, S = 10**6, 10**9
PAGE = 4096
SETTINGS = PromoterSettings(
    interval_ns=10 * MS,
    quota_bytes_per_s=1 << 30,
    residency_s=10.0,
    bounce_s=5.0,
    patience_s=1.0,
    margin=0.5,
    confidence=2.5,
    heat_s=7.0,
    rate_cap=7.0,
    visits=1.0,
    copy_requests=64.0,
    least_rate=0.0,
    return_rate=0.0,
    expected=False,
)


def moves_of_a_tick(pages: range, direction: Direction, *, order: int = 0) -> MigrationResult:
    """What a tick tells of folios that it moved."""
    n = len(pages)
    plan = MigrationPlan(
        page=np.array(pages, np.uint64) + np.uint64(FIRST_PAGE),
        order=np.full(n, order, np.uint8),
        source=np.zeros(n, np.int16),
        dest=np.zeros(n, np.int16),
        direction=np.full(n, direction, np.uint8),
        heat=np.ones(n, np.float32),
    )
    fate = np.full(n, Fate.MOVED, np.uint8)
    return MigrationResult(plan, fate, plan.dest, {}, n << 12 << order, 1, 1, 0)


class FakeMover:
    """A mover of the fake kernel, as the binding knows it."""

    def __init__(self, native: Any, rate: int = 10**12) -> None:
        made = native.ffi.new("struct tierd_mover **")
        tuning, burst = tuning_of_mover(native.ffi), max(rate // 10, 2 << 20)
        assert native.lib.tierd_mover_new(rate, burst, 1, 1.0, tuning, made) == 0
        self.handle = native.ffi.gc(made[0], native.lib.tierd_mover_free)

    def processes(self, pids: Any) -> list[tuple[int, int, int]]:
        return [(target, pid, 1) for target, pid in sorted(pids.items())]


class World:
    """Pages on two nodes, a ring, and a promoter whose intervals the test calls."""

    def __init__(self, native: Any, monkeypatch: Any) -> None:
        self.lib = native.lib
        monkeypatch.setattr(binding, "ffi", native.ffi)
        monkeypatch.setattr(binding, "lib", native.lib)
        monkeypatch.setattr(Promoter, "_descriptor", lambda self, node: node)
        self.native = native
        self.ring = FakeRing()
        self.lib.fake_reset(1000)
        self.settings = SETTINGS
        self.victims: list[tuple[int, float]] = []
        self.spans = [(FIRST_PAGE, FIRST_PAGE + 65536)]
        self.low = self.kept = 0
        self.epoch_ns = self.now
        self.made: Promoter | None = None

    @property
    def now(self) -> int:
        return int(self.lib.fake_now())

    def build(self, rate: int = 10**12) -> Promoter:
        self.mover = FakeMover(self.native, rate)
        self.made = Promoter(self.mover, self.settings)  # type: ignore[arg-type]
        self.made.attach(self.ring.memory)
        self.steer()
        return self.made

    def steer(self) -> None:
        assert self.made is not None
        victims = np.zeros(len(self.victims), VICTIM)
        victims["page"] = [FIRST_PAGE + page for page, _ in self.victims]
        victims["heat"] = [heat for _, heat in self.victims]
        self.made.steer(
            Orders(
                spans=np.array(self.spans, SPAN),
                pids={0: 1},
                victims=victims,
                epochs={0: (self.epoch_ns, self.epoch_ns, 1)},
                ways={
                    FAST: Way(down=(SLOW,), low_bytes=self.low, held_bytes=self.kept),
                    SLOW: Way(up=(FAST,)),
                },
            )
        )

    def slow(self, pages: range) -> None:
        for page in pages:
            self.lib.fake_page(page, SLOW, 0, 0)

    def after(self, pages: range, seconds: int = 1, **build: Any) -> Promoter:
        """A promoter that is that old, as these pages are on the slow node."""
        self.slow(pages)
        made = self.build(**build)
        self.lib.fake_pass(seconds * S)
        return made

    def report(self, pages: Any, count: int = 40, **more: Any) -> None:
        keys = np.asarray(list(pages), np.uint64) + np.uint64(FIRST_PAGE)
        self.ring.put(hot_records(keys, count, self.now, **more))

    def run(self, intervals: int = 1) -> int:
        assert self.made is not None
        moved = 0
        for _ in range(intervals):
            self.lib.fake_pass(10 * MS)
            moved += self.made.step()
        return moved

    def stream(self, intervals: int = 10, each: int = 100) -> None:
        """So many pages are reported in every interval, others each time."""
        for step in range(intervals):
            self.report(range(step * each, (step + 1) * each))
            self.run()

    def short(self, room: int, *, held: int = 0, low: int = 0) -> None:
        """The fast node has so many pages free, of which CPUs hold on to some."""
        self.lib.fake_room(FAST, room)
        if held:
            self.lib.fake_hold(FAST, held)
        self.low = low * PAGE

    def held(self, reason: Reason) -> int:
        assert self.made is not None
        return self.made.stats().held[reason]

    def counter(self, name: str) -> int:
        assert self.made is not None
        return int(self.made.stats().counters[name])

    def node(self, page: int) -> int:
        return int(self.lib.fake_node(page))
