# SPDX-License-Identifier: Apache-2.0
"""Reload: everything new is in force at once, or nothing is and the reason is told."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from loopbench import CONFIG, Bench, ScanningSource, interrupt_at, tier_map

from tierd.config.model import Config
from tierd.config.whole import load, loads
from tierd.core.access import Seen
from tierd.core.errors import ConfigError, ExitCode, TierdError, UnavailableError
from tierd.engine.reload import Applied, Reloader, ReloadResult


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[bool, str]] = []

    def reload_result(self, ok: bool, reason: str) -> None:
        self.heard.append((ok, reason))


@pytest.fixture
def bench() -> Bench:
    return Bench(tier_map(118, 430))


def with_file(bench: Bench, file: Path, text: str = CONFIG) -> tuple[Reloader, Listener]:
    """The bench's service reloads from `file`, which says `text` (what is in force)."""
    file.write_text(text)
    reloader, listener = Reloader(lambda: load(file), bench.service.reconfigure), Listener()
    reloader.listeners.append(listener)
    bench.service.reloader = reloader
    return reloader, listener


def snapshot(bench: Bench) -> tuple[object, ...]:
    service = bench.service
    return service.config, service.work.components, service.work.tiers, bench.heat.half_lives[:]


def test_everything_live_is_in_force_at_once(bench: Bench) -> None:
    config = loads(
        CONFIG.replace('"100ms"', '"3s"')
        + '[migration]\nrate_limit = "7MB/s"\nretries = 1\ncpu_limit = "9%"\n'
        + "[policy]\nhysteresis = 2.0\n"
        "[targets]\nlimit = 5\n"
    )
    applied = bench.service.reconfigure(config)
    assert applied.restart == ()
    assert set(applied.changed) == {
        "heat.half_life",
        "migration.rate_limit",
        "migration.retries",
        "migration.cpu_limit",
        "policy.hysteresis",
        "targets.limit",
    }
    assert bench.service.config == config
    assert bench.heat.half_lives == [3.0]
    assert bench.mover.settings == [("rate", 7_000_000), ("retries", 1), ("cpu", 0.09)]
    assert bench.service.work.components.policy.settings.margin == 2.0
    assert bench.tracking.configured == [(config.targets, (), config.residency.interval_ns)]
    assert bench.service.work.decision.budget.next(1.0).move_bytes == 7_000_000


def test_parts_that_do_not_change_stay(bench: Bench) -> None:
    before = bench.service.work.components
    assert bench.service.reconfigure(loads(CONFIG)) == Applied()
    assert bench.service.work.components == before
    assert bench.source.closed == 0


def test_what_needs_a_restart_is_said_each_time_and_not_in_force(bench: Bench) -> None:
    memory = bench.service.config.heat.memory_bytes
    config = loads(CONFIG + 'memory = "128MiB"\n')
    for _ in range(2):
        assert bench.service.reconfigure(config) == Applied(restart=("heat.memory",))
        assert bench.service.config.heat.memory_bytes == memory
    assert bench.service.reconfigure(loads(CONFIG)) == Applied()


