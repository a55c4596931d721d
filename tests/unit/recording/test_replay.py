# SPDX-License-Identifier: Apache-2.0
"""Replays: the recorded plan bit for bit, and honest figures for other settings."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from madeup_host import MadeUpHost, record

from tierd.cli import main
from tierd.config.model import POLICIES, Config
from tierd.config.whole import loads
from tierd.core import bounds
from tierd.core.errors import ConfigError, ExitCode
from tierd.core.migration import MigrationPlan, MigrationResult
from tierd.core.tuning import WATERMARK
from tierd.engine.build import make_policy
from tierd.observe.recording import RecordingError
from tierd.observe.recording.reader import Recording
from tierd.observe.recording.recorder import Recorder
from tierd.replay.divergence import Divergence
from tierd.replay.policy import Replay, shared_moves
from tierd.replay.settings import differences, make_change, parse_setting
from tierd.replay.world import World

SETTINGS = '[policy]\nmigration_cooldown = "2s"\nname = "{name}"\n'
RULES = """
[[rule]]
name = "first"
match = { exe = "a" }
fast_min = "30%"
[[rule]]
name = "second"
match = { exe = "b" }
fast_max = "10%"
rate_limit = "20MB/s"
"""


def replay(path: Path, change: Any = None, **more: Any) -> Replay:
    made = Replay(Recording(path), make_policy, change, **more)
    for _ in made:
        pass
    return made


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(POLICIES),
    targets=st.integers(1, 4),
    pages=st.sampled_from([100, 1500, 3000]),
    samples=st.sampled_from([0, 20, 500]),
    trouble=st.sampled_from([0.0, 0.1, 0.5]),
    memory=st.sampled_from(["1MiB", "64MiB"]),
    rules=st.booleans(),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_same_settings_give_the_recorded_plans_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    name: str,
    memory: str,
    rules: bool,
    **host: Any,
) -> None:
    path = tmp_path_factory.mktemp("replay") / "a.rec"
    text = f'{SETTINGS.format(name=name)}[heat]\nmemory = "{memory}"\n{RULES * rules}'
    made, stats = record(path, seed, text=text, ticks=20, **host)
    assert (stats.ticks, stats.dropped_ticks) == (20, 0)
    found = replay(path)
    assert (found.ticks, found.differing) == (20, 0)
    assert found.decisions == 20 - made.service.totals.notes["paused"]
    assert found.recorded == found.replayed
    assert found.recorded.planned["promoted"] == made.service.totals.planned_promotions
    assert found.recorded.moved["demoted"] == made.service.totals.demoted_pages


def test_a_small_table_that_evicts_replays_as_well(tmp_path: Path) -> None:
    made, _ = record(tmp_path / "a.rec", 5, ticks=60, targets=4, heat_pages=2200)
    assert made.heat.stats().evicted > 0
    found = replay(tmp_path / "a.rec")
    assert (found.decisions > 50, found.differing) == (True, 0)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "busy.rec"
    record(path, 11, text=SETTINGS.format(name="watermark"), ticks=60)
    return path


def change(*texts: str) -> Any:
    return make_change([parse_setting(text) for text in texts], None)


def test_a_replay_is_deterministic(busy: Path) -> None:
    first, second = (replay(busy, change("policy.hysteresis=2")) for _ in range(2))
    assert first.moves_differing > 0
    assert (first.recorded, first.replayed) == (second.recorded, second.replayed)


def test_the_default_said_again_is_no_change(busy: Path) -> None:
    found = replay(
        busy, change("policy.hysteresis=0.5", "migration.rate_limit=200MB/s", "heat.half_life=5s")
    )
    assert (found.differing, found.changed) == (0, {})


def test_a_policy_that_moves_nothing_leaves_every_page_where_it_began(busy: Path) -> None:
    found = replay(busy, change("policy.confidence_sigmas=20", "policy.hysteresis=100"))
    assert found.replayed.planned["promoted"] < found.recorded.planned["promoted"] / 10
    share, theirs = found.replayed.share("dram"), found.recorded.share("dram")
    assert share is not None
    assert theirs is not None
    assert share < theirs


def test_a_lower_rate_moves_less(busy: Path) -> None:
    found = replay(busy, change("migration.rate_limit=200kB/s"))
    assert 0 < found.replayed.planned["promoted"] < found.recorded.planned["promoted"]
    assert found.changed == {"migration.rate_limit": ("200MB/s", "200kB/s")}


def test_another_half_life_and_a_smaller_table_are_used(busy: Path) -> None:
    assert replay(busy, change("heat.half_life=60s")).differing > 0
    found = Replay(Recording(busy), make_policy, change("heat.memory=1MiB"))
    for _ in found:
        pass
    assert found.changed == {"heat.memory": (None, "1MiB")}


def test_what_a_replay_foretells_is_what_a_run_with_these_settings_does(tmp_path: Path) -> None:
    """On a host whose accesses and knowledge do not depend on places, the figures agree."""
    texts = {"a": "confidence_sigmas = 2.5", "b": "confidence_sigmas = 6.0"}
    hosts: dict[str, MadeUpHost] = {}
    for name, text in texts.items():
        hosts[name], _ = record(
            tmp_path / name, 7, text=f"[policy]\n{text}\n", ticks=50, trouble=0.0, huge=False
        )
    foretold = replay(tmp_path / "a", change("policy.confidence_sigmas=6.0"))
    happened = replay(tmp_path / "b")
    one, other = foretold.replayed, happened.recorded
    assert foretold.moves_differing > 0
    assert one.share("dram") == pytest.approx(other.share("dram"), abs=0.02)
    for direction in ("promoted", "demoted"):
        assert one.moved[direction] == pytest.approx(other.moved[direction], rel=0.1, abs=20)


def test_groups_are_recorded_and_what_they_have_follows_the_replay(tmp_path: Path) -> None:
    text = SETTINGS.format(name="watermark") + RULES
    record(tmp_path / "a.rec", 3, text=text, ticks=40, targets=3, trouble=0.02)
    groups = [tick.groups for tick in Recording(tmp_path / "a.rec") if hasattr(tick, "groups")]
    assert any(each is not None and len(each) == 2 and each.resident for each in groups)
    assert replay(tmp_path / "a.rec").differing == 0
    foretold = replay(tmp_path / "a.rec", change("policy.confidence_sigmas=6.0"))
    assert foretold.moves_differing > 0
    assert foretold.replayed.moved["promoted"] > 0


def test_after_a_gap_plans_are_not_held_against_the_replay(
    busy: Path, tmp_path: Path, capsys: Any
) -> None:
    from tierd.observe.recording import schema
    from tierd.observe.recording.frames import FRAME, HEADER, FrameType, pack_frame

    data = busy.read_bytes()
    at, ticks, out = HEADER.size, 0, bytearray(data[: HEADER.size])
    while at < len(data):
        stored, _, kind, *_ = FRAME.unpack(data[at : at + FRAME.size])
        frame = data[at : at + FRAME.size + stored]
        at += len(frame)
        ticks += kind == FrameType.TICK
        if kind == FrameType.TICK and ticks == 10:
            frame = pack_frame(FrameType.GAP, schema.GAP.encode({"ticks": 1}))
        out += frame
    path = tmp_path / "gap.rec"
    path.write_bytes(out)
    found = replay(path)
    assert found.differing > 0
    assert found.differing_before_gap == 0
    assert main(["replay", str(path)]) == ExitCode.OK
    assert "1 ticks are missing" in capsys.readouterr().out


def test_the_command_tells_that_it_is_exact(busy: Path, capsys: Any) -> None:
    assert main(["replay", str(busy)]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "every replayed plan is the recorded one, bit for bit" in out
    assert "promoted pages, moved" in out
    assert main(["replay", str(busy), "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["decisions_that_differ"] == 0
    assert told["recorded"] == told["replayed"]
    assert told["differences"] == []


def test_a_plan_that_is_not_the_recorded_one_fails_the_command(
    busy: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(config: Config) -> Any:
        policy = dataclasses.replace(config.policy, hysteresis=9.0)
        return make_policy(dataclasses.replace(config, policy=policy))

    monkeypatch.setattr("tierd.engine.build.make_policy", other)
    assert main(["replay", str(busy)]) == ExitCode.FAILURE
    out = capsys.readouterr().out
    assert "replayed plans are not the recorded ones" in out
    assert "  tick " in out


def test_the_command_tells_what_other_settings_change(busy: Path, capsys: Any) -> None:
    assert main(["replay", str(busy), "--set", "policy.hysteresis=3", "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["changed"] == {"policy.hysteresis": [0.5, 3.0]}
    assert len(told["differences"]) == told["decisions_whose_moves_differ"] > 0
    first = told["differences"][0]
    assert first["same_moves"] <= min(first["recorded_moves"], first["replayed_moves"])
    assert main(["replay", str(busy), "--set", "policy.hysteresis=3"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "policy.hysteresis: 0.5 -> 3.0" in out
    assert "What the replayed side assumes" in out


def test_a_tuning_constant_is_changed_for_the_replay_alone(
    busy: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = WATERMARK.rounding, set()

    def watched(*arguments: Any, **named: Any) -> Any:
        seen.add(WATERMARK.rounding)
        return make_policy(*arguments, **named)

    monkeypatch.setattr("tierd.engine.build.make_policy", watched)
    setting = "internal.watermark.rounding=0.5"
    assert main(["replay", str(busy), "--set", setting, "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["changed"] == {"internal.watermark.rounding": [before, 0.5]}
    assert told["settings_changed"]
    assert seen == {0.5}
    assert WATERMARK.rounding == before


def test_settings_come_from_a_file_too(busy: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "t.toml").write_text("[policy]\nconfidence_sigmas = 9.0\n[loop]\ninterval = '1s'\n")
    arguments = ["replay", str(busy), "--config", str(tmp_path / "t.toml"), "--json"]
    assert main([*arguments, "--set", "policy.hysteresis=1"]) == ExitCode.OK
    changed = json.loads(capsys.readouterr().out)["changed"]
    assert changed["policy.confidence_sigmas"] == [2.5, 9.0]
    assert changed["policy.hysteresis"] == [0.5, 1.0]
    assert set(changed) == {
        "policy.confidence_sigmas",
        "policy.hysteresis",
        "policy.migration_cooldown",
    }


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("policy.hysteresis", "is not KEY=VALUE"),
        ("loop.interval=1s", "changes nothing in a replay"),
        ("policy.margn=1", "unknown key"),
        ("heat.memroy=1MiB", "did you mean 'heat.memory'"),
        ("policy.hysteresis=-1", "is not between"),
        ("policy.name=oracle", "is not one of"),
        ("internal.watermark.roundng=1", "did you mean 'watermark.rounding'"),
    ],
)
def test_a_wrong_setting_is_one_error(busy: Path, setting: str, told: str, capsys: Any) -> None:
    assert main(["replay", str(busy), "--set", setting]) == ExitCode.CONFIG
    assert told in capsys.readouterr().err


def test_the_command_needs_no_privilege_and_no_proc(busy: Path) -> None:
    """Run as nobody, where the system has one, on a copy that it may read."""
    script = (
        "import builtins, io, os, sys\n"
        "from tierd.cli import main\n"
        "import tierd.engine.build\n"
        "import tierd.replay.policy, tierd.replay.settings\n"
        "real = io.open\n"
        "def guarded(file, *a, **k):\n"
        "    assert not str(file).startswith(('/proc', '/sys')), file\n"
        "    return real(file, *a, **k)\n"
        "io.open = builtins.open = guarded\n"
        "data = open(sys.argv[1], 'rb')\n"
        "copy = os.memfd_create('recording')\n"
        "os.write(copy, data.read())\n"
        "if os.geteuid() == 0:\n    os.fchown(copy, 65534, 65534)\n"
        "    os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(main(['replay', f'/dev/fd/{copy}']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(busy)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "bit for bit" in done.stdout


def test_a_table_larger_than_allowed_is_refused(busy: Path) -> None:
    with pytest.raises(RecordingError, match="heat table may take"):
        replay(busy, memory_bytes=1 << 20)


def test_heat_before_it_is_made_is_an_error() -> None:
    with pytest.raises(RecordingError, match="before it makes it"):
        _ = World().heat


def test_differences_name_what_counts(busy: Path) -> None:
    one, other = loads(""), loads('[loop]\ninterval = "1s"\n[heat]\nmemory = "1MiB"\n')
    assert differences(one, other) == {"heat.memory": (None, "1MiB")}
    with pytest.raises(ConfigError):
        make_change([], busy.parent / "absent.toml")


# Pages that are elsewhere.


def divergence(*moves: tuple[int, int, int, bool]) -> Divergence:
    made = Divergence()
    for page, source, dest, recorded in moves:
        made.move(
            np.array([page], np.uint64),
            np.zeros(1, np.uint8),
            np.array([source], np.int16),
            np.array([dest], np.int16),
            recorded=recorded,
        )
    return made


def nodes(made: Divergence, page: int, here: int) -> int:
    return int(made.recorded_nodes(np.array([page], np.uint64), np.array([here], np.int16))[0])


def test_pages_differ_until_both_worlds_moved_them_alike() -> None:
    made = divergence((7, 1, 0, True))
    assert nodes(made, 7, 1) == 0
    made = divergence((7, 1, 0, True), (7, 1, 0, False))
    assert len(made) == 0
    made = divergence((7, 1, 0, False), (7, 1, 2, True))
    assert (nodes(made, 7, 0), int(made.replayed[0])) == (2, 0)


def test_what_the_recording_tells_of_places_is_put_right() -> None:
    made = divergence((7, 1, 0, True), (9, 1, 0, False))
    page, zero = np.array([6, 7, 9], np.uint64), np.zeros(3, np.uint8)
    assert made.place(page, np.array([1, 0, 1], np.int16), zero).tolist() == [1, 1, 0]
    assert len(made) == 2
    # Moved by somebody else to where it is here anyway: no difference any more.
    assert made.place(page, np.array([1, 1, 1], np.int16), zero).tolist() == [1, 1, 0]
    assert made.page.tolist() == [9]
    # Gone there is gone here.
    assert made.place(page, np.array([1, 1, -2], np.int16), zero).tolist() == [1, 1, -2]
    assert len(made) == 0


def test_folios_that_change_size_go_back_to_the_recording() -> None:
    made = Divergence()
    made.move(np.array([512], np.uint64), np.array([9], np.uint8), np.array([1], np.int16),
              np.array([0], np.int16), recorded=False)  # fmt: skip
    assert nodes(made, 700, 0) == 1
    made.place(np.array([600], np.uint64), np.array([1], np.int16), np.zeros(1, np.uint8))
    assert (len(made), made.resized) == (0, 1)
    made = divergence((600, 1, 0, False))
    made.place(np.array([512], np.uint64), np.array([1], np.int16), np.full(1, 9, np.uint8))
    assert (len(made), made.resized) == (0, 1)


def test_shared_moves_are_of_the_same_page_to_the_same_node(busy: Path) -> None:
    plans = [tick.plan for tick in Recording(busy) if getattr(tick, "plan", ())]
    assert shared_moves(plans[0], plans[0]) == len(plans[0])
    assert shared_moves(plans[0], dataclasses.replace(plans[0], dest=plans[0].dest + 1)) == 0


def test_the_recorder_runs_beside_another_user(tmp_path: Path) -> None:
    """The file of root's service is for root: what is in it tells of processes."""
    record(tmp_path / "a.rec", 1, ticks=1)
    assert (tmp_path / "a.rec").stat().st_mode & 0o077 == 0


def test_what_comes_in_while_pages_move_is_after_the_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mover that takes its time: sources are read meanwhile, on a heat that goes on."""
    monkeypatch.setattr(bounds, "WAKE_INTERVAL_NS", 10**7)
    path = tmp_path / "a.rec"
    recorder = Recorder(path, 1 << 30)
    made = MadeUpHost(4, loads(SETTINGS.format(name="watermark")), recorder=recorder)
    move = made.execute

    def slow(plan: MigrationPlan, pids: Mapping[int, int]) -> MigrationResult:
        made.now += 300_000_000
        time.sleep(0.05)
        return move(plan, pids)

    made.execute = slow  # type: ignore[method-assign]
    made.run(25)
    recorder.close()
    assert sum(len(tick.late) > 2 for tick in Recording(path)) > 3
    found = replay(path)
    assert (found.ticks, found.differing) == (25, 0)
    assert found.recorded == found.replayed
