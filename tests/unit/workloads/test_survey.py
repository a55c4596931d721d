# SPDX-License-Identifier: Apache-2.0
"""What the matchers of a configuration match on a host, before the service uses it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_proc import PF_KTHREAD, FakeProc

from tierd.cli import _live, main
from tierd.config.whole import loads
from tierd.core import bounds
from tierd.core.errors import ExitCode, UnavailableError
from tierd.workloads import procs
from tierd.workloads.bounded_reads import BoundedReads
from tierd.workloads.registry import TargetRegistry
from tierd.workloads.survey import Survey, survey

MIB = 1 << 20
OWN = 4000
RULES = """
[targets]
match = { any = [{ exe = "db" }, { cmdline = "job-[0-9]" }, { exe = "nobody" }] }
deny = [{ uid = 7 }, { exe = "nobody" }]
limit = 3
[[rule]]
name = "large"
match = { min_rss = "100MiB" }
[[rule]]
name = "databases"
match = { exe = "db" }
[[rule]]
name = "late"
match = { uid = 5 }
[[rule]]
name = "left"
match = { exe = "left" }
deny = true
"""


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """Nine processes, one of which is small, and some of tierd's."""
    (tmp_path / "proc").mkdir()
    made = FakeProc(tmp_path / "proc")
    made.add(1, rss_bytes=0)
    made.add(2, flags=PF_KTHREAD)
    made.add(3, state=b"Z", exe="/opt/db")
    for pid, mib in ((10, 200), (11, 120), (12, 40), (13, 30), (14, 8)):
        made.add(pid, exe="/opt/db", comm=b"db", rss_bytes=mib * MIB, uid=5)
    made.add(20, cmdline=b"worker\0job-1\0", rss_bytes=20 * MIB)
    made.add(21, cmdline=b"worker\0job-2\0", uid=7)
    made.add(22, cmdline=b"worker\0job-3\0", exe="/opt/left")
    made.add(OWN, exe="/opt/db")
    made.add(OWN + 1, exe="/opt/db", ppid=OWN)
    return made


@pytest.fixture
def reads() -> Iterator[BoundedReads]:
    made = BoundedReads(0.05)
    yield made
    made.close()


def examined(proc: FakeProc, text: str, reads: BoundedReads) -> Survey:
    config = loads(text)
    return survey(
        config.targets, config.rules, reads, proc=proc.root, root=proc.root.parent, own={OWN}
    )


def warned(found: Survey, text: str) -> list[str]:
    return list(_live.warnings(found, loads(text)))


