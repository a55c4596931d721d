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
from tierd.core.tuning import INTERVAL, SCAN, TRIAL, WORKLOADS

DAEMON = Path(tuning.__file__).parents[2]
DECIDING = ("engine", "policy", "sources", "hotness", "migration", "workloads")
BINDINGS = {
    "sources/ebpf/table.py": "the programs of ebpf/, whose layout a test compares",
    "sources/kmod/uapi.py": "the header of kmod/, which a test compares",
}
"""Modules that repeat a header → which."""
FACTS = {
    "engine/process.py": {
        "_VERSION": "linux/capability.h",
        "_CAPBSET_DROP": "linux/prctl.h",
        "CURRENT_ON_FAULT": "asm-generic/mman.h",
    },
    "hotness/pattern.py": {"_FIELDS": "columns of an array"},
    "hotness/table.py": {
        "_NODES": "node numbers that the library's mask has room for",
        "_LEAST_SPACE": "first size of a buffer that grows",
        "_EMPTY_RANGE": "an empty array",
    },
    "migration/executor.py": {"NO_PIDFD": "no file descriptor"},
    "migration/promoter.py": {"_NONE": "an empty array", "_ERRORS": "errno values of the library"},
    "policy/limits.py": {"UNLIMITED": "a ratio of 1 is never exceeded"},
    "sources/scan_records.py": {
        "SEEN": "number of set bits of each byte",
        "_WHOLE": "the kernel module's ratio of 1",
    },
    "sources/ebpf/events.py": {"LATENCY_CYCLES": "range of MSR_PEBS_LD_LAT_THRESHOLD"},
    "sources/ebpf/helper.py": {"_PR_SET_PDEATHSIG": "linux/prctl.h"},
    "sources/hmu_devices.py": {"_COUNT_BYTES": "size of a record of the driver"},
    "sources/kmod/netlink.py": {"_NODE_WORDS": "nodes of the driver's mask in words"},
    "sources/pmu.py": {
        "COMPLETE_SAMPLES": "a kernel version",
        "MOST_PERIOD": "width of the counter of IBS",
    },
    "sources/uncore.py": {"UNITS": "names of units in sysfs"},
    "workloads/events.py": {
        "_SO_RCVBUFFORCE": "asm-generic/socket.h",
        "_DATAGRAM": "largest message of the kernel",
        "_INDEX": "linux/connector.h",
        "_NETLINK_CONNECTOR": "linux/netlink.h",
        "_NLMSG_DONE": "linux/netlink.h",
    },
    "workloads/pagemap_file.py": {
        "_PRESENT_BIT": "Documentation/admin-guide/mm/pagemap.rst",
        "_ENTRY_BYTES": "Documentation/admin-guide/mm/pagemap.rst",
    },
    "workloads/procs.py": {
        "PF_KTHREAD": "linux/sched.h",
        "_SMALL": "files of /proc that are far smaller",
    },
    "workloads/residency.py": {"_SPACE_ENDS": "ends of the address spaces of x86"},
}
"""Module → constant that is no tuning, and why."""


def constants(path: Path) -> set[str]:
    """Names in capitals at the top of a module whose value has a number in it."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if not (isinstance(target, ast.Name) and target.id.isupper() and value):
            continue
        numbers = (each.value for each in ast.walk(value) if isinstance(each, ast.Constant))
        if any(type(number) in (int, float) for number in numbers):
            found.add(target.id)
    return found


@pytest.mark.parametrize("package", DECIDING)
def test_constants_of_deciding_code_are_tuning_or_facts(package: str) -> None:
    stray = {}
    for path in sorted((DAEMON / package).rglob("*.py")):
        name = str(path.relative_to(DAEMON))
        if name in BINDINGS:
            continue
        found = constants(path) - set(FACTS.get(name, {}))
        if found:
            stray[name] = found
    assert stray == {}


def test_every_fact_on_the_list_exists() -> None:
    gone = {
        name: missing
        for name, listed in FACTS.items()
        if (missing := set(listed) - constants(DAEMON / name))
    }
    assert gone == {}
    assert all(constants(DAEMON / name) for name in BINDINGS)


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
    with tuning.overridden(["trial.pause_epochs=1,2", "workloads.new_process_ages_ns=(5,)"]):
        assert TRIAL.pause_epochs == (1, 2)
        assert WORKLOADS.new_process_ages_ns == (5,)


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
        ("workloads.new_process_ages_ns=", "at least one value"),
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
