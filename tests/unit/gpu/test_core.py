# SPDX-License-Identifier: Apache-2.0
"""Prediction, sharing, costs, room: the harvester's pure parts."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_host import topology
from hypothesis import given
from hypothesis import strategies as st

from tierd_gpu.account import Account
from tierd_gpu.cost import CostModel
from tierd_gpu.links import CHUNK_BYTES, HOST, pair_bandwidth
from tierd_gpu.predict import Predictor
from tierd_gpu.share import divide


def test_a_repeated_order_is_predicted_and_a_change_is_followed() -> None:
    predictor = Predictor()
    order = [5, 3, 9, 1, 7, 2, 8]
    for chunk in order * 2:
        predictor.add(chunk)
    assert predictor.next(4, 100).tolist() == [5, 3, 9, 1]
    predictor.add(8)
    predictor.add(60)
    assert 5 not in predictor.next(4, 100).tolist()


@pytest.mark.parametrize("step", [1, -1])
def test_a_run_is_continued_through_other_uses(step: int) -> None:
    predictor = Predictor()
    for index in range(6):
        predictor.add(50 + step * index)
        predictor.add(90)
    last = 50 + 5 * step
    assert predictor.next(3, 100).tolist() == [last + step, last + 2 * step, last + 3 * step]


def test_the_history_is_bounded() -> None:
    predictor = Predictor(capacity=64)
    for turn in range(1000):
        predictor.add(turn * 7 % 50)
    assert len(predictor.next(1000, 100)) <= 50
    assert len(predictor._pairs) <= 128


@given(
    st.integers(0, 5000),
    st.lists(st.tuples(st.integers(0, 3000), st.floats(0, 100)), min_size=1, max_size=12),
)
def test_sharing_never_gives_more_than_there_is_or_is_needed_and_wastes_nothing(
    room: int, tenants: list[tuple[int, float]]
) -> None:
    need = np.array([n for n, _ in tenants], np.int64)
    weight = np.array([0.0 if w < 0.01 else w for _, w in tenants])
    given_ = divide(room, need, weight)
    assert (given_ >= 0).all()
    assert (given_ <= need).all()
    assert given_[weight == 0].sum() == 0
    assert given_.sum() == min(room, int(need[weight > 0].sum()))


def test_a_greedy_tenant_does_not_starve_another() -> None:
    granted = divide(1000, np.array([10**6, 400]), np.array([1.0, 1.0]))
    assert granted.tolist() == [600, 400]


def test_the_wider_link_gets_the_larger_share() -> None:
    granted = divide(900, np.array([10**6, 10**6]), np.array([2.0, 1.0]))
    assert granted.tolist() == [600, 300]


def test_a_chunk_that_must_leave_goes_where_it_is_worth_most() -> None:
    model = CostModel(topology())
    blocked = np.zeros(model.chunk_ns.shape, np.bool_)
    assert model.best_place(0, 0, 1.0, [HOST, 1], blocked) == 1
    model.waiting[0, 1] = 12
    assert model.best_place(0, 0, 1.0, [HOST, 1], blocked) == HOST
    model.waiting[0, 1] = 0
    blocked[0, 1] = True
    assert model.best_place(0, 0, 1.0, [HOST, 1], blocked) == HOST


def test_sparse_uses_are_left_in_place_and_dense_ones_fetched() -> None:
    model = CostModel(topology())
    assert not model.worth_fetching(1, 0, pages=4, uses=1)
    assert model.worth_fetching(1, 0, pages=512, uses=1)
    assert model.worth_fetching(1, 0, pages=8, uses=40)


def test_a_move_to_a_host_that_has_no_memory_for_it_takes_longer() -> None:
    model = CostModel(topology())
    link = CHUNK_BYTES / 12
    assert model.alone_ns(0, HOST) == pytest.approx(link + 14_000)
    assert model.alone_ns(0, HOST, first=True) == pytest.approx(link + 14_000 + 474_000)
    assert model.alone_ns(HOST, 0, first=True) == model.alone_ns(HOST, 0)
    model.waiting[HOST, 0] = 3
    assert model.move_ns(HOST, 0) == pytest.approx(4 * link + 5_000)


def test_memory_that_was_left_behind_is_room_until_it_is_freed_or_taken() -> None:
    memory = Account(100 * CHUNK_BYTES, 0)
    memory.tell(40 * CHUNK_BYTES, 0)
    for chunk in range(10):
        memory.came(1, chunk)
    assert memory.room(10) == 30  # NVML has not been asked since
    memory.tell(30 * CHUNK_BYTES, 50 * CHUNK_BYTES)
    for chunk in range(6):
        memory.went(1, chunk)
    assert memory.room(4) == 36
    memory.came(1, 2)
    assert memory.room(5) == 35  # in the memory that it had left
    memory.came(2, 7)
    assert memory.room(6) == 34
    memory.freed(1, 0, 4)  # three of these were away
    assert memory.room(6) == 31
    memory.tell(33 * CHUNK_BYTES, 50 * CHUNK_BYTES)
    assert memory.room(6) == 35
    memory.freed(1, 0, 100)
    assert memory.room(6) == 33


def test_what_a_process_took_of_the_unused_is_no_room() -> None:
    """Nothing is free to NVML; what processes have for themselves tells the rest."""
    memory = Account(100 * CHUNK_BYTES, 0)
    for chunk in range(30):
        memory.went(1, chunk)
    memory.tell(0, 50 * CHUNK_BYTES)
    assert memory.room(20) == 30
    memory.tell(0, 60 * CHUNK_BYTES)
    assert memory.room(20) == 20
    memory.tell(0, None)
    assert memory.room(20) == 30
    memory.came(1, 40)  # without free memory the driver takes what was left longest ago
    assert memory.room(21) == 29
    memory.came(1, 0)  # whose own was that
    assert memory.room(22) == 28


def test_doubled_links_are_measured_and_more_scale_like_them() -> None:
    assert pair_bandwidth(2, 1) == 25e9
    assert pair_bandwidth(2, 2) == 48e9
    assert pair_bandwidth(4, 18) == 18 * 24e9
    assert pair_bandwidth(2, 0) == 0
    assert topology().chunk_ns[0, HOST] == pytest.approx(CHUNK_BYTES / 12)
