# SPDX-License-Identifier: Apache-2.0
"""How looks are set by what the module tells of them."""

from __future__ import annotations

import pytest

from tierd.core.tuning import PACING, PHASE, SCAN
from tierd.sources.kmod.uapi import HISTORY
from tierd.sources.scan_controller import ScanController, ScanPhaseDetector
from tierd.sources.scan_records import ScanSummary, WarmupState


def stats(rounds: int, share: float, pages: int = 1000, us: int = 10_000) -> dict[str, int]:
    """As the module tells them, of looks with such an sampling."""
    accessed = int(pages * share)
    return {"rounds": rounds, "round_pages": pages, "round_accessed": accessed,
            "period_ns": 10**8, "sampling_interval_ns": 1000 * us}  # fmt: skip


def looks() -> ScanController:
    made = ScanController(800_000, 2_000, 0)
    made.aim = 0.3
    return made


def came(pages: int) -> ScanSummary:
    """Nearly all pages that became hot are newcomers, so many."""
    return ScanSummary(accessed=pages, newly_hot=pages, newly_hot_fraction=0.9)


def went(pages: int) -> ScanSummary:
    """So many of the pages that were in steady use are not any more; as many others are."""
    return ScanSummary(accessed=pages, newly_idle=pages, newly_idle_fraction=0.9)


def known(made: ScanController) -> bool:
    """Whether silence about a page means something."""
    return made.rounds >= SCAN.known_scans


class World:
    """One target, and a module that looks at it as it is told."""

    def __init__(self, *, period_us: int = 800_000, alone: bool = True) -> None:
        self.now, self.rounds = 10**9, 0
        self.looks = ScanController(period_us, 2_000, self.now, alone=alone)
        self.looks.aim = 0.3

    def look(self, share: float, interval_ms: float) -> int:
        """A whole round that found a share accessed; the sampling interval after it, in us."""
        self.rounds += 1
        self.now += 10**9
        before = self.looks.period_us, self.looks.sampling_interval_us
        told = stats(self.rounds, share, us=int(1000 * interval_ms))
        told["period_ns"] = 1000 * self.looks.period_us
        changed = self.looks.take({1: told}, self.now)
        assert changed == (before != (self.looks.period_us, self.looks.sampling_interval_us))
        return self.looks.sampling_interval_us


def test_looks_stay_whole_where_little_is_used_and_are_quick_until_they_know() -> None:
    world = World()
    assert (world.looks.sampling_interval_us, world.looks.period_us) == (0, 200_000)
    assert not known(world.looks)
    for _ in range(SCAN.warmup_scans):
        assert world.look(0.1, 0) == 0
        assert world.looks.period_us == 200_000
    assert known(world.looks)
    assert world.look(0.1, 0) == 0
    assert world.looks.period_us == 800_000
    assert world.looks.dilution == 1.0


def test_looks_are_shortened_where_all_is_used_and_settle() -> None:
    world = World()
    world.look(0.97, 0)  # of the time before
    assert world.look(0.97, 0) == 12_500
    assert world.looks.period_us == 50_000
    world.look(0.97, 0)  # the round that was under way
    for _ in range(SCAN.warmup_scans):
        assert world.look(0.4, 12.5) == 12_500
    assert known(world.looks)
    assert world.looks.period_us == 800_000
    assert world.looks.dilution == pytest.approx(12.5 / 800)


def test_programs_that_sleep_teach_nothing_for_a_while() -> None:
    world = World()
    for _ in range(20):
        assert world.look(0.0, 0) == 0
    assert not known(world.looks)
    assert world.looks.taught_s(world.now) == 0
    for _ in range(4):
        world.look(0.1, 0)
    assert known(world.looks)
    assert world.looks.taught_s(world.now) == 4


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
    for _ in range(SCAN.warmup_scans + 1):
        world.look(0.3, 0)
    assert known(world.looks)
    assert world.look(0.95, 0) == 0  # once is none
    assert world.look(0.3, 0) == 0
    assert [world.look(0.95, 0) for _ in range(3)] == [0, 0, 50_000]
    assert known(world.looks)


