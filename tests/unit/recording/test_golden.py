# SPDX-License-Identifier: Apache-2.0
"""Golden recordings: every part decides again as it did, and a change of a constant is found."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import golden
import golden_cards
import pytest

from tierd.cli import main
from tierd.core import tuning
from tierd.core.errors import ExitCode
from tierd.engine.build import make_policy
from tierd.migration.tap import TapKind
from tierd.observe.recording import schema
from tierd.observe.recording.frames import FrameReader, FrameType, file_header, pack_frame
from tierd.observe.recording.reader import Recording
from tierd.observe.recording.recorder import RecorderStats
from tierd.replay import component
from tierd.replay.policy import Replay
from tierd.replay.settings import make_change

SCAN, PHASE = "scan controller", "phase changes and pace"
BRIEF, FAST, CARDS = "fast path's orders", "fast path", "cards' thresholds"
LEAST: dict[str, dict[str, int]] = {
    "scan": {SCAN: 600, PHASE: 400},
    "cards": {SCAN: 100, PHASE: 400, CARDS: 25, BRIEF: 80, FAST: 600},
    "cost": {},
    "rules": {SCAN: 600, PHASE: 400},
}
"""Decisions of each part that a recording has at least."""
PLANS = {"scan": 100, "cards": 25, "cost": 30, "rules": 0}
"""... and of the policy."""
NAMES = sorted(LEAST)


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return golden_cards.fake_native(tmp_path_factory.mktemp("fake_kernel"))


@pytest.fixture(scope="module")
def made(native: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All recordings, made here and now."""
    folder = tmp_path_factory.mktemp("golden")
    for name, make in golden.makers(native).items():
        stats: RecorderStats = make(folder / f"{name}.rec", 1)
        assert (stats.dropped_ticks, stats.dropped_calls) == (0, 0)
        assert stats.ticks >= 25
    return {name: folder / f"{name}.rec" for name in LEAST}


def replayed(path: Path) -> Replay:
    found = Replay(Recording(path), make_policy)
    for _ in found:
        pass
    return found


def agrees(path: Path) -> None:
    """Whether all that was decided is decided again."""
    found = replayed(path)
    assert (found.decisions >= PLANS[path.stem], found.differing) == (True, 0)
    told = {part.name: part for part in found.decided.parts}
    assert told.keys() == LEAST[path.stem].keys()
    for name, part in told.items():
        assert part.decisions >= LEAST[path.stem][name]
        assert (part.differing, part.first, part.ended) == (0, None, "")


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_made_now_is_decided_again_bit_for_bit(
    made: dict[str, Path], name: str
) -> None:
    agrees(made[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_made_before_is_decided_again_bit_for_bit(name: str) -> None:
    agrees(golden.FOLDER / f"{name}.rec")


def test_recordings_made_before_are_small() -> None:
    assert sum(path.stat().st_size for path in golden.FOLDER.glob("*.rec")) < 300 << 10


def test_the_recordings_hold_what_they_are_for() -> None:
    """Both directions and both outcomes of moves, changes found, sampling intervals chosen."""
    directions, fates, kinds, found, sampling_intervals = set(), set(), set(), set(), set()
    for name in NAMES:
        for tick in Recording(golden.FOLDER / f"{name}.rec"):
            if tick.fast_path is not None:  # type: ignore[union-attr]
                columns = tick.fast_path.columns  # type: ignore[union-attr]
                directions |= set(columns["job"]["direction"].tolist())
                fates |= set(columns["move"]["fate"].tolist())
                kinds |= set(columns["call"]["kind"].tolist())
            for call in tick.calls.calls if tick.calls is not None else ():  # type: ignore[union-attr]
                if call.decided and call.decided[0] is True:
                    found.add(call.kind)
                if call.kind == "scan.take":
                    sampling_intervals.add(call.decided[2])
    assert directions == {0, 1}
    assert len(fates) >= 2
    assert kinds >= {TapKind.NEW, TapKind.SET, TapKind.STEER, TapKind.STEP, TapKind.NOTE}
    assert found >= {"scan.take", "scan.on_phase_change", "age.see", "burst.update"}
    assert len(sampling_intervals) >= 4


@pytest.mark.parametrize(
    ("name", "part", "setting"),
    [
        ("scan", SCAN, "scan.warmup_scans=17"),
        ("scan", SCAN, "interval.alike_factor=2.5"),
        ("scan", SCAN, "value.phase_age_fraction=0.25"),
        ("cards", SCAN, "interval.step_factor=15.0"),
        ("cards", PHASE, "phase.burst_refused_pages=128"),
        ("cards", CARDS, "hmu.max_left_out_fraction=0.1"),
        ("cards", BRIEF, "fast_path.min_victims=100"),
        ("cards", BRIEF, "fast_path.free_floor_fraction=0.5"),
        ("cards", BRIEF, "value.phase_age_fraction=0.2"),
        ("rules", SCAN, "interval.alike_factor=1.0"),
        ("rules", SCAN, "phase.newly_idle_fraction=0.7"),
        ("rules", SCAN, "phase.backoff_factor=3"),
        ("rules", SCAN, "interval.saturated_fraction=0.8"),
        ("rules", PHASE, "phase.spike_factor=8.0"),
        ("rules", PHASE, "pacing.few_pages=100"),
        ("rules", PHASE, "pacing.upkeep_interval_ns=1000000000"),
    ],
)
def test_another_constant_is_found(name: str, part: str, setting: str) -> None:
    with tuning.overridden([setting]):
        found = {each.name: each for each in replayed(golden.FOLDER / f"{name}.rec").decided.parts}
    first = found[part].first
    assert found[part].differing > 0
    assert first is not None
    assert first.tick >= 1
    assert first.recorded != first.replayed


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("cost", "feedback.first_line_fraction=0.06"),
        ("cost", "cost.classes_per_doubling=3.0"),
    ],
)
def test_another_constant_of_a_policy_is_found(name: str, setting: str) -> None:
    with tuning.overridden([setting]):
        assert replayed(golden.FOLDER / f"{name}.rec").differing > 0


