# SPDX-License-Identifier: Apache-2.0
"""Control groups where tierd runs in a cgroup namespace of its own, as an unprivileged pod does.

Sibling groups are shown there as "/../../kubepods…": rules by cgroup matched nothing, without a
word, and a deny by cgroup let everybody in.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_proc import FakeProc

from tierd.config.whole import loads
from tierd.core import bounds
from tierd.workloads.cgroupns import CgroupNamespace
from tierd.workloads.procs import parse_cgroup
from tierd.workloads.registry import TargetRegistry

OWN_GROUP = ("kubepods.slice", "kubepods-pod7.slice", "cri-1.scope")
KNOWN, UNKNOWN = CgroupNamespace(3, OWN_GROUP), CgroupNamespace(3, None)
SIBLING = "/../../kubepods-burstable.slice/pod2"


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """A host whose first process is three groups above this one's namespace."""
    made = FakeProc(tmp_path)
    made.add(1, cgroup="/../../../init.scope", rss_bytes=0)
    made.add(10, cgroup=SIBLING)
    made.add(11, cgroup="/../../../system.slice/kubelet.service")
    return made


class Watch:
    """A registry, and what it watches after a refresh."""

    def __init__(self, proc: FakeProc, text: str) -> None:
        config = loads(text)
        self.registry = TargetRegistry(
            config.targets, rules=config.rules, root=proc.root, own_pid=4000, open_events=None,
            pidfd_open=proc.pidfd_open,
        )  # fmt: skip

    def refresh(self, now_ns: int = 0) -> list[int]:
        self.registry.refresh(now_ns)
        return sorted(target.pid for target in self.registry.targets.values())


@pytest.mark.parametrize(
    ("shown", "known", "unknown"),
    [
        ("/../../../init.scope", "/init.scope", "/init.scope"),
        ("/../../..", "/", "/"),
        (SIBLING, "/kubepods.slice/kubepods-burstable.slice/pod2", None),
        ("/../cri-2.scope", "/kubepods.slice/kubepods-pod7.slice/cri-2.scope", None),
        ("/", "/" + "/".join(OWN_GROUP), None),
        ("/sub", "/" + "/".join([*OWN_GROUP, "sub"]), None),
    ],
)
def test_paths_are_understood_from_the_hosts_root(shown: str, known: str, unknown: str | None):
    assert KNOWN.path(shown) == known
    assert UNKNOWN.path(shown) == unknown


def test_without_a_namespace_of_its_own_paths_are_as_they_are_shown(proc: FakeProc):
    proc.add(1, cgroup="/init.scope")
    namespace = CgroupNamespace.find(proc.root, proc.root)
    assert namespace == CgroupNamespace()
    assert namespace.path("/a/b") == "/a/b"


def test_the_namespaces_own_groups_are_found_in_the_first_processs_mounts(
    proc: FakeProc, tmp_path: Path
):
    """A group has the same inode wherever its hierarchy is mounted."""
    host = proc.root / "1/root/sys/fs/cgroup"
    own = host.joinpath(*OWN_GROUP)
    own.mkdir(parents=True)
    (host / "cgroup.controllers").touch()
    (host / "kubepods.slice/kubepods-pod7.slice/cri-2.scope").mkdir()
    (tmp_path / "here/sys/fs").mkdir(parents=True)
    (tmp_path / "here/sys/fs/cgroup").symlink_to(own)
    assert CgroupNamespace.find(proc.root, tmp_path / "here") == KNOWN
    (host / "cgroup.controllers").unlink()
    assert CgroupNamespace.find(proc.root, tmp_path / "here") == UNKNOWN


def test_a_deny_that_cannot_be_judged_denies(proc: FakeProc):
    """It could be meant: kubepods.slice may or may not be the group that both have in common."""
    watch = Watch(proc, '[targets]\ndeny = [{ cgroup = "/kubepods.slice" }]\n')
    assert watch.refresh() == [11]
    assert watch.registry.unjudged.keys() == {10}


def test_a_rule_that_denies_and_cannot_be_judged_denies(proc: FakeProc):
    rule = '[[rule]]\nname = "r"\nmatch = { cgroup = "/kubepods.slice" }\ndeny = true\n'
    assert Watch(proc, rule).refresh() == [11]


def test_a_match_that_cannot_be_judged_matches_nothing_and_is_told(
    proc: FakeProc, caplog: pytest.LogCaptureFixture
):
    watch = Watch(proc, '[targets]\nmatch = { cgroup = "/kubepods.slice" }\n')
    with caplog.at_level(logging.WARNING):
        assert watch.refresh() == []
        watch.refresh(bounds.FULL_POLL_NS)
        watch.refresh(2 * bounds.FULL_POLL_NS)
    told = [record.getMessage().split()[0] for record in caplog.records]
    assert told.count("event=cannot_judge") == 1
    assert told.count("event=matches_nothing") == 1
    assert watch.registry.idle_matchers == ["targets.match"]


@pytest.mark.parametrize(
    ("matcher", "watched"),
    [
        ('{ any = [{ exe = "prog" }, { cgroup = "/kubepods.slice" }] }', [10, 11]),
        ('{ any = [{ exe = "other" }, { cgroup = "/kubepods.slice" }] }', []),
        ('{ exe = "other", cgroup = "/kubepods.slice" }', []),
        ('{ exe = "prog", cgroup = "/system.slice" }', [11]),
        ('{ not = { cgroup = "/kubepods.slice" } }', [11]),
    ],
)
def test_what_is_not_known_matters_only_where_the_answer_depends_on_it(
    proc: FakeProc, matcher: str, watched: list[int]
):
    assert Watch(proc, f"[targets]\nmatch = {matcher}\n").refresh() == watched


def test_rules_that_match_nothing_are_told_once_and_those_that_deny_are_not(
    proc: FakeProc, caplog: pytest.LogCaptureFixture
):
    rules = "".join(
        f'[[rule]]\nname = "{name}"\nmatch = {{ cgroup = "/system.slice{rest}" }}\n{more}'
        for name, rest, more in (
            ("in use", "", ""),
            ("idle", "/other", ""),
            ("denies", "/none", "deny = true\n"),
        )
    )
    watch = Watch(proc, rules.replace("/system.slice/other", "/system.slice/o*"))
    with caplog.at_level(logging.WARNING):
        for minute in range(4):
            watch.refresh(1 + minute * bounds.FULL_POLL_NS)
    told = [each.getMessage() for each in caplog.records if "matches_nothing" in each.getMessage()]
    assert len(told) == 1
    assert "rule idle" in told[0]


@pytest.fixture(autouse=True)
def _heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever another test has set up."""
    monkeypatch.setattr(logging.getLogger("tierd"), "propagate", True)
    yield


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b"4:memory:/docker/3f2a\n0::/\n", "/docker/3f2a"),
        (b"4:memory:/\n9:name=systemd:/docker/3f2a\n0::/\n", "/docker/3f2a"),
        (b"4:memory:/a\n0::/system.slice/b\n", "/system.slice/b"),
        (b"4:memory:/\n0::/\n", "/"),
    ],
)
def test_a_process_of_a_hybrid_host_that_is_in_a_v1_hierarchy_only(text: bytes, path: str):
    """A container on hybrid cgroups: the v2 tree has it at its root."""
    assert parse_cgroup(text) == path