def test_without_word_of_fast_memory_the_sampling_interval_stays() -> None:
    world = World()
    world.looks.aim = None
    assert [world.look(0.95, 0) for _ in range(3)] == [0, 0, 0]


def test_a_period_that_is_short_already_is_not_made_shorter() -> None:
    assert World(period_us=50_000).looks.period_us == 50_000
    assert World(period_us=80_000).looks.period_us == 50_000


def test_beside_cards_whole_periods_are_half_as_quick() -> None:
    assert World().looks.period_us == 200_000
    assert World(alone=False).looks.period_us == 400_000


def test_a_short_period_is_always_whole() -> None:
    """Half of it would be shorter than the least sampling."""
    world = World(period_us=3_000)
    assert [world.look(0.95, 0) for _ in range(5)] == [0] * 5


def test_a_shorter_pace_leaves_no_longer_sampling_interval() -> None:
    world = World()
    world.look(0.97, 0)
    assert world.look(0.97, 0) == 12_500
    world.looks.pace(10_000)
    assert (world.looks.sampling_interval_us, world.looks.period_us) == (10_000, 10_000)


def test_a_process_that_comes_late_is_known_after_as_many_looks_at_it() -> None:
    made = looks()
    for rounds in range(1, 10):
        made.take({1: stats(rounds, 0.0)}, 0)  # asleep: counted anew from its ninth look
    for rounds in range(10, 5000, 1000):
        made.take({1: stats(rounds, 0.3)}, 0)
    assert known(made)
    made.take({1: stats(5001, 0.3), 2: stats(0, 0.3, pages=0)}, 0)
    assert not known(made)
    for rounds in range(1, 5):
        made.take({1: stats(5001 + rounds, 0.3), 2: stats(rounds, 0.3)}, 0)
    assert known(made)


def test_a_number_that_another_process_has_now_counts_from_its_beginning() -> None:
    made = looks()
    for rounds in range(1, 20):
        made.take({1: stats(300 + rounds, 0.0)}, 0)
    for rounds in range(1, 6):
        made.take({1: stats(rounds, 0.3)}, 0)
    assert known(made)


def test_when_far_more_memory_is_watched_learning_begins_anew() -> None:
    made = looks()
    for rounds in range(1, 40):
        made.take({1: stats(rounds, 0.0, us=made.sampling_interval_us)}, 0)
    assert (made.sampling_interval_us, known(made)) == (0, True)
    made.take({1: stats(41, 0.0), 2: stats(2, 0.9, pages=50_000)}, 0)
    assert not known(made)
    for rounds in range(4, 12):
        made.take({1: stats(40 + rounds, 0.0), 2: stats(rounds, 0.3, pages=50_000)}, 0)
    assert known(made)


def test_beside_cards_looks_are_quick_only_until_silence_means_something() -> None:
    """Cards tell of what becomes hot."""
    world = World(alone=False)
    for _ in range(SCAN.known_scans + 1):
        assert (world.looks.learning_ns, world.looks.fresh) == (0, WarmupState.NOTHING)
        world.look(0.3, 0)
    assert world.looks.period_us == 800_000
    assert not world.looks.on_phase_change(10**6, world.now)


def test_sampling_intervals_are_no_longer_than_is_allowed_from_the_first_look_on() -> None:
    world = World()
    assert world.looks.bound(7_800)
    assert (world.looks.sampling_interval_us, world.looks.period_us) == (7_800, 50_000)
    # Far fewer than fast memory has room for: more would be found by longer ones.
    assert [world.look(0.01, 7.8) for _ in range(6)] == [7_800] * 6
    # What is in use already changes in the course of looks, not at once.
    assert not world.looks.bound(15_600)
    assert world.looks.sampling_interval_us == 7_800
    assert world.look(0.01, 7.8) == 15_600
    assert not world.looks.bound(None)
    assert [world.look(0.01, 15.6), world.look(0.01, 15.6)][-1] > 15_600