def test_another_margin_of_the_watermark_policy_is_found() -> None:
    change = make_change([("policy.hysteresis", 0.6)], None)
    found = Replay(Recording(golden.FOLDER / "scan.rec"), make_policy, change)
    assert sum(bool(each.difference) for each in found) > 0


@pytest.mark.parametrize(
    "setting",
    [
        "fast_path.retry_ns=60_000_000",
        "fast_path.demand_weight=0.142",
        "migration.burst_s=0.1",
    ],
)
def test_another_constant_of_the_fast_path_is_found(native: Any, setting: str) -> None:
    with golden_cards.replaying_on(native), tuning.overridden([setting]):
        found = {each.name: each for each in replayed(golden.FOLDER / "cards.rec").decided.parts}
    assert (found[FAST].differing, found[FAST].ended != "") == (1, True)
    assert found[FAST].first is not None
    assert (found[PHASE].differing, found[SCAN].differing) == (0, 0)


@pytest.mark.parametrize(
    ("file", "line", "other"),
    [
        ("promote_read.c", "age_s;", "age_s * 1.0001F;"),
    ],
)
def test_another_formula_of_the_fast_path_is_found(
    tmp_path: Path, file: str, line: str, other: str
) -> None:
    variant = golden_cards.fake_native(tmp_path / "built", changed=(file, line, other))
    with golden_cards.replaying_on(variant):
        found = {each.name: each for each in replayed(golden.FOLDER / "cards.rec").decided.parts}
    assert (found[FAST].differing, found[FAST].ended != "") == (1, True)
    assert found[FAST].first is not None
    assert (found[PHASE].differing, found[SCAN].differing) == (0, 0)


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("coldest_promoted = NAN;", "coldest_promoted = NAN;\n(void)tap_now(promoter);"),
        ("for (int node = 0; node < TIERD_NODES; node++) {\n\t\tpromoter->free_then",
         "for (int node = TIERD_NODES; node-- > 0;) {\n\t\tpromoter->free_then"),
    ],
)  # fmt: skip
def test_how_often_and_in_which_order_the_kernel_is_asked_is_no_decision(
    tmp_path: Path, line: str, other: str
) -> None:
    variant = golden_cards.fake_native(tmp_path, changed=("promote_pick.c", line, other))
    with golden_cards.replaying_on(variant):
        agrees(golden.FOLDER / "cards.rec")


def rewritten(path: Path, change: Callable[[list[tuple[FrameType, bytes]]], Any]) -> Path:
    """The golden recording of the card with other frames."""
    frames = list(FrameReader(io.BytesIO((golden.FOLDER / "cards.rec").read_bytes())))
    change(frames)
    path.write_bytes(file_header() + b"".join(pack_frame(*each) for each in frames))
    return path


def test_after_a_gap_no_part_decides_again(tmp_path: Path) -> None:
    def drop_a_tick(frames: list[tuple[FrameType, bytes]]) -> None:
        ticks = [index for index, (kind, _) in enumerate(frames) if kind is FrameType.TICK]
        first, last = ticks[9], ticks[10]
        frames[first + 1 : last + 1] = [(FrameType.GAP, schema.GAP.encode({"ticks": 1}))]

    found = replayed(rewritten(tmp_path / "gap.rec", drop_a_tick)).decided.parts
    assert [part.name for part in found] == [SCAN, PHASE, CARDS, BRIEF, FAST]
    assert {part.ended for part in found} == {component.MISSING}
    assert all(part.decisions > 0 and part.differing == 0 for part in found)


def test_the_command_tells_of_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    path = golden.FOLDER / "cards.rec"
    assert main(["replay", str(path)]) == ExitCode.OK
    out = capsys.readouterr().out
    assert main(["replay", "--json", str(path)]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)["parts"]
    assert list(told) == [SCAN, PHASE, CARDS, BRIEF, FAST]
    for name, part in told.items():
        assert part["same"] == part["decisions"] >= LEAST["cards"][name]
        assert f"{name}: decisions the same: {part['same']} of {part['decisions']}\n" in out


def test_the_command_fails_where_a_part_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tuning.INTERVAL, "step_factor", 15.0)
    assert main(["replay", str(golden.FOLDER / "cards.rec")]) == ExitCode.FAILURE
    out = capsys.readouterr().out
    assert re.search(r"the first that is not, in tick \d+: scan.take given \[", out)
    assert "    recorded [" in out
    assert "    replayed [" in out