def test_sources_that_need_a_capability_given_up_wait_and_the_rest_is_in_force(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    watch = "[migration_tracing]\nenabled = false\n"
    before = loads(CONFIG + watch + '[sources]\norder = ["damon"]\n')
    bench.service.reconfigure(before)
    bench.lacks = frozenset(("CAP_BPF", "CAP_NET_ADMIN"))
    text = CONFIG + watch + '[sources]\norder = ["faults", "damon"]\n[migration]\nretries = 1\n'
    for _ in range(2):
        applied = bench.service.reconfigure(loads(text))
        assert applied.restart == ("sources.order",)
    assert "event=reload_lacks_privileges lacking=CAP_BPF" in caplog.text
    assert bench.service.config.sources == before.sources
    assert bench.service.config.migration.retries == 1
    assert bench.fresh["damon"].closed == 0
    # Where no more is needed than before, sources change as ever.
    bench.lacks = frozenset()
    assert bench.service.reconfigure(loads(text)).changed == ("sources.order",)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda file: file.write_text("[loop\n"), "not valid TOML"),
        (lambda file: file.write_bytes(b"\xff\xfe"), "is not UTF-8"),
        (lambda file: file.write_text("[loop]\ninterva = '1s'\n"), "did you mean 'interval'"),
        (lambda file: file.unlink(), "cannot read it"),
        (lambda file: (file.unlink(), file.mkdir()), "cannot read it"),
        (
            lambda file: file.write_text('[policy]\nlow_watermark = "9%"\nhigh_watermark = "5%"\n'),
            "must be smaller than high_watermark",
        ),
        (
            lambda file: file.write_text('[topology.nodes.7]\nlatency = "9ns"\n'),
            "no memory node 7",
        ),
    ],
)
def test_a_file_that_cannot_be_used_changes_nothing_and_says_why(
    bench: Bench, tmp_path: Path, caplog, spoil: Callable[[Path], object], said: str
) -> None:
    file = tmp_path / "tierd.toml"
    reloader, listener = with_file(bench, file)
    before = snapshot(bench)
    spoil(file)
    with caplog.at_level("INFO", "tierd"):
        result = reloader.reload()
    assert not result.ok
    assert said in result.reason
    assert result == reloader.last
    assert listener.heard == [(False, result.reason)]
    assert snapshot(bench) == before
    failed = [record.message for record in caplog.records if "reload_failed" in record.message]
    assert len(failed) == 1
    assert "stays in force" in failed[0]


def test_a_topology_of_one_tier_is_refused(bench: Bench) -> None:
    alone = Bench(tier_map(118, 430), later=tier_map(118))
    before = snapshot(alone)
    with pytest.raises(TierdError, match="leaves one tier"):
        alone.service.reconfigure(loads(CONFIG + '[topology.nodes.0]\nlatency = "99ns"\n'))
    assert snapshot(alone) == before


def test_a_new_topology_is_read_at_once() -> None:
    bench = Bench(tier_map(118, 430), later=tier_map(99, 430))
    bench.service.reconfigure(loads(CONFIG + '[topology.nodes.0]\nlatency = "99ns"\n'))
    assert (
        bench.service.work.tiers == tier_map(99, 430) == bench.service.work.components.read_tiers()
    )


def test_a_defect_of_ours_is_a_failed_reload_not_the_end(bench: Bench, caplog) -> None:
    def defect() -> Config:
        raise ZeroDivisionError("oops")

    result = Reloader(defect, bench.service.reconfigure).reload()
    assert result == ReloadResult(False, "ZeroDivisionError: oops")
    assert "reload_defect" in caplog.text


def test_sources_are_swapped_while_running_and_the_old_one_lets_go_first(
    bench: Bench, tmp_path: Path
) -> None:
    file = tmp_path / "tierd.toml"
    _, listener = with_file(bench, file)
    order: list[str] = []

    def on_poll(count: int) -> None:
        order.append("made-up")
        if count == 2:
            file.write_text(CONFIG + '[sources]\norder = ["faults", "damon"]\n')
            os.kill(os.getpid(), signal.SIGHUP)

    bench.source.on_poll = on_poll
    bench.source.on_close = lambda: order.append("closed")
    bench.fresh["faults"] = type(bench.source)("faults")
    bench.fresh["faults"].on_poll = lambda count: (
        order.append("faults"),
        interrupt_at(3)(count),
    )
    before = signal.getsignal(signal.SIGHUP)
    assert bench.service.run() == ExitCode.OK
    assert signal.getsignal(signal.SIGHUP) == before
    assert order[:4] == ["made-up", "made-up", "closed", "faults"]
    assert listener.heard == [(True, "")]
    assert [tick.source for tick in bench.seen][-1] == "faults"
    assert bench.service.config.sources.order == ("faults", "damon")


@pytest.mark.parametrize(
    ("sources", "anew"),
    [
        ('order = ["faults", "neoprof"]\n', True),
        ('order = ["faults", "neoprof"]\nneoprof.lines_per_access = 2\n', False),
        ('order = ["faults"]\n', False),
    ],
)
def test_another_policy_makes_cards_anew_whose_requests_are_worth_something_else(
    bench: Bench, sources: str, anew: bool
) -> None:
    text = CONFIG + "[sources]\n" + sources
    bench.service.reconfigure(loads(text))
    before = bench.service.components.sources
    bench.service.reconfigure(loads(text + '[policy]\nname = "cost"\n'))
    assert (bench.service.components.sources is not before) == anew
    now = bench.service.components.sources
    bench.service.reconfigure(loads(text + '[policy]\nname = "cost"\nmigration_cooldown = "3s"\n'))
    assert bench.service.components.sources is now


