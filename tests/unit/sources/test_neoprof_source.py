# SPDX-License-Identifier: Apache-2.0
"""The neoprof source with cards, ring and scanner that the test plays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakering import hot_records
from neoprof_bench import TARGETS, WHOLE, Bench, S

from tierd.config.watching import ScanConfig
from tierd.core import bounds
from tierd.core.access import AccessBatch, Availability, Seen
from tierd.core.errors import UnavailableError
from tierd.core.tuning import SCAN
from tierd.sources.hmu_devices import TRACKS
from tierd.sources.kmod.uapi import CardDo, CardFlags, Track
from tierd.sources.neoprof import NeoProfSource
from tierd.sources.selection import SourceSelector


def test_without_the_module_it_says_what_to_load(tmp_path: Path) -> None:
    state = NeoProfSource(root=tmp_path).available()
    assert not state.ok
    assert "modprobe tierd" in state.hint


def test_without_a_card_it_says_so(tmp_path: Path) -> None:
    state = Bench(tmp_path).source.available()
    assert (state.ok, state.reason) == (False, "no NeoProf card was found")


def test_a_card_that_failed_is_no_card_and_says_why(bench: Bench) -> None:
    bench.cards.fail(0)
    state = bench.source.available()
    assert not state.ok
    assert "card 0: it does not answer" in state.reason
    with pytest.raises(UnavailableError):
        bench.source.watch(TARGETS)
    assert not bench.source.cards


def test_asking_whether_it_works_changes_nothing(bench: Bench) -> None:
    assert bench.source.available().ok
    assert bench.cards.asked == []
    assert bench.cards.closed == 1


def test_watching_enables_the_card_and_scans_what_it_does_not_see(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    ((number, asked),) = bench.cards.asked
    assert number == 0
    assert (asked["enable"], asked["do"], asked["epoch_us"]) == (True, CardDo.RESET, 0)
    assert (asked["track"], asked["drain_us"]) == (Track.READS, 10_000)
    assert asked["flags"] & CardFlags.CONSERVATIVE
    assert not asked["flags"] & CardFlags.PERSIST
    assert bench.scanners[0].nodes == (0,)
    assert bench.scanners[0].watched == TARGETS
    assert bench.source.cards


def test_nothing_to_watch_starts_nothing(bench: Bench) -> None:
    bench.source.watch([])
    assert bench.cards.asked == []
    assert bench.source.poll() == []


def test_hot_records_become_accesses_beside_the_scanners(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    bench.now += 2 * S
    bench.ring.put(hot_records([0x1000, 0x1001], [10, 12], bench.now))
    page = np.array([0x2000], np.uint64)
    mine = AccessBatch(page, np.ones(1, np.float32), bench.now, "scan")
    bench.scanners[0].batches = [mine]
    hot, cold = bench.source.poll()
    assert hot.page.tolist() == [0x1000, 0x1001]
    assert hot.count == pytest.approx([10, 12])
    assert cold is mine
    assert bench.ring.unread == 0


def test_the_scanner_slows_down_when_it_knows_the_cold(bench: Bench) -> None:
    """Four rounds as fast as it may; they are asked for at each poll until then."""
    bench.source.watch(TARGETS)
    (scanner,) = bench.scanners
    assert scanner.settings.interval_ns * SCAN.beside_factor == ScanConfig().interval_ns
    for rounds in (0, 2, 3):
        scanner.rounds = rounds
        bench.source.poll()
        assert bench.source.rounds == rounds
        assert scanner.paces == []
    scanner.rounds = 4
    bench.source.poll()
    bench.source.poll()
    assert scanner.paces == [SCAN.beside_period_us]


def test_the_scanners_looks_are_told_while_it_is_in_use(bench: Bench) -> None:
    assert bench.source.seen is None
    bench.source.watch(TARGETS)
    assert bench.source.seen == Seen(0.3, 0.025, 0.4)
    bench.source.close()
    assert bench.source.seen is None


def test_dropped_records_are_told(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    bench.ring.put(hot_records(np.arange(5000), 9, bench.now))
    assert sum(batch.lost for batch in bench.source.poll()) == 5000 - 4096
    assert sum(batch.lost for batch in bench.source.poll()) == 0


def test_an_epoch_ends_in_time_and_its_pages_are_credited(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    start = bench.now
    bench.now += 2 * S
    bench.ring.put(hot_records([0x1000, 0x1001], [8, 8], bench.now))
    bench.source.poll()
    bench.source.promoted(np.array([0x1001], np.uint64))
    bench.now += 3 * S
    (rest,) = bench.source.poll()
    assert rest.page.tolist() == [0x1000]
    assert rest.count == pytest.approx([12])
    assert bench.cards.asked[-1] == (0, {"do": CardDo.CLEAR})
    assert bench.source.epochs[0].start_ns == bench.now
    assert bench.source.epochs[0].before_ns == start


@pytest.mark.parametrize(("threshold", "after"), [(500, 64), (30, 30)])
def test_a_new_epoch_begins_with_no_greater_threshold_than_the_first(
    bench: Bench, threshold: int, after: int
) -> None:
    """One that suits a whole epoch would be reached late in it."""
    bench.source.watch(TARGETS)
    bench.source.program(0, threshold)
    bench.source.clear()
    assert bench.cards.asked[-1] == (0, {"do": CardDo.CLEAR})
    set_last = [asked["threshold"] for _, asked in bench.cards.asked if "threshold" in asked][-1]
    assert set_last == after


def test_until_the_scanner_knows_reported_pages_are_credited_in_every_pass(bench: Bench) -> None:
    """They are reported once an epoch, and would seem to be colder than those reported later."""
    bench.source.watch(TARGETS)
    scanner = bench.scanners[0]
    scanner.rounds = 1
    bench.now += 2 * S
    bench.ring.put(hot_records([0x1000, 0x1001], [8, 8], bench.now))
    first = bench.source.poll()
    assert [batch.count.tolist() for batch in first] == [[8, 8], [0, 0]]
    bench.source.promoted(np.array([0x1001], np.uint64))
    bench.now += S
    (more,) = bench.source.poll()
    assert (more.page.tolist(), more.count.tolist()) == ([0x1000], [4])
    scanner.rounds = SCAN.known_scans
    bench.now += S
    assert bench.source.poll() == []
    bench.now += S
    (rest,) = bench.source.poll()
    # The rest of the epoch, and nothing twice.
    assert (rest.page.tolist(), rest.count.tolist()) == ([0x1000], [8])


def test_who_makes_requests_is_not_asleep(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    bench.source.poll()
    assert bench.scanners[0].woken == 0
    bench.ring.put(hot_records([0x1000], [8], bench.now))
    bench.source.poll()
    assert bench.scanners[0].woken == 1


def test_the_threshold_is_programmed_when_it_changes(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    before = len(bench.cards.asked)
    bench.source.program(0, 77)
    bench.source.program(0, 77)
    assert bench.cards.asked[before:] == [(0, {"threshold": 77})]


class Fallback:
    """The next source."""

    name = "scan"

    def __init__(self) -> None:
        self.closed = 0

    def available(self) -> Availability:
        return Availability(True, "always")

    def watch(self, targets: Any) -> None:
        pass

    def poll(self) -> list[AccessBatch]:
        return []

    def close(self) -> None:
        self.closed += 1


def test_the_next_source_takes_over_and_the_card_comes_back(bench: Bench) -> None:
    fallback = Fallback()
    selector = SourceSelector([bench.source, fallback])
    selector.watch(TARGETS, bench.now)
    assert selector.active is bench.source
    selector.poll(bench.now)
    bench.cards.fail(0)
    bench.now += bounds.DEVICE_CHECK_NS
    selector.poll(bench.now)
    assert selector.active is None
    selector.watch(TARGETS, bench.now)
    assert selector.active is fallback
    bench.cards.known[0] = WHOLE
    selector.watch(TARGETS, bench.now + S)
    assert selector.active is fallback
    selector.watch(TARGETS, bench.now + bounds.SOURCE_RETRY_NS + S)
    assert selector.active is bench.source
    assert fallback.closed == 1


def test_the_configurations_words_are_the_sources() -> None:
    from tierd.config.watching import ACCESS_TYPES as WORDS

    assert set(WORDS) == set(TRACKS)