def test_each_matcher_says_whom_it_matches(proc: FakeProc, reads: BoundedReads) -> None:
    found = examined(proc, RULES, reads)
    counts = {each.place: (each.processes, each.small, each.watched) for each in found.matchers}
    assert counts == {
        "targets.match": (7, 1, 3),
        "targets.match any[0]": (4, 1, None),
        "targets.match any[1]": (3, 0, None),
        "targets.match any[2]": (0, 0, None),
        "targets.deny[0]": (1, 0, None),
        "targets.deny[1]": (0, 0, None),
        "rule large": (2, 0, 2),
        "rule databases": (4, 1, 1),
        "rule late": (4, 1, 0),
        "rule left": (1, 0, None),
    }
    assert [(each.pid, each.rss_bytes // MIB) for each in found.matchers[0].examples] == [
        (10, 200),
        (11, 120),
        (21, 64),
    ]
    assert (found.processes, found.large, found.watched, found.over_limit) == (9, 7, 3, 2)
    assert warned(found, RULES) == [
        "targets.match any[2]: matches no process",
        "rule late: none of its 4 processes would be watched: another matcher denies them, or "
        "may deny them, or targets.match does not mean them, or an earlier rule does",
        "2 processes would be left out: targets.limit allows no more",
    ]


def test_who_is_watched_is_what_the_service_would_watch(
    proc: FakeProc, reads: BoundedReads
) -> None:
    config = loads(RULES)
    registry = TargetRegistry(
        config.targets, rules=config.rules, root=proc.root, own_pid=OWN, open_events=None,
        pidfd_open=proc.pidfd_open,
    )  # fmt: skip
    registry.refresh(0)
    found = examined(proc, RULES, reads)
    assert (found.watched, found.over_limit) == (len(registry.targets), registry.left_out)
    of = [target.rule for target in registry.targets.values()]
    assert [each.watched for each in found.matchers if each.use == "rule"] == [
        of.count(0),
        of.count(1),
        of.count(2),
    ]
    registry.close()


def test_a_matcher_of_small_processes_alone_is_told_with_their_number(
    proc: FakeProc, reads: BoundedReads
) -> None:
    text = '[targets]\nmin_rss = "1GiB"\nmatch = { exe = "db" }\n'
    told = warned(examined(proc, text, reads), text)
    assert told == ["targets.match: matches no process, but 5 with less than 1GiB"]


def test_a_program_that_is_hidden_is_not_judged_and_a_deny_of_it_denies(
    proc: FakeProc, reads: BoundedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without CAP_SYS_PTRACE; a program that is not known would pass every deny."""
    real = Path.readlink

    def readlink(path: Path) -> Path:
        if path == proc.root / "12/exe":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "readlink", readlink)
    text = '[targets]\ndeny = [{ exe = "other" }]\nmatch = { any = [{ uid = 5 }, { exe = "x" }] }\n'
    found = examined(proc, text, reads)
    assert found.left_alone == {12: "the program of process 12 is hidden from this user"}
    assert found.hidden_programs == 1
    deny = next(each for each in found.matchers if each.use == "deny")
    assert (deny.processes, deny.unjudged) == (0, 1)
    # Its user decides about the match.
    assert (found.matchers[0].processes, found.matchers[0].unjudged) == (4, 0)
    assert found.watched == 3
    told = warned(found, text)
    assert "targets.deny[0]: for 1 process tierd cannot tell whether it matches, and so" in told[-3]
    assert told[-1].startswith("the programs of 1 process are hidden from this user")
    config = loads(text).targets
    registry = TargetRegistry(
        config, root=proc.root, own_pid=OWN, open_events=None, pidfd_open=proc.pidfd_open
    )
    registry.refresh(0)
    assert sorted(target.pid for target in registry.targets.values()) == [10, 11, 13]
    assert registry.unjudged.keys() == {12}
    registry.close()


GROUPS = """
[targets]
match = { any = [{ cgroup = "/a.slice/b*" }, { cgroup = "/kubepods.slice" }] }
deny = [{ not = { cgroup = "/gone" }, exe = "db" }, { cgroup = "/docker/3f*" }]
"""


def named(found: Survey) -> dict[str, bool | None]:
    return {group.path: group.exists for each in found.matchers for group in each.groups}


def test_control_groups_that_are_not_there_are_named(proc: FakeProc, reads: BoundedReads) -> None:
    """Also those of hierarchies of v1, and those in a `not`."""
    mounts = proc.root.parent / "sys/fs/cgroup"
    (mounts / "unified/a.slice/b.service").mkdir(parents=True)
    (mounts / "unified/cgroup.controllers").touch()
    (mounts / "unified/cgroup.procs").touch()
    (mounts / "memory/docker/3f2a").mkdir(parents=True)
    (mounts / "memory/cgroup.procs").touch()
    found = examined(proc, GROUPS, reads)
    assert named(found) == {
        "/a.slice/b*": True, "/kubepods.slice": False, "/gone": False, "/docker/3f*": True,
    }  # fmt: skip
    told = warned(found, GROUPS)
    assert "targets.deny[0]: there is no control group /gone here" in told
    assert "targets.match any[1]: there is no control group /kubepods.slice here" in told


def test_groups_of_another_namespace_are_told_of_as_not_known(
    proc: FakeProc, reads: BoundedReads
) -> None:
    """This process is three groups below the host's root, and may not look there."""
    proc.add(1, cgroup="/../../../init.scope", rss_bytes=0)
    proc.add(10, cgroup="/../pod1")
    (proc.root / "self/ns").mkdir(parents=True)
    (proc.root / "self/ns/cgroup").touch()
    found = examined(proc, GROUPS, reads)
    assert set(named(found).values()) == {None}
    assert found.left_alone.keys() == {10, 11, 12, 13, 20, 21, 22}
    told = warned(found, GROUPS)
    assert (
        "targets.match any[1]: whether the control group /kubepods.slice exists cannot be told "
        "from here: it may belong to another cgroup namespace"
    ) in told
    where = "targets.deny[1]: for 7 processes tierd cannot tell whether it matches, and so denies"
    assert any(where in line for line in told)
    assert told[-1].startswith("this is a cgroup namespace of its own")


def test_the_hosts_groups_are_found_from_a_namespace_that_is_known(
    proc: FakeProc, reads: BoundedReads
) -> None:
    proc.add(1, cgroup="/../init.scope", rss_bytes=0)
    host = proc.root / "1/root/sys/fs/cgroup"
    (host / "kubepods.slice/pod1").mkdir(parents=True)
    (host / "cgroup.controllers").touch()
    here = proc.root.parent / "sys/fs"
    here.mkdir(parents=True)
    (here / "cgroup").symlink_to(host / "kubepods.slice")
    assert named(examined(proc, GROUPS, reads)) == {
        "/a.slice/b*": False, "/kubepods.slice": True, "/gone": False, "/docker/3f*": False,
    }  # fmt: skip


def test_a_process_that_does_not_answer_is_named_and_stops_nothing(
    proc: FakeProc, reads: BoundedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed, real = threading.Event(), procs.read_bytes

    def read_bytes(path: str, *args: int, **keywords: bool) -> bytes:
        if path == f"{proc.root}/21/cmdline":
            freed.wait()
        return real(path, *args, **keywords)

    monkeypatch.setattr(procs, "read_bytes", read_bytes)
    found = examined(proc, RULES, reads)
    freed.set()
    assert [each.pid for each in found.not_answering] == [21]
    assert (found.watched, found.not_read) == (3, 0)
    assert found.matchers[0].unjudged == 1
    told = [each for each in warned(found, RULES) if each.startswith("process 21 prog, 64.0 MiB")]
    assert len(told) == 1


def test_where_too_many_do_not_answer_the_others_are_not_asked(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more than there may be late reads: the last one is not said to be stuck."""
    freed = threading.Event()
    for pid in range(100, 101 + bounds.READERS):
        proc.add(pid, rss_bytes=(400 - pid) * MIB)
    monkeypatch.setattr(procs, "read_bytes", _waits_for(freed, procs.read_bytes))
    reads = BoundedReads(0.001)
    found = examined(proc, '[targets]\nmatch = { cmdline = "x" }\n', reads)
    freed.set()
    reads.close()
    assert [each.pid for each in found.not_answering] == list(range(100, 100 + bounds.READERS))
    assert found.not_read == found.processes - bounds.READERS
    assert any(each.endswith("as too many do not answer") for each in warned(found, ""))


def _waits_for(freed: threading.Event, real):  # type: ignore[no-untyped-def]
    def read_bytes(path: str, *args: int, **keywords: bool) -> bytes:
        if path.endswith("/cmdline"):
            freed.wait()
        return real(path, *args, **keywords)

    return read_bytes


def test_processes_whose_facts_are_hidden_are_counted(
    proc: FakeProc, reads: BoundedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A /proc with hidepid=1 shows the folder; root sees through the modes of these files."""
    real = os.open

    def refuses(path: str, *args: int, **keywords: int) -> int:
        if str(path).endswith("/12/stat"):
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **keywords)

    monkeypatch.setattr(os, "open", refuses)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = examined(proc, RULES, reads)
    assert (found.unseen, found.processes) == (1, 8)
    assert any(x.startswith("1 process cannot be seen by this user") for x in warned(found, RULES))


@pytest.mark.parametrize(
    "case",
    [("rw,hidepid=invisible", 5, True), ("rw,hidepid=2,gid=4", 5, True), ("rw", 5, False),
     ("rw,hidepid=off", 5, False), ("rw,hidepid=2", 0, False)],
)  # fmt: skip
def test_a_proc_that_lists_no_processes_of_others_is_told_of(
    case: tuple[str, int, bool],
    proc: FakeProc,
    reads: BoundedReads,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options, user, hidden = case
    (proc.root / "self").mkdir()
    (proc.root / "self/mounts").write_text(f"proc {proc.root} proc {options} 0 0\n")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    found = examined(proc, RULES, reads)
    assert found.hidden is hidden
    told = "processes of other users cannot be seen by this user (hidepid); try as root"
    assert (told in warned(found, RULES)) is hidden


def test_without_a_proc_there_is_nothing_to_ask(tmp_path: Path, reads: BoundedReads) -> None:
    with pytest.raises(UnavailableError, match="cannot read"):
        survey(loads("").targets, (), reads, proc=tmp_path / "none")


def test_a_name_that_a_process_chose_is_printed_plainly(
    proc: FakeProc, reads: BoundedReads
) -> None:
    proc.add(10, comm=b"\x1b[2J\nwarning: x", rss_bytes=500 * MIB)
    found = examined(proc, "", reads)
    text = _live.as_text(found, loads(""))
    assert "10 \\x1b[2J\\nwarning: x, 500.0 MiB" in text


def test_the_command_prints_it_as_text_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of this host; that a matcher matches nothing is no error, a wrong file is one."""
    file = tmp_path / "tierd.toml"
    socket = f'[control]\nsocket = "{tmp_path}/none.sock"\n'
    file.write_text(f'{socket}[targets]\nmatch = {{ exe = "no such program" }}\n')
    command = ["config", "check", "--live", "--config", str(file)]
    assert main(command) == ExitCode.OK
    shown = capsys.readouterr().out
    assert shown.startswith(f"configuration is valid: {file}\n")
    assert 'targets.match: { exe = "no such program" }' in shown
    assert "\nwarning: targets.match: matches no process" in shown
    assert main([*command, "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["ok"]
    assert told["files"] == [str(file)]
    assert told["live"]["watched"] == 0
    assert told["live"]["warnings"][0].startswith("targets.match: matches no process")
    assert told["live"]["matchers"][0]["place"] == "targets.match"
    file.write_text("[targets]\nmatch = 5\n")
    assert main(command) == ExitCode.CONFIG
    assert capsys.readouterr().out == ""


def test_the_command_leaves_itself_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tierd.toml"
    file.write_text(
        f'[control]\nsocket = "{tmp_path}/none.sock"\n'
        f'[targets]\nmin_rss = "0B"\ndeny = []\nmatch = {{ pid = {os.getpid()} }}\n'
    )
    assert main(["config", "check", "--live", "--json", "--config", str(file)]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["live"]["matchers"][0]["processes"] == 0


@pytest.mark.parametrize("action", ["show", "diff", "schema"])
def test_live_goes_with_check_alone(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", action, "--live"]) == ExitCode.USAGE
    assert "--live goes with check" in capsys.readouterr().err