def test_a_bound_of_half_the_period_is_none_and_no_bound_is_shorter_than_the_least() -> None:
    made = looks()
    assert not made.bound(400_000)
    assert made.sampling_interval_us == 0
    assert made.bound(10)
    assert made.sampling_interval_us == 2_000


def test_passes_are_for_two_looks_while_they_teach() -> None:
    world = World()
    for _ in range(SCAN.warmup_scans + 1):
        assert world.looks.learning_ns == 2 * 200_000_000
        assert world.looks.fresh is WarmupState.START
        world.look(0.1, 0)
    assert (world.looks.learning_ns, world.looks.fresh) == (0, WarmupState.NOTHING)


def test_passes_are_for_two_scans_also_where_the_budget_makes_them_last() -> None:
    made = looks()
    made.take({1: {**stats(1, 0.1), "round_ns": 5 * 10**9}, 2: stats(1, 0.1)}, 0)
    assert (made.period_us, made.learning_ns) == (200_000, 10 * 10**9)
    made.take({1: {**stats(2, 0.1), "round_ns": 9_000_000}, 2: stats(2, 0.1)}, 0)
    assert made.learning_ns == 2 * 200_000_000


def after_warmup() -> ScanController:
    """One target of 10,000 pages, which is known."""
    made = looks()
    for rounds in range(20):
        made.take({1: stats(rounds, 0.3, pages=10_000)}, 0)
    assert (made.learning_ns, made.period_us) == (0, 800_000)
    return made


def test_a_process_that_comes_is_scanned_at_warm_up_speed_and_others_are_not_learned_anew() -> None:
    made = after_warmup()
    for rounds in range(1, SCAN.warmup_scans):
        both = {1: stats(20 + rounds, 0.3, pages=10_000), 2: stats(rounds, 0.3, pages=200)}
        made.take(both, 0)
        assert made.fresh is WarmupState.NOTHING
        assert (made.learning_ns, made.period_us) == (2 * 200_000_000, 200_000)
    made.take({1: stats(40, 0.3, pages=10_000), 2: stats(SCAN.warmup_scans, 0.3, pages=200)}, 0)
    assert (made.learning_ns, made.period_us) == (0, 800_000)


def test_a_process_that_comes_does_not_end_the_patience_of_the_sampling_interval() -> None:
    made = after_warmup()
    for rounds in range(1, SCAN.warmup_scans - 1):
        share = 0.9 if rounds == SCAN.known_scans + 2 else 0.3  # one scan that finds too much
        both = {1: stats(20 + rounds, share, pages=10_000), 2: stats(rounds, share, pages=200)}
        made.take(both, 0)
        assert made.sampling_interval_us == 0


def test_small_processes_that_come_are_known_after_a_few_scans_only() -> None:
    made = after_warmup()
    made.take({1: stats(20, 0.3, pages=10_000), 2: stats(0, 0.3, pages=0)}, 0)
    assert not known(made)
    small = 10_000 // PHASE.min_pages_divisor - 2
    for rounds in range(1, SCAN.known_scans + 1):
        assert (made.learning_ns, made.period_us) == (0, 200_000)
        both = {1: stats(20 + rounds, 0.3, pages=10_000), 2: stats(rounds, 0.3, pages=small)}
        made.take(both, 0)
    assert (made.learning_ns, made.period_us) == (0, 800_000)


def test_beside_cards_a_process_that_comes_warms_up_no_longer_than_others() -> None:
    made = ScanController(800_000, 2_000, 0, alone=False)
    for rounds in range(20):
        made.take({1: stats(rounds, 0.3)}, 0)
    made.take({1: stats(30, 0.3), 2: stats(SCAN.known_scans, 0.3)}, 0)
    assert (made.learning_ns, made.period_us) == (0, 800_000)


