# SPDX-License-Identifier: Apache-2.0
"""The counting table: the account of losses against a model of the BPF program.

Files in memory stand for the BPF maps; the model does what ebpf/table.h does. That both
have one layout is checked by the C compiler.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tierd.sources.ebpf.table import CONFIG, SLOT, STATS, Layout, PageTable, TableSize, map_array

EBPF = Path(__file__).resolve().parents[3] / "ebpf"
HASH = 0x9E3779B97F4A7C15
MASK64 = (1 << 64) - 1


class Model:
    """The program: counts a key on a CPU as ebpf/table.h does."""

    def __init__(self, maps: dict[str, int], size: TableSize) -> None:
        self.slots = map_array(maps["sets"], size.all_sets * Layout.WAYS, SLOT)
        self.stats = map_array(maps["stats"], size.cpus, STATS)
        self.config = map_array(maps["config"], 1, CONFIG)

    def sample(self, cpu: int, key: int) -> None:
        config, stats = self.config[0], self.stats[cpu]
        epoch, sets = int(config["epoch"]), int(config["sets"])
        half = epoch & 1
        stats["seen"] += 1
        stats["counted"][half] += 1
        stamp = int(stats["counted"][half])
        hashed = (key * HASH & MASK64) >> 32
        index = (half * int(config["cpus"]) + cpu) * sets + (hashed * sets >> 32)
        ways = self.slots[index * Layout.WAYS : (index + 1) * Layout.WAYS]
        chosen = None
        for slot in ways:
            if slot["epoch"] != epoch:
                chosen = slot
                break
            if slot["key"] == key:
                slot["stamp"] = stamp
                slot["count"] += 1
                return
        if chosen is None:
            chosen = min(ways, key=lambda slot: int(slot["stamp"]))
            stats["evicted"][half] += chosen["count"]
        for name, value in (("key", key), ("epoch", epoch), ("stamp", stamp), ("count", 1)):
            chosen[name] = value
        for name in ("writes", "hints", "order"):
            chosen[name] = 0


@contextmanager
def table(sets: int, cpus: int) -> Iterator[tuple[PageTable, Model]]:
    size = TableSize(sets, cpus)
    maps = {name: os.memfd_create(name) for name in ("sets", "stats", "config")}
    try:
        for fd in maps.values():
            os.ftruncate(fd, 1 << 20)
        made = PageTable(maps, size, sleep=lambda _: None)
        yield made, Model(maps, size)
    finally:
        for fd in maps.values():
            os.close(fd)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("sample"), st.integers(0, 1), st.integers(0, 40)),
        st.tuples(st.just("drain")),
    ),
    max_size=200,
)


@settings(max_examples=150, deadline=None)
@given(steps, st.integers(1, 3))
def test_sampled_and_lost_is_touched(actions, sets):
    """Whatever the order: what was drained and what was lost is what was sampled."""
    with table(sets, 2) as (made, model):
        touched = drained = lost = 0
        per_key: dict[int, int] = {}
        for action in [*actions, ("drain",), ("drain",)]:
            if action[0] == "sample":
                model.sample(action[1], action[2])
                touched += 1
                per_key[action[2]] = per_key.get(action[2], 0) + 1
                continue
            counts = made.drain()
            lost += counts.lost
            for key, count in zip(counts.key.tolist(), counts.count.tolist(), strict=True):
                drained += count
                per_key[key] -= count
        assert drained + lost == touched
        assert lost == int(model.stats["evicted"].sum())
        assert all(left >= 0 for left in per_key.values()) and sum(per_key.values()) == lost


def test_nothing_is_lost_while_the_pages_fit():
    with table(64, 1) as (made, model):
        for _ in range(3):
            for key in range(60):
                model.sample(0, key)
        counts = made.drain()
        assert counts.lost == 0
        assert sorted(counts.key.tolist()) == list(range(60))
        assert set(counts.count.tolist()) == {3}


def test_a_page_stays_while_others_come_and_go():
    """Least recently used goes: a page touched between each two others is never evicted."""
    with table(1, 1) as (made, model):
        for key in range(1, 100):
            model.sample(0, 0)
            model.sample(0, key)
        counts = made.drain()
        found = dict(zip(counts.key.tolist(), counts.count.tolist(), strict=True))
        assert found[0] == 99
        assert counts.lost == 99 - (Layout.WAYS - 1)


def test_a_program_that_was_slow_is_accounted_later():
    """A sample put into a half after it was read is lost, and told at its next reading."""
    with table(4, 1) as (made, model):
        made.drain()
        old = int(model.config["epoch"][0]) - 1
        late = int(model.config["epoch"][0])
        model.config["epoch"] = old
        model.sample(0, 7)
        model.config["epoch"] = late
        assert len(made.drain().key) == 0  # the other half
        assert made.drain().lost == 1


def test_epochs_wrap_round_to_the_other_half():
    with table(4, 1) as (made, model):
        model.config["epoch"] = (1 << 32) - 1
        model.sample(0, 3)
        assert made.drain().key.tolist() == [3]
        assert int(model.config["epoch"][0]) == 2
        model.sample(0, 4)
        assert made.drain().key.tolist() == [4]


def test_table_size_is_within_its_memory():
    for cpus in (1, 2, 96, 512):
        size = TableSize.for_bytes(4 << 20, cpus)
        assert size.sets >= 1
        assert size.all_sets * Layout.WAYS * SLOT.itemsize <= 4 << 20
    assert TableSize.for_bytes(64_000, 2).pages == 1000


def test_c_and_python_have_one_layout(tmp_path):
    """The C compiler compares every field's place and every structure's size."""
    lines = ['#include "table.h"', "#include <stddef.h>"]
    for name, dtype in (("slot", SLOT), ("config", CONFIG), ("stats", STATS)):
        lines.append(f"_Static_assert(sizeof(struct {name}) == {dtype.itemsize}, {name!r});")
        assert dtype.names is not None and dtype.fields is not None
        for part in dtype.names:
            if not part.startswith("spare"):
                where = dtype.fields[part][1]
                lines.append(
                    f'_Static_assert(offsetof(struct {name}, {part}) == {where}, "{part}");'
                )
    lines.append(f"_Static_assert(WAYS == {Layout.WAYS}, {'WAYS'!r});")
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines).replace("'", '"') + "\n")
    result = subprocess.run(
        ["cc", "-fsyntax-only", "-w", f"-I{EBPF}", str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_reading_is_of_the_right_arrays():
    with table(2, 3) as (made, model):
        model.stats["passed"] = [1, 2, 3]
        assert made.stat("passed") == 6
        assert made.stat("passed", 1) == 2
        made.set_offsets([8, 16])
        assert model.config["offset"][0, :2].tolist() == [8, 16]
        made.configure(own=77)
        assert int(model.config["own"][0]) == 77
        assert np.array_equal(model.config["sets"], [2])
