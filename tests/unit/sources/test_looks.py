# SPDX-License-Identifier: Apache-2.0
"""How looks are set by what the module tells of them."""

from __future__ import annotations

import pytest

from tierd.sources._looks import KNOWN_ROUNDS, Looks


def stats(rounds: int, share: float, pages: int = 1000, us: int = 10_000) -> dict[str, int]:
    """As the module tells them, of looks with such an exposure."""
    accessed = int(pages * share)
    return {"rounds": rounds, "round_pages": pages, "round_accessed": accessed,
            "period_ns": 10**8, "exposure_ns": 1000 * us}  # fmt: skip


def looks() -> Looks:
    made = Looks(400_000, 2_000, lambda: 0)
    made.aim = 0.3
    return made


def known(made: Looks) -> bool:
    """Whether silence about a page means something."""
    return made.rounds >= KNOWN_ROUNDS


class World:
    """One target, and a module that looks at it as it is told."""

    def __init__(self, *, period_us: int = 400_000) -> None:
        self.now, self.rounds = 10**9, 0
        self.looks = Looks(period_us, 2_000, lambda: self.now)
        self.looks.aim = 0.3

    def look(self, share: float, exposure_ms: float) -> int:
        """A whole round that found a share accessed; the exposure after it, in us."""
        self.rounds += 1
        self.now += 10**9
        before = self.looks.period_us, self.looks.exposure_us
        told = stats(self.rounds, share, us=int(1000 * exposure_ms))
        told["period_ns"] = 1000 * self.looks.period_us
        changed = self.looks.take({1: told})
        assert changed == (before != (self.looks.period_us, self.looks.exposure_us))
        return self.looks.exposure_us


def test_looks_stay_whole_where_little_is_used_and_are_quick_until_they_know() -> None:
    world = World()
    assert (world.looks.exposure_us, world.looks.period_us) == (0, 200_000)
    assert not known(world.looks)
    for _ in range(5):
        assert world.look(0.1, 0) == 0
    assert known(world.looks)
    assert world.looks.period_us == 400_000
    assert world.looks.dilution == 1.0


def test_looks_are_shortened_where_all_is_used_and_settle() -> None:
    world = World()
    world.look(0.97, 0)  # of the time before
    assert world.look(0.97, 0) == 12_500
    assert world.looks.period_us == 100_000
    world.look(0.97, 0)  # the round that was under way
    for _ in range(6):
        assert world.look(0.4, 12.5) == 12_500
    assert known(world.looks)
    assert world.looks.period_us == 400_000
    assert world.looks.dilution == pytest.approx(12.5 / 400)


def test_programs_that_sleep_teach_nothing_for_a_while() -> None:
    world = World()
    for _ in range(20):
        assert world.look(0.0, 0) == 0
    assert not known(world.looks)
    assert world.looks.taught_s == 0
    for _ in range(4):
        world.look(0.1, 0)
    assert known(world.looks)
    assert world.looks.taught_s == 4


def test_what_goes_on_sleeping_is_known_to_be_cold() -> None:
    world = World()
    for _ in range(40):
        world.look(0.0, 0)
    assert known(world.looks)


def test_programs_that_somebody_else_saw_run_are_not_asleep() -> None:
    """They use nothing that is looked at: it is cold."""
    world = World()
    for _ in range(6):
        world.looks.awake = True
        world.look(0.0, 0)
    assert known(world.looks)
    assert not world.looks.awake


def test_what_is_known_stays_known_when_use_changes_later() -> None:
    world = World()
    for _ in range(6):
        world.look(0.3, 0)
    assert known(world.looks)
    assert world.look(0.95, 0) == 0  # once is none
    assert world.look(0.3, 0) == 0
    assert [world.look(0.95, 0) for _ in range(3)] == [0, 0, 25_000]
    assert known(world.looks)


def test_without_word_of_fast_memory_the_exposure_stays() -> None:
    world = World()
    world.looks.aim = None
    assert [world.look(0.95, 0) for _ in range(3)] == [0, 0, 0]


def test_a_period_that_is_short_already_is_not_made_shorter() -> None:
    assert World(period_us=50_000).looks.period_us == 50_000
    assert World(period_us=120_000).looks.period_us == 100_000


def test_a_short_period_is_always_whole() -> None:
    """Half of it would be shorter than the least exposure."""
    world = World(period_us=3_000)
    assert [world.look(0.95, 0) for _ in range(5)] == [0] * 5


def test_a_shorter_pace_leaves_no_longer_exposure() -> None:
    world = World()
    world.look(0.97, 0)
    assert world.look(0.97, 0) == 12_500
    world.looks.pace(10_000)
    assert (world.looks.exposure_us, world.looks.period_us) == (10_000, 10_000)


def test_a_process_that_comes_late_is_known_after_as_many_looks_at_it() -> None:
    made = looks()
    for rounds in range(1, 10):
        made.take({1: stats(rounds, 0.0)})  # asleep: counted anew from its ninth look
    for rounds in range(10, 5000, 1000):
        made.take({1: stats(rounds, 0.3)})
    assert known(made)
    made.take({1: stats(5001, 0.3), 2: stats(0, 0.3, pages=0)})
    assert not known(made)
    for rounds in range(1, 5):
        made.take({1: stats(5001 + rounds, 0.3), 2: stats(rounds, 0.3)})
    assert known(made)


def test_a_number_that_another_process_has_now_counts_from_its_beginning() -> None:
    made = looks()
    for rounds in range(1, 20):
        made.take({1: stats(300 + rounds, 0.0)})
    for rounds in range(1, 6):
        made.take({1: stats(rounds, 0.3)})
    assert known(made)


def test_when_far_more_memory_is_watched_learning_begins_anew() -> None:
    made = looks()
    for rounds in range(1, 40):
        made.take({1: stats(rounds, 0.0, us=made.exposure_us)})
    assert (made.exposure_us, known(made)) == (0, True)
    made.take({1: stats(41, 0.0), 2: stats(2, 0.9, pages=50_000)})
    assert not known(made)
    for rounds in range(4, 12):
        made.take({1: stats(40 + rounds, 0.0), 2: stats(rounds, 0.3, pages=50_000)})
    assert known(made)
