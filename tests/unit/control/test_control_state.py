# SPDX-License-Identifier: Apache-2.0
"""What commands change: the pause that is kept, keys that are set, events and explanations."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from desk import ROOT, make_desk, serving
from loopbench import CONFIG, Source, interrupt_at, tier_map

from tierd.cli.status import head
from tierd.config.model import Config
from tierd.config.values import parse_assignment
from tierd.config.whole import Difference, differences, load, with_values
from tierd.control.commands import dispatch
from tierd.control.events import MOST_A_TICK, EventFeed, tick_events
from tierd.control.kept import Pause, PauseFile, persist
from tierd.control.protocol import Request, RequestError
from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.errors import ConfigError, TierdError
from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import make_keys
from tierd.engine.reload import Reloader
from tierd.observe.tick_record import TickRecord
from tierd.workloads.target import Target


def test_a_pause_is_kept_across_restarts_until_resumed(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    with serving(bench):
        told = dispatch(desk, ROOT, Request("pause", {"reason": "an incident"}))
    assert told["kept"]
    assert bench.service.paused

    again, later = make_desk(tmp_path)
    later.restore()
    assert again.service.paused
    assert later.pause is not None
    assert later.pause.reason == "an incident"
    again.source.on_poll = interrupt_at(3)
    again.service.run()
    assert again.mover.plans == []

    third, last = make_desk(tmp_path)
    last.restore()
    with serving(third):
        assert dispatch(last, ROOT, Request("resume"))["was_paused"]
    assert not third.service.paused
    assert not third.mover.stopped.is_set()
    fourth, fresh = make_desk(tmp_path)
    fresh.restore()
    assert not fourth.service.paused


def test_undo_puts_back_what_was_moved_and_leaves_the_service_paused(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    with ThreadPoolExecutor(1) as worker:
        bench.service.work.run(10**9, worker, gather=False)
        (moved,) = bench.mover.plans
        where = dict(zip(moved.page.tolist(), moved.dest.tolist(), strict=True))
        bench.tracking.places = where
        with serving(bench):
            told = dispatch(desk, ROOT, Request("undo"))
            assert told["kept"]
            assert dispatch(desk, ROOT, Request("status"))["undo"]["active"]
            for tick in range(2, 5):
                bench.service.work.run(tick * 10**9, worker, gather=False)
            after = dispatch(desk, ROOT, Request("status"))
    (_, back) = bench.mover.plans
    before = dict(zip(moved.page.tolist(), moved.source.tolist(), strict=True))
    assert dict(zip(back.page.tolist(), back.dest.tolist(), strict=True)) == before
    assert len(where) > 0
    assert after["undo"] == {
        "active": False,
        "pages_left": 0,
        "put_back": len(where),
        "left_alone": {},
    }
    assert after["paused"]["reason"] == "tierd undo"
    assert bench.service.paused


class Worse:
    """A card whose requests become more with each plan that is carried out."""

    def __init__(self, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._mover = bench.mover
        self.total = self.a_second = self.plans = 0
        monkeypatch.setattr(Source, "counted_nodes", frozenset({1}))
        monkeypatch.setattr(bench.source, "counted_requests", self.count)

    def count(self) -> int:
        self.a_second += 10**6 * (len(self._mover.plans) - self.plans)
        self.plans = len(self._mover.plans)
        self.total += self.a_second
        return self.total


def test_moves_that_do_harm_are_undone_and_resume_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bench, desk = make_desk(tmp_path)
    Worse(bench, monkeypatch)
    one = [WatchedTarget(0, 1, (WatchedRange(0, 100),))]
    bench.tracking.watched = lambda: one  # type: ignore[method-assign]
    work = bench.service.work
    with ThreadPoolExecutor(1) as worker, serving(bench):
        for second in range(1, 60):
            work.run(second * 10**9, worker, gather=False)
            if work.account.stands:
                break
            bench.tracking.places |= {
                int(page): int(node)
                for page, node in zip(
                    bench.mover.plans[-1].page, bench.mover.plans[-1].dest, strict=True
                )
            }
        assert work.account.stands
        assert work.undo.active
        moved = {page for plan in bench.mover.plans[:-1] for page in plan.page.tolist()}
        assert set(bench.mover.plans[-1].page.tolist()) <= moved
        assert {"control": 1} in [tick.plan.notes for tick in bench.seen]
        for later in range(second + 1, second + 40):
            work.run(later * 10**9, worker, gather=False)
        told = dispatch(desk, ROOT, Request("status"))
        assert told["totals"]["account"]["stands_down"]
        assert "STANDS DOWN" in "\n".join(head(told))
        assert not told["undo"]["active"]
        assert told["undo"]["put_back"] == len(moved)
        assert bench.seen[-1].plan.notes == {"stands_down": 1}
        assert list(bench.source.watched) == []
        dispatch(desk, ROOT, Request("resume"))
        assert not work.account.stands
        for last in range(later + 1, later + 4):
            work.run(last * 10**9, worker, gather=False)
        assert bench.source.watched == one


def test_without_stand_down_the_service_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bench, _ = make_desk(tmp_path)
    Worse(bench, monkeypatch)
    work = bench.service.work
    work.config = replace(work.config, policy=replace(work.config.policy, stand_down=False))
    with ThreadPoolExecutor(1) as worker:
        for second in range(1, 60):
            work.run(second * 10**9, worker, gather=False)
    assert not work.account.stands
    assert len(bench.mover.plans) == 59


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_pause_and_its_end_cancel_an_undo(tmp_path: Path, command: str):
    bench, desk = make_desk(tmp_path)
    undo = bench.service.work.undo
    undo.begin(tier_map(100.0, 400.0))
    undo.wanted = True
    assert undo.active
    with serving(bench):
        dispatch(desk, ROOT, Request(command))
    assert not undo.active
    assert not undo.wanted


@pytest.mark.parametrize("left", [b"", b"{", b"[1]", b'{"since": 1e999}', b"\xff" * 9000])
def test_a_pause_file_that_makes_no_sense_still_is_a_pause(tmp_path: Path, left: bytes):
    (tmp_path / "paused").write_bytes(left)
    assert PauseFile(tmp_path).read() is not None


def test_a_pause_that_cannot_be_read_is_taken_as_one(tmp_path: Path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "paused").mkdir()
    bench, desk = make_desk(tmp_path)
    desk.restore()
    assert bench.service.paused


def test_a_pause_that_cannot_be_kept_holds_and_says_so(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    (tmp_path / "state").write_text("a file where the folder should be")
    with serving(bench):
        told = dispatch(desk, ROOT, Request("pause"))
    assert bench.service.paused
    assert told["kept"] is False
    assert "a restart would end the pause" in told["note"]


def test_writing_a_pause_leaves_nothing_else_behind(tmp_path: Path):
    kept = PauseFile(tmp_path)
    kept.write(Pause(5.0, 0, "a"))
    kept.write(Pause(6.0, 0, "b"))
    assert [file.name for file in tmp_path.iterdir()] == ["paused"]
    assert kept.read() == Pause(6.0, 0, "b")
    kept.clear()
    assert kept.read() is None
    kept.clear()


def test_a_pause_is_told_when_its_folder_cannot_be_made(tmp_path: Path):
    (tmp_path / "x").write_text("")
    with pytest.raises(TierdError, match="cannot write"):
        PauseFile(tmp_path / "x" / "y").write(Pause(1.0, 0, ""))


def test_tune_is_in_force_at_once_and_only_that_key(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    before = bench.service.config
    with serving(bench):
        told = dispatch(
            desk, ROOT, Request("set", {"key": "migration.rate_limit", "value": "7MB/s"})
        )
    assert told["changed"] == ["migration.rate_limit"]
    assert ("rate", 7_000_000) in bench.mover.settings
    assert differences(before, bench.service.config) == [
        Difference("migration.rate_limit", "200MB/s", "7MB/s")
    ]


def test_tune_refuses_what_the_schema_refuses_and_changes_nothing(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    before = bench.service.config
    with serving(bench), pytest.raises(RequestError, match="low_watermark"):
        dispatch(desk, ROOT, Request("set", {"key": "policy.low_watermark", "value": "50%"}))
    assert bench.service.config is before
    assert bench.mover.settings == []


def test_an_assignment_is_toml_or_plain_text():
    assert parse_assignment("migration.retries=5") == ("migration.retries", 5)
    assert parse_assignment("a.b = [1, 2]") == ("a.b", [1, 2])
    assert parse_assignment("migration.rate_limit=5MB/s") == ("migration.rate_limit", "5MB/s")
    assert parse_assignment('x="a=b"') == ("x", "a=b")
    assert parse_assignment("a=1\nb=2") == ("a", "1\nb=2")
    with pytest.raises(ConfigError, match="not KEY=VALUE"):
        parse_assignment("migration.rate_limit")


def test_matchers_and_lists_can_be_set():
    found = with_values(Config(), {"targets.match": {"exe": "redis-server"}})
    assert found.targets.match.table() == {"exe": "redis-server"}
    assert with_values(found, {"sources.order": ["damon"]}).sources.order == ("damon",)


def test_what_is_persisted_is_read_again_beside_what_was_there(tmp_path: Path):
    main = tmp_path / "tierd.toml"
    main.write_text("[loop]\ninterval = '1s'\n")
    first = persist(main, "migration.rate_limit", "7MB/s")
    persist(main, "migration.retries", 9)
    persist(main, "sources.damon.cpu_limit", "2%")
    loaded = load(main)
    assert loaded.migration.rate_limit_bytes_per_s == 7_000_000
    assert loaded.migration.retries == 9
    assert loaded.sources.damon.cpu_limit == 0.02
    assert loaded.loop.interval_ns == 10**9
    assert [file.name for file in first.parent.iterdir()] == ["90-set.toml"]


def test_nothing_is_persisted_that_would_not_be_valid_or_not_win(tmp_path: Path):
    main = tmp_path / "tierd.toml"
    main.write_text("[policy]\nhigh_watermark = '3%'\n")
    with pytest.raises(ConfigError, match="low_watermark"):
        persist(main, "policy.low_watermark", "3.5%")
    assert not (tmp_path / "conf.d").exists()
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "99-site.toml").write_text("[migration]\nrate_limit = '1MB/s'\n")
    with pytest.raises(ConfigError, match="with a later name"):
        persist(main, "migration.rate_limit", "7MB/s")
    assert [file.name for file in (tmp_path / "conf.d").iterdir()] == ["99-site.toml"]


def tick(plan: MigrationPlan, report: MigrationResult | None) -> TickRecord:
    tiers = tier_map(118, 430)
    return TickRecord(1, 0, 1, "", (), 0, 0, 1, tiers, {}, None, plan, report, {})


def plan_of(targets: list[int], direction: list[Direction]) -> MigrationPlan:
    up = np.array(direction) == Direction.PROMOTE
    n = len(targets)
    return MigrationPlan(
        page=np.concatenate(
            [make_keys(t, np.array([i], np.uint64)) for i, t in enumerate(targets)]
        ),
        order=np.zeros(n, np.uint8),
        source=np.where(up, 1, 0).astype(np.int16),
        dest=np.where(up, 0, 1).astype(np.int16),
        direction=np.array(direction, np.uint8),
        heat=np.arange(n, dtype=np.float32),
    )


def test_a_tick_is_told_target_by_target_and_way_by_way():
    up, down = Direction.PROMOTE, Direction.DEMOTE
    plan = plan_of([7, 7, 9, 7], [up, up, up, down])
    fate = np.array([Fate.MOVED, Fate.BUSY, Fate.MOVED, Fate.MOVED], np.uint8)
    report = MigrationResult(plan, fate, plan.dest, {16: 1}, 3 * 4096, 1, 1, 0)
    targets = {7: Target(7, 70, 1, -1, "seven\n", "/a", 0, 0)}
    told = list(tick_events(tick(plan, report), targets))
    assert [
        (e["pid"], e["direction"], e["source"], e["dest"], e["pages"], e["moved"]) for e in told
    ] == [
        (70, "promote", "cxl", "dram", 2, 1),
        (70, "demote", "dram", "cxl", 1, 1),
        (None, "promote", "cxl", "dram", 1, 1),
    ]
    assert told[0]["migration_results"] == {"busy": 1}
    assert told[0]["heat"] == [0.0, 1.0]
    assert told[1]["migration_results"] == {}
    assert not any("undo" in event for event in told)
    back = replace(plan, notes={"undo": 3})
    assert all(e["undo"] for e in tick_events(tick(back, replace(report, plan=back)), targets))


def test_the_events_of_a_tick_are_bounded_and_the_rest_is_counted():
    plan = plan_of(list(range(MOST_A_TICK + 10)), [Direction.PROMOTE] * (MOST_A_TICK + 10))
    told = list(tick_events(tick(plan, MigrationResult.not_tried(plan)), {}))
    assert len(told) == MOST_A_TICK + 1
    assert told[-1]["events"] == 10


def test_a_tick_that_moved_nothing_tells_why():
    empty = MigrationPlan.empty({"rate_limit": 3})
    assert [e["reasons"] for e in tick_events(tick(empty, None), {})] == [{"rate_limit": 3}]
    assert list(tick_events(tick(MigrationPlan.empty(), None), {})) == []


def test_no_events_are_made_while_nobody_listens():
    feed = EventFeed(lambda: pytest.fail("it was asked for targets"))
    feed.on_tick(tick(plan_of([1], [Direction.PROMOTE]), None))


class _Explainer:
    def __init__(self) -> None:
        self.slow: list[str] = []

    def slow_nodes(self) -> list[str]:
        return self.slow

    def explain(self, pid: int, vaddr: int | None) -> dict[str, Any]:
        return {"pid": pid, "address": vaddr}


def test_explain_asks_about_a_page_a_process_or_the_processes_of_a_group(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    steering = SimpleNamespace(explainer=_Explainer())
    object.__setattr__(bench.service.components, "fast_path", steering)
    with serving(bench):
        one = dispatch(desk, ROOT, Request("explain", {"pid": 1, "address": 4096}))
        assert one == {"processes": [{"pid": 1, "address": 4096}]}
        group = dispatch(desk, ROOT, Request("explain", {"cgroup": "/init.scope"}))
        assert group["targets"] == 1
        assert group["processes"] == [{"pid": 1, "address": None}]
        none = dispatch(desk, ROOT, Request("explain", {"cgroup": "/elsewhere"}))
        assert none["targets"] == 0
        steering.explainer.slow = ["node 1 is slow"]
        for args in ({"pid": 1}, {"cgroup": "/"}):
            told = dispatch(desk, ROOT, Request("explain", args))
            assert told["slow_nodes"] == ["node 1 is slow"]


def test_reload_tells_what_is_in_force_or_why_nothing_is(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    file = tmp_path / "tierd.toml"
    file.write_text(CONFIG + "[migration]\nretries = 9\n")
    bench.service.reloader = Reloader(lambda: load(file), bench.service.reconfigure)
    with serving(bench):
        told = dispatch(desk, ROOT, Request("reload", {}))
        assert told == {"changed": ["migration.retries"], "restart": []}
        file.write_text("[loop\n")
        with pytest.raises(RequestError, match="not valid TOML"):
            dispatch(desk, ROOT, Request("reload", {}))
        assert bench.service.config.migration.retries == 9
    assert bench.service.reloader.last is not None
    assert not bench.service.reloader.last.ok
