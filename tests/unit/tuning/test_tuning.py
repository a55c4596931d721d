# SPDX-License-Identifier: Apache-2.0
"""Constants that tune decisions have one home, and say what they are and where they are from."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tierd.cli import main
from tierd.core import tuning
from tierd.core.errors import ConfigError, ExitCode
from tierd.core.tuning import COST, INTERVAL, SCAN, TRIAL

DAEMON = Path(tuning.__file__).parents[2]


@pytest.mark.parametrize("field", tuning.fields(), ids=lambda field: field.name)
def test_a_constant_says_what_it_is_and_where_it_is_from(field: tuning.Field) -> None:
    assert field.unit
    assert field.meaning.endswith(".")
    assert field.meaning[0].isupper()
    assert field.evidence
    assert field.sensitivity
    assert field.value == field.default


def test_names_are_unique_and_every_object_is_listed() -> None:
    names = [each.name for each in tuning.fields()]
    assert len(set(names)) == len(names)
    objects = {
        name
        for name, each in vars(tuning).items()
        if name.isupper() and dataclasses.is_dataclass(each)
    }
    assert objects == {name.upper() for name in tuning.SECTIONS}


def test_every_constant_is_read() -> None:
    """One that no module reads has no effect."""
    read: set[tuple[str, str]] = set()
    for path in DAEMON.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                read.add((node.value.id.lower(), node.attr))
    unread = [each.name for each in tuning.fields() if tuple(each.name.split(".")) not in read]
    assert unread == []


def read_at_import(node: ast.AST) -> list[int]:
    """Lines at which a module reads a constant while it is imported."""
    if isinstance(node, ast.Lambda):
        return []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        defaults = [*node.args.defaults, *node.args.kw_defaults, *node.decorator_list]
        return [line for each in defaults if each for line in read_at_import(each)]
    found = []
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        found = [node.lineno] if node.value.id.lower() in tuning.SECTIONS else []
        found = found if node.value.id.isupper() else []
    return found + [line for each in ast.iter_child_nodes(node) for line in read_at_import(each)]


def test_no_constant_is_read_while_modules_are_imported() -> None:
    """An override that comes later would not be in force."""
    early = {
        str(path.relative_to(DAEMON)): lines
        for path in sorted(DAEMON.rglob("*.py"))
        if "tierd.core.tuning" in (text := path.read_text())
        and (lines := read_at_import(ast.parse(text)))
    }
    assert early == {}


def test_an_override_is_in_force_until_it_is_taken_back() -> None:
    before = SCAN.warmup_scans
    with tuning.overridden(["scan.warmup_scans=8", "interval.step_factor = 4"]):
        assert (SCAN.warmup_scans, INTERVAL.step_factor) == (8, 4.0)
        assert isinstance(INTERVAL.step_factor, float)
        assert {each.name: each.value for each in tuning.fields()}["scan.warmup_scans"] == 8
    assert SCAN.warmup_scans == before
    restore = tuning.override(["scan.warmup_scans=9", "scan.warmup_scans=0x10"])
    assert SCAN.warmup_scans == 16
    restore()
    assert SCAN.warmup_scans == before


def test_constants_of_several_numbers_take_as_many() -> None:
    with tuning.overridden(["trial.pause_epochs=1,2", "cost.step_sizes=(0.5,)"]):
        assert TRIAL.pause_epochs == (1, 2)
        assert COST.step_sizes == (0.5,)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("scan.warmup_scans", "is not NAME=VALUE"),
        ("scan.warmup_scan=1", "did you mean 'scan.warmup_scans'?"),
        ("scan.warmup_scans=1.5", "is not a whole number"),
        ("interval.step_factor=fast", "is not a number"),
        ("interval.step_factor=nan", "is not a finite number"),
        ("scan.warmup_scans=-1", "is negative"),
        ("trial.pause_epochs=1", "has 1 values, not 2"),
        ("cost.step_sizes=", "at least one value"),
    ],
)
def test_a_wrong_override_is_one_error_and_changes_nothing(setting: str, told: str) -> None:
    before = [each.value for each in tuning.fields()]
    with pytest.raises(ConfigError, match=re.escape(told)):
        tuning.override(["scan.known_scans=1", setting])
    assert [each.value for each in tuning.fields()] == before


def test_the_command_prints_every_constant(capsys: Any) -> None:
    assert main(["config", "show", "--internal", "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in told] == [each.name for each in tuning.fields()]
    assert set(told[0]) == {field.name for field in dataclasses.fields(tuning.Field)}
    assert main(["config", "show", "--internal"]) == ExitCode.OK
    text = capsys.readouterr().out
    for each in tuning.fields():
        assert f"{each.name} = " in text
        assert each.meaning in text


def test_the_service_takes_constants_and_no_settings(caplog: pytest.LogCaptureFixture) -> None:
    """A setting belongs in the configuration file; a constant that is overridden is logged."""
    from tierd.cli import run

    before = tuning.PHASE.spike_factor
    try:
        with caplog.at_level("WARNING", logger="tierd"):
            run._override(["internal.phase.spike_factor=9"])
        assert tuning.PHASE.spike_factor == 9.0
        assert "phase.spike_factor=9" in caplog.text
    finally:
        tuning.PHASE.spike_factor = before
    with pytest.raises(ConfigError, match="constants only"):
        run._override(["policy.hysteresis=1"])