def test_news_make_looks_quick_again() -> None:
    world = World()
    for _ in range(SCAN.warmup_scans + 1):
        world.look(0.1, 0)
    assert not world.looks.on_phase_change(came(PACING.few_pages - 1), world.now)
    assert world.looks.phase_detector.last_ns == 0
    assert world.looks.on_phase_change(came(PACING.few_pages), world.now)
    assert world.looks.phase_detector.last_ns == world.now
    assert (world.looks.period_us, world.looks.fresh) == (200_000, WarmupState.OTHERS)
    assert not world.looks.on_phase_change(came(10**6), world.now)  # they are being learned
    for _ in range(SCAN.warmup_scans):
        world.look(0.1, 0)
    assert (world.looks.period_us, world.looks.fresh) == (800_000, WarmupState.NOTHING)
    assert known(world.looks)


def test_what_another_sampling_interval_finds_is_no_news() -> None:
    world = World()
    world.looks.bound(7_800)
    for _ in range(SCAN.warmup_scans + 1):
        world.look(0.01, 7.8)
    world.looks.bound(15_600)
    for _ in range(3):
        world.look(0.01, 7.8)
    assert world.looks.sampling_interval_us == 15_600
    for _ in range(HISTORY):
        assert not world.looks.is_phase_change(came(10**6))
        assert not world.looks.is_phase_change(went(10**6))
        world.look(0.02, 15.6)
    assert world.looks.is_phase_change(came(10**6))
    assert world.looks.is_phase_change(went(10**6))


def test_news_that_come_again_and_again_are_none() -> None:
    detector = ScanPhaseDetector(10)
    waits = []
    for _ in range(3):
        looks = next(
            each
            for each in range(1000)
            if detector.is_phase_change(came(PACING.few_pages), 0, each)
        )
        waits.append(looks)
        detector.tell(looks, 1)
    assert waits == [10, 10 * PHASE.backoff_factor, 10 * PHASE.backoff_factor**2]
    detector.tell(PHASE.calm_factor * 10 * PHASE.backoff_factor**3, 2)
    assert detector.is_phase_change(came(PACING.few_pages), 0, 10)


def test_of_much_memory_it_takes_more_to_be_news() -> None:
    detector = ScanPhaseDetector(10)
    for found in (came, went):
        assert detector.is_phase_change(found(1000), 128_000, 10)
        assert not detector.is_phase_change(found(999), 128_000, 10)


def test_pages_that_are_found_by_chance_are_no_news() -> None:
    detector = ScanPhaseDetector(10)
    assert not detector.is_phase_change(
        ScanSummary(900, newly_hot=900, newly_hot_fraction=0.4), 0, 10
    )
    assert not detector.is_phase_change(
        ScanSummary(900, newly_idle=900, newly_idle_fraction=0.6), 0, 10
    )


def test_programs_that_pause_are_no_news() -> None:
    detector = ScanPhaseDetector(10)
    assert detector.is_phase_change(
        ScanSummary(500, newly_idle=1000, newly_idle_fraction=1.0), 0, 10
    )
    assert not detector.is_phase_change(
        ScanSummary(499, newly_idle=1000, newly_idle_fraction=1.0), 0, 10
    )


def test_looks_are_rarer_once_all_has_stood_still() -> None:
    world = World()
    world.looks.bound(7_800)
    assert not world.looks.rest(10**7)  # not while they teach
    for _ in range(SCAN.warmup_scans + 1):
        world.look(0.1, 7.8)
    assert world.looks.period_us == 1_600_000
    assert not world.looks.rest(1_600_000)
    assert world.looks.rest(1_599_999)
    assert world.looks.period_us == 800_000
    assert not world.looks.rest(500_000)
    assert world.looks.rest(10**7)
    assert world.looks.on_phase_change(went(PACING.few_pages), world.now)
    assert world.looks.period_us == 50_000


def test_whole_periods_and_looks_beside_cards_are_not_rarer() -> None:
    whole, cards = World(), World(alone=False)
    cards.looks.bound(7_800)
    for _ in range(SCAN.warmup_scans + 1):
        whole.look(0.1, 0)
        cards.look(0.1, 7.8)
    assert cards.looks.sampling_interval_us
    for world in (whole, cards):
        assert not world.looks.rest(10**7)
        assert world.looks.period_us == 800_000
