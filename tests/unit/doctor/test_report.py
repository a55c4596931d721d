# SPDX-License-Identifier: Apache-2.0
"""The registry's promises, the verdict, and the printed forms."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tierd.cli import main
from tierd.core.access import Availability
from tierd.core.errors import ExitCode
from tierd.doctor import Finding, Group, Host, Status, examine
from tierd.doctor.findings import (
    MOVER,
    SOURCES,
    TIERS,
    CannotTellError,
    Probe,
    all_probes,
    as_json,
    as_text,
    ask_all,
    judge,
    probe,
)

MakeHost = Callable[..., Host]


def found(**statuses: Status) -> list[Finding]:
    """Findings of a host that lacks nothing, except as given (dots written as __)."""
    needed = {need for needs in SOURCES.values() for need in needs} | {MOVER, TIERS}
    status = dict.fromkeys(sorted(needed), Status.YES)
    status.update({name.replace("__", "."): value for name, value in statuses.items()})
    return [
        Finding(name, Group.CONFLICTS if value is Status.CONFLICT else Group.HOST, name, value, "r")
        for name, value in status.items()
    ]


def without_sources() -> dict[str, Status]:
    return {needs[0].replace(".", "__"): Status.NO for needs in SOURCES.values()}


def test_everything_there_is_ok() -> None:
    report = judge(found())
    assert (report.exit_code, report.sources) == (ExitCode.OK, tuple(SOURCES))


def test_one_source_is_enough() -> None:
    report = judge(found(**{**without_sources(), "damon__sysfs": Status.YES}))
    assert (report.exit_code, report.sources) == (ExitCode.OK, ("damon",))


@pytest.mark.parametrize("missing", [Status.NO, Status.UNKNOWN])
def test_without_mover_or_source_it_is_unavailable(missing: Status) -> None:
    assert judge(found(move_pages=missing)).exit_code is ExitCode.UNAVAILABLE
    report = judge(found(**without_sources()))
    assert report.exit_code is ExitCode.UNAVAILABLE
    assert "no source" in report.summary


def test_one_tier_is_nothing_to_do_whatever_else_is_missing() -> None:
    report = judge(found(tiers=Status.NO, move_pages=Status.NO))
    assert report.exit_code is ExitCode.NOTHING_TO_DO


def test_unknown_tiers_are_unavailable() -> None:
    assert judge(found(tiers=Status.UNKNOWN)).exit_code is ExitCode.UNAVAILABLE


def test_conflicts_are_counted_and_do_not_forbid() -> None:
    report = judge(found(x=Status.CONFLICT))
    assert report.exit_code is ExitCode.OK
    assert report.summary.endswith("; 1 conflict")


def test_every_need_of_the_verdict_is_a_probe() -> None:
    ids = {item.id for item in all_probes()}
    needed = {need for needs in SOURCES.values() for need in needs} | {MOVER, TIERS}
    assert needed <= ids


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyError("x"), OSError(5, "I/O error")])
def test_a_broken_probe_is_one_line_and_hides_no_other(error: Exception) -> None:
    def broken(_host: Host) -> Availability:
        raise error

    fine = Probe("b", Group.HOST, "b", lambda _host: Availability(True, "fine"))
    findings = ask_all(Host(), [Probe("a", Group.HOST, "a", broken), fine])
    assert findings[0].status is Status.UNKNOWN
    assert findings[0].reason.startswith(f"could not tell: {type(error).__name__}: ")
    assert findings[1].status is Status.YES


def test_a_probe_that_cannot_tell_says_why() -> None:
    def ask(_host: Host) -> Availability:
        raise CannotTellError("no such file")

    assert ask_all(Host(), [Probe("a", Group.HOST, "a", ask)])[0].reason == (
        "could not tell: no such file"
    )


def test_two_probes_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="move_pages"):
        probe("move_pages", Group.HOST, "again")(lambda _host: Availability(True, ""))


@pytest.mark.parametrize("base", ["lab-dram-cxl", "broken", "two-socket-cxl"])
def test_a_captured_tree_never_ends_in_an_exception(fake: MakeHost, base: str) -> None:
    report = examine(fake(base=base).root)
    assert len(report.findings) == len(all_probes())
    assert not [f for f in report.findings if "Error:" in f.reason]


def test_an_empty_tree_never_ends_in_an_exception(tmp_path_factory: pytest.TempPathFactory) -> None:
    report = examine(tmp_path_factory.mktemp("empty"))
    assert report.exit_code is ExitCode.UNAVAILABLE


def test_hints_are_shown_only_where_something_is_wrong() -> None:
    good = Finding("a", Group.HOST, "a", Status.YES, "there", "hint one")
    bad = Finding("b", Group.HOST, "b", Status.NO, "absent", "hint two")
    text = as_text(judge([good, bad]))
    assert "hint one" not in text
    assert "→ hint two" in text


def test_json_has_the_documented_keys(fake: MakeHost) -> None:
    shown = json.loads(json.dumps(as_json(examine(fake().root))))
    assert sorted(shown) == ["exit_code", "findings", "schema", "sources", "summary"]
    assert {tuple(sorted(f)) for f in shown["findings"]} == {
        ("group", "hint", "id", "reason", "status", "title")
    }
    assert {f["group"] for f in shown["findings"]} == {group.name.lower() for group in Group}


def test_the_command_returns_the_verdict(
    fake: MakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--json", "--root", str(fake(base="one-node").root)]) == 4
    assert json.loads(capsys.readouterr().out)["exit_code"] == 4
    assert main(["doctor", "--root", "/nonexistent"]) == 5
