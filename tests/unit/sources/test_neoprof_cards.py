# SPDX-License-Identifier: Apache-2.0
"""Cards that fail, refuse, come and go beside the source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fakecards import card
from neoprof_bench import TARGETS, Bench

from tierd.core import bounds
from tierd.core.errors import UnavailableError
from tierd.core.tuning import PACING


def test_a_module_that_goes_is_let_go(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    bench.ring.close_down()
    with pytest.raises(UnavailableError, match="about to be removed"):
        bench.source.poll()
    assert bench.scanners[0].closed
    assert not bench.source.cards
    assert bench.source.poll() == []


@pytest.mark.parametrize("how", ["failed", "removed"])
def test_the_last_card_lost_ends_the_source(bench: Bench, how: str) -> None:
    bench.source.watch(TARGETS)
    bench.source.poll()
    if how == "failed":
        bench.cards.fail(0)
    else:
        bench.cards.known.clear()
    bench.now += bounds.DEVICE_CHECK_NS
    with pytest.raises(UnavailableError, match="no NeoProf card counts any more"):
        bench.source.poll()
    assert bench.scanners[0].closed


@pytest.mark.parametrize("how", ["profile", "threshold"])
def test_a_card_that_does_not_answer_is_looked_after_at_once(bench: Bench, how: str) -> None:
    bench.source.watch(TARGETS)
    bench.source.poll()
    bench.cards.fail(0)
    bench.cards.refuses = {0}
    bench.now += PACING.upkeep_interval_ns
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
        bench.now += PACING.upkeep_interval_ns // 10
        bench.source.program(0, 77)
        bench.source.poll()
    assert bench.cards.looks - before == 2


def test_cards_that_are_well_are_asked_for_every_few_seconds(bench: Bench) -> None:
    bench.source.watch(TARGETS)
    bench.source.poll()
    before = bench.cards.looks
    for _ in range(40):
        bench.now += bounds.DEVICE_CHECK_NS // 20
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
    assert bench.scanners[0].nodes == (0,)
    assert bench.scanners[0].keep is None
    bench.source.poll()
    del bench.cards.known[1]
    bench.now += bounds.DEVICE_CHECK_NS
    bench.source.poll()
    assert list(bench.source.cards) == [0]
    assert bench.scanners[0].closed
    assert bench.scanners[1].nodes == (0, 1)
    assert bench.scanners[1].watched == TARGETS
    frames = np.zeros(2, [("pfn", np.uint64)])
    frames["pfn"] = [600 * 256, 900 * 256]
    assert bench.scanners[1].keep(frames).tolist() == [False, True]


def test_a_card_that_appears_is_used(tmp_path: Path) -> None:
    bench = Bench(tmp_path, card(0, (512, 768)))
    bench.source.watch(TARGETS)
    bench.source.poll()
    bench.cards.known[1] = card(1, (768, 1024))
    bench.now += bounds.DEVICE_CHECK_NS
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
    assert "event=device_sees_a_part share=0.500" in caplog.text
    assert bench.scanners[0].nodes == (0, 1)


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


def test_requests_are_those_of_the_cards_in_use(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "sys/class/neoprof/neoprof0"
    folder.mkdir(parents=True)
    (folder / "requests").write_text("100\n")
    assert bench.source.requests() == 0, "none is in use"
    bench.source.watch(TARGETS)
    bench.source.requests()
    (folder / "requests").write_text("142\n")
    assert bench.source.requests() == 42
    bench.source.close()
    (folder / "requests").write_text("200\n")
    assert bench.source.requests() == 42
