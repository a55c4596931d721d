# SPDX-License-Identifier: Apache-2.0
"""Weights of interleaving by the tier model, on a made-up sysfs: one rule a test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tiersim import SimTier, tier_map

from tierd.core.errors import UnavailableError
from tierd.core.tiermap import MemoryKind, NodeUsage
from tierd.core.tuning import BANDWIDTH, PACING
from tierd.engine.interleave import FOLDER, Interleave, integers, weights, wished
from tierd.policy.tiermodel import TierModel, make_model

TIERS = tier_map(
    (
        SimTier(MemoryKind.DRAM, 1000, 118, 60e9),
        SimTier(MemoryKind.HBM, 1000, 130, 120e9),
        SimTier(MemoryKind.CXL, 1000, 430, 20e9),
    ),
    16,
)
ROOMY = {node: NodeUsage(1000, 500, 0) for node in range(3)}


def model(*load: float) -> TierModel:
    return replace(make_model(TIERS, None), load=np.array(load) * 1e9)


def test_idle_tiers_get_pages_by_their_bandwidth() -> None:
    wish = wished(TIERS, model(0, 0, 0), ROOMY, 0.02)
    assert wish == pytest.approx({0: 0.3, 1: 0.6, 2: 0.1})


def test_an_overloaded_tier_gets_none_and_the_emptiest_most() -> None:
    wish = wished(TIERS, model(55, 20, 0), ROOMY, 0.02)
    assert wish[0] == 0
    assert wish[1] > wish[2] > 0


def test_shares_fill_tiers_to_one_level() -> None:
    load = np.array([15.0, 20.0, 1.0])
    wish = wished(TIERS, model(*load), ROOMY, 0.02)
    after = (load + 0.5 * load.sum() * np.array([wish[n] for n in range(3)])) / [60, 120, 20]
    assert np.ptp(after[[wish[n] > 0 for n in range(3)]]) < 1e-9


def test_a_node_without_room_gets_none() -> None:
    full = ROOMY | {1: NodeUsage(1000, 15, 0)}
    assert wished(TIERS, model(0, 0, 0), full, 0.02) == pytest.approx({0: 0.75, 2: 0.25})
    assert wished(TIERS, model(0, 0, 0), {}, 0.02) == {}


def test_shares_change_by_steps() -> None:
    assert weights({}, {0: 1.0}) == {0: 1.0}
    assert weights({0: 1.0, 1: 0.0}, {0: 0.3, 1: 0.7}) == {
        0: 1 - BANDWIDTH.interleave_max_step,
        1: BANDWIDTH.interleave_max_step,
    }
    assert weights({0: 0.31, 1: 0.69}, {0: 0.3, 1: 0.7}) == {0: 0.3, 1: 0.7}


def test_weights_are_what_the_kernel_takes() -> None:
    assert integers({0: 0.0, 1: 0.004, 2: 0.5, 3: 4.0}) == {0: 1, 1: 1, 2: 128, 3: 255}


# ------------------------------------------------------------------ files


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    for node in range(3):
        (folder / f"node{node}").write_text("7\n")
    return tmp_path


def made(root: Path, *load: float) -> Interleave:
    interleave = Interleave(0.02, root)
    sight: Any = SimpleNamespace(model=model(*load))
    interleave.state = lambda: sight
    return interleave


def tick(interleave: Interleave, number: int) -> None:
    record: Any = SimpleNamespace(
        time_ns=number * PACING.upkeep_interval_ns, tiers=TIERS, usage=ROOMY
    )
    interleave.on_tick(record)


def read(root: Path) -> list[str]:
    return [(root / FOLDER / f"node{node}").read_text().strip() for node in range(3)]


def test_weights_are_written_and_put_back(sysfs: Path) -> None:
    interleave = made(sysfs, 0, 0, 0)
    interleave.start()
    assert read(sysfs) == ["7", "7", "7"]
    tick(interleave, 1)
    assert read(sysfs) == ["76", "153", "26"]
    interleave.close()
    assert read(sysfs) == ["7", "7", "7"]


def test_a_kernel_that_weighs_by_itself_goes_on_afterwards(sysfs: Path) -> None:
    auto = sysfs / FOLDER / "auto"
    auto.write_text("true\n")
    interleave = made(sysfs, 0, 0, 0)
    interleave.start()
    tick(interleave, 1)
    auto.write_text("false\n")  # as the kernel does when a weight is written
    interleave.close()
    assert auto.read_text() == "true\n"


def test_weights_follow_the_load_once_a_second_by_steps(sysfs: Path) -> None:
    interleave = made(sysfs, 0, 0, 0)
    interleave.start()
    tick(interleave, 1)
    loaded: Any = SimpleNamespace(model=model(0, 120, 0))
    interleave.state = lambda: loaded
    tick(interleave, 1)
    assert read(sysfs)[1] == "153"
    tick(interleave, 2)
    assert read(sysfs)[1] == "140"
    for number in range(3, 20):
        tick(interleave, number)
    assert read(sysfs)[1] == "1"


def test_without_weights_or_a_decision_nothing_is_written(tmp_path: Path, sysfs: Path) -> None:
    with pytest.raises(UnavailableError, match="no weights"):
        made(tmp_path / "none").start()
    interleave = Interleave(0.02, sysfs)
    interleave.start()
    tick(interleave, 1)
    interleave.close()
    assert read(sysfs) == ["7", "7", "7"]


def test_a_file_that_cannot_be_written_ends_it_quietly(sysfs: Path) -> None:
    interleave = made(sysfs, 0, 0, 0)
    interleave.start()
    (sysfs / FOLDER / "node0").unlink()
    (sysfs / FOLDER / "node0").mkdir()
    tick(interleave, 1)
    tick(interleave, 2)
    assert (sysfs / FOLDER / "node1").read_text() == "7\n"
    interleave.close()