def test_sources_of_which_none_works_are_refused_with_their_reasons(bench: Bench) -> None:
    for name in ("faults", "pmu"):
        bench.fresh[name] = type(bench.source)(name)
        bench.fresh[name].ok = False
    before = snapshot(bench)
    with pytest.raises(UnavailableError, match=r"faults: as the test says; pmu: as the test says"):
        bench.service.reconfigure(loads(CONFIG + '[sources]\norder = ["faults", "pmu"]\n'))
    assert snapshot(bench) == before
    assert bench.source.closed == 0


def test_a_reload_takes_effect_without_waiting_for_a_long_tick(tmp_path: Path) -> None:
    bench = Bench(tier_map(118, 430))
    bench.service.reconfigure(loads(CONFIG.replace("10ms", "1min")))
    file = tmp_path / "tierd.toml"
    with_file(bench, file, CONFIG)
    bench.tracking.on_tick = lambda count: (
        os.kill(os.getpid(), signal.SIGHUP),
        interrupt_at(3)(count),
    )
    assert bench.service.run() == ExitCode.OK
    assert bench.service.totals.ticks == 3


def test_a_request_from_before_the_loop_is_served_in_its_first_pass(
    bench: Bench, tmp_path: Path
) -> None:
    _, listener = with_file(bench, tmp_path / "tierd.toml", CONFIG + "[migration]\nretries = 9\n")
    bench.service.sighup(signal.SIGHUP)
    bench.tracking.on_tick = interrupt_at(1)
    assert bench.service.run() == ExitCode.OK
    assert listener.heard == [(True, "")]
    assert bench.service.config.migration.retries == 9
    assert not bench.service.sighup.waits


def test_a_reload_while_the_mover_works_waits_for_it(bench: Bench, tmp_path: Path) -> None:
    """Parts are never swapped under a running plan."""
    _, listener = with_file(bench, tmp_path / "tierd.toml", CONFIG + "[migration]\nretries = 7\n")
    during: list[int] = []
    execute = bench.mover.execute

    def slow(plan, pids):
        os.kill(os.getpid(), signal.SIGHUP)
        during.append(bench.service.config.migration.retries)
        return execute(plan, pids)

    bench.mover.execute = slow  # type: ignore[method-assign]
    bench.tracking.on_tick = interrupt_at(4)
    assert bench.service.run() == ExitCode.OK
    assert during[0] == 3
    assert listener.heard[0] == (True, "")
    assert bench.service.config.migration.retries == 7


def test_a_config_error_is_one_of_ours(bench: Bench) -> None:
    def broken() -> Config:
        raise ConfigError(
            "loop.interva", "unknown key", hint="did you mean 'interval'?", file="/x.toml"
        )

    result = Reloader(broken, bench.service.reconfigure).reload()
    assert result.reason == "/x.toml: loop.interva: unknown key (did you mean 'interval'?)"


def test_a_reload_of_something_else_leaves_the_half_life_of_long_scans() -> None:
    source = ScanningSource()
    source.seen = Seen(0.1, 0.02, 10.0)
    bench = Bench(tier_map(118, 430), source=source)
    done: list[list[float]] = []

    def on_poll(count: int) -> None:
        done.append(bench.heat.half_lives[:])
        if count == 3:
            bench.service.reconfigure(loads(CONFIG + "[targets]\nlimit = 5\n"))
        if count == 5:
            bench.service.reconfigure(loads(CONFIG.replace('"100ms"', '"40s"')))
        interrupt_at(7)(count)

    source.on_poll = on_poll
    assert bench.service.run() == ExitCode.OK
    assert (done[0], done[2], done[4]) == ([], [30.0], [30.0])
    assert done[-1] == [30.0, 40.0]
