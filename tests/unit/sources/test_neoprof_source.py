# SPDX-License-Identifier: Apache-2.0
"""The neoprof source with cards, ring and scanner that the test plays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakecards import ALL, FakeCards, card, host
from fakering import FakeRing, hot_records

from tierd.access import AccessBatch, Availability, Domain, WatchedRange, WatchedTarget
from tierd.errors import UnavailableError
from tierd.kmod.cardapi import CardDo, CardFlags, Features, Track
from tierd.kmod.ring import Ring
from tierd.kmod.uapi import DEVICE, PARAMETERS
from tierd.service.selection import RETRY_NS, SourceSelector
from tierd.sources._looks import KNOWN_ROUNDS
from tierd.sources._scan_host import ScanSettings
from tierd.sources.cardset import TRACKS
from tierd.sources.exposure import Seen
from tierd.sources.hotlist import COPY_REQUESTS, COPY_RUNS
from tierd.sources.neoprof import (
    BEGIN_US,
    CHECK_NS,
    LOOK_US,
    REQUESTS_PER_VISIT,
    SUSPECT_NS,
    NeoProfSettings,
    NeoProfSource,
)

S = 10**9
TARGETS = [WatchedTarget(0, 100, (WatchedRange(0x1000, 0x9000),))]


class Scanner:
    """Stands in for the scan source beside the cards."""

    def __init__(self, settings: ScanSettings, keep: Any) -> None:
        self.settings, self.keep = settings, keep
        self.watched: list[Any] = []
        self.closed = False
        self.batches: list[AccessBatch] = []
        self.rounds = 5
        self.paces: list[int] = []
        self.dilution, self.taught_s = 1.0, 60.0
        self.aim: float | None = None
        self.seen = Seen(0.3, 0.025, 0.4)
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def watch(self, targets: Any) -> None:
        self.watched = list(targets)

    def poll(self) -> list[AccessBatch]:
        taken, self.batches = self.batches, []
        return taken

    def looked(self) -> tuple[int, float]:
        return self.rounds, 0.4

    def pace(self, period_us: int) -> None:
        self.paces.append(period_us)

    def close(self) -> None:
        self.closed = True


class Bench:
    """A source with everything around it."""

    def __init__(self, root: Path, *cards: Any, settings: NeoProfSettings | None = None) -> None:
        host(root, {0: (0, 4), 1: (4, 8)})
        (root / DEVICE).parent.mkdir(parents=True)
        (root / DEVICE).touch()
        (root / PARAMETERS).mkdir(parents=True)
        (root / PARAMETERS / "closing").write_text("N\n")
        self.now = 100 * S
        self.cards = FakeCards(*cards)
        self.rings: list[FakeRing] = []
        self.scanners: list[Scanner] = []
        self.source = NeoProfSource(
            settings,
            root=root,
            clock=lambda: self.now,
            open_cards=self.cards.open,  # type: ignore[arg-type]
            open_ring=self.open_ring,
            make_scan=self.make_scan,  # type: ignore[arg-type]
        )

    def open_ring(self, root: Path, kinds: Any) -> Ring:
        self.rings.append(FakeRing())
        return Ring(self.rings[-1].memory)

    def make_scan(self, settings: ScanSettings, keep: Any) -> Scanner:
        self.scanners.append(Scanner(settings, keep))
        return self.scanners[-1]

    @property
    def ring(self) -> FakeRing:
        return self.rings[-1]


WHOLE = card(0, (512, 1024))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, WHOLE, settings=NeoProfSettings(requests_per_visit=1))


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
    assert not bench.source.counting


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
    assert bench.scanners[0].settings.nodes == (0,)
    assert bench.scanners[0].watched == TARGETS
    assert bench.source.counting


def test_nothing_to_watch_starts_nothing(bench: Bench) -> None:
    bench.source.watch([])
    assert bench.cards.asked == []
    assert bench.source.poll() == []


def test_so_many_requests_are_one_use_of_a_page(tmp_path: Path) -> None:
    bench = Bench(tmp_path, WHOLE, settings=NeoProfSettings(requests_per_visit=8))
    bench.source.watch(TARGETS)
    bench.now += 2 * S
    bench.ring.put(hot_records([0x1000, 0x1001], [12, 40], bench.now))
    (hot, *_) = bench.source.poll()
    assert hot.count == pytest.approx([1.5, 5])
    assert bench.source.visits == 1 / 8


def test_where_all_cards_can_a_run_counts_once_and_is_one_use(tmp_path: Path) -> None:
    bench = Bench(tmp_path, WHOLE, card(1, (1024, 2048)), settings=NeoProfSettings())
    assert bench.source.visits == 1 / REQUESTS_PER_VISIT  # not known yet
    bench.source.watch(TARGETS)
    assert all(asked["flags"] & CardFlags.COALESCE for _, asked in bench.cards.asked)
    assert (bench.source.visits, bench.source.copy_requests) == (1.0, COPY_RUNS)
    bench.now += 2 * S
    bench.ring.put(hot_records([0x1000], [12], bench.now))
    (hot, *_) = bench.source.poll()
    assert hot.count == pytest.approx([12])


@pytest.mark.parametrize(
    ("first", "second", "settings"),
    [
        (ALL, ALL & ~Features.COALESCE, NeoProfSettings()),
        (ALL & ~Features.COALESCE, ALL & ~Features.COALESCE, NeoProfSettings()),
        (ALL, ALL, NeoProfSettings(coalesce=False)),
    ],
)
def test_where_one_card_cannot_or_shall_not_every_request_counts(
    tmp_path: Path, first: Features, second: Features, settings: NeoProfSettings
) -> None:
    cards = card(0, (512, 1024), features=first), card(1, (1024, 2048), features=second)
    bench = Bench(tmp_path, *cards, settings=settings)
    bench.source.watch(TARGETS)
    assert len(bench.cards.asked) == 2
    assert not any(asked["flags"] & CardFlags.COALESCE for _, asked in bench.cards.asked)
    assert bench.source.visits == 1 / REQUESTS_PER_VISIT
    assert bench.source.copy_requests == COPY_REQUESTS


def test_a_card_that_counts_otherwise_and_comes_late_makes_all_counts_worth_less(
    tmp_path: Path,
) -> None:
    """Too little is said of the others then, which costs promotions, not mistakes."""
    bench = Bench(tmp_path, WHOLE, settings=NeoProfSettings())
    bench.source.watch(TARGETS)
    assert bench.source.visits == 1.0
    bench.cards.known[1] = card(1, (1024, 2048), features=ALL & ~Features.COALESCE)
    bench.now += CHECK_NS
    bench.source.poll()
    assert set(bench.source.cards) == {0, 1}
    assert bench.source.visits == 1 / REQUESTS_PER_VISIT


def test_hot_records_become_accesses_beside_the_scanners(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    bench.now += 2 * S
    bench.ring.put(hot_records([0x1000, 0x1001], [10, 12], bench.now))
    page = np.array([0x2000], np.uint64)
    mine = AccessBatch(Domain.VIRTUAL, page, np.ones(1, np.float32), bench.now, "scan")
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
    assert scanner.settings.period_us == BEGIN_US
    for rounds in (0, 2, 3):
        scanner.rounds = rounds
        bench.source.poll()
        assert bench.source.rounds == rounds
        assert scanner.paces == []
    scanner.rounds = 4
    bench.source.poll()
    bench.source.poll()
    assert scanner.paces == [LOOK_US]


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
    scanner.rounds = KNOWN_ROUNDS
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


def test_a_module_that_goes_is_let_go(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    bench.ring.close_down()
    with pytest.raises(UnavailableError, match="about to be removed"):
        bench.source.poll()
    assert bench.scanners[0].closed
    assert not bench.source.counting
    assert bench.source.poll() == []


@pytest.mark.parametrize("how", ["failed", "removed"])
def test_the_last_card_lost_ends_the_source(bench: Bench, how: str) -> None:
    bench.source.watch(TARGETS)
    bench.source.poll()
    if how == "failed":
        bench.cards.fail(0)
    else:
        bench.cards.known.clear()
    bench.now += CHECK_NS
    with pytest.raises(UnavailableError, match="no NeoProf card counts any more"):
        bench.source.poll()
    assert bench.scanners[0].closed


@pytest.mark.parametrize("how", ["profile", "threshold"])
def test_a_card_that_does_not_answer_is_looked_after_at_once(bench: Bench, how: str) -> None:
    bench.source.watch(TARGETS)
    bench.source.poll()
    bench.cards.fail(0)
    bench.cards.refuses = {0}
    bench.now += SUSPECT_NS
    bench.source.poll()
    if how == "profile":
        assert bench.source.profiles() == {}
    else:
        bench.source.program(0, 77)
    with pytest.raises(UnavailableError, match="no NeoProf card counts any more"):
        bench.source.poll()


def test_a_card_that_only_refuses_is_not_asked_for_in_each_pass(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    bench.source.poll()
    before = bench.cards.looks
    bench.cards.refuses = {0}
    for _ in range(20):
        bench.now += SUSPECT_NS // 10
        bench.source.program(0, 77)
        bench.source.poll()
    assert bench.cards.looks - before == 2


def test_cards_that_are_well_are_asked_for_every_few_seconds(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    bench.source.poll()
    before = bench.cards.looks
    for _ in range(40):
        bench.now += CHECK_NS // 20
        bench.source.poll()
    assert bench.cards.looks - before == 2


def test_a_profile_brings_the_cards_statistics(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    bench.cards.stats = {"entries": 12}
    bench.source.profiles()
    assert bench.source.cards[0].stats == {"entries": 12}
    bench.cards.stats = {}  # of an older module
    bench.source.profiles()
    assert bench.source.cards[0].stats == {"entries": 12}


def test_of_two_cards_one_goes_on_and_the_rest_is_scanned(tmp_path: Path) -> None:
    bench = Bench(tmp_path, card(0, (512, 768)), card(1, (768, 1024)))
    bench.source.watch(TARGETS)
    assert bench.scanners[0].settings.nodes == (0,)
    assert bench.scanners[0].keep is None
    bench.source.poll()
    del bench.cards.known[1]
    bench.now += CHECK_NS
    bench.source.poll()
    assert list(bench.source.cards) == [0]
    assert bench.scanners[0].closed
    assert bench.scanners[1].settings.nodes == (0, 1)
    assert bench.scanners[1].watched == TARGETS
    frames = np.zeros(2, [("pfn", np.uint64)])
    frames["pfn"] = [600 * 256, 900 * 256]
    assert bench.scanners[1].keep(frames).tolist() == [False, True]


def test_a_card_that_appears_is_used(tmp_path: Path) -> None:
    bench = Bench(tmp_path, card(0, (512, 768)))
    bench.source.watch(TARGETS)
    bench.source.poll()
    bench.cards.known[1] = card(1, (768, 1024))
    bench.now += CHECK_NS
    bench.source.poll()
    assert sorted(bench.source.cards) == [0, 1]
    assert bench.source.coverage.whole == {1}


def test_a_card_over_a_part_of_a_node_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bench = Bench(tmp_path, card(0, (768, 1024)))
    bench.source.watch(TARGETS)
    assert bench.source.coverage.partial == {1}
    assert "event=card_sees_a_part share=0.500" in caplog.text
    assert bench.scanners[0].settings.nodes == (0, 1)


def test_a_card_that_refuses_to_start_is_left_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path, card(0, (512, 768)), card(1, (768, 1024)))
    bench.cards.refuses = {0}
    bench.source.watch(TARGETS)
    assert list(bench.source.cards) == [1]


def test_closing_stops_the_cards(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    bench.source.close()
    assert bench.cards.asked[-1] == (0, {"enable": False})
    assert bench.scanners[0].closed


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
    bench.now += CHECK_NS
    selector.poll(bench.now)
    assert selector.active is None
    selector.watch(TARGETS, bench.now)
    assert selector.active is fallback
    bench.cards.known[0] = WHOLE
    selector.watch(TARGETS, bench.now + S)
    assert selector.active is fallback
    selector.watch(TARGETS, bench.now + RETRY_NS + S)
    assert selector.active is bench.source
    assert fallback.closed == 1


def test_the_configurations_words_are_the_sources() -> None:
    from tierd.config.watching import TRACKS as WORDS

    assert set(WORDS) == {"auto", *TRACKS}
