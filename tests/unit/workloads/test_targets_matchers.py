# SPDX-License-Identifier: Apache-2.0
"""Which process a matcher means, and which matchers are refused when they are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tierd.config.matchers import CMDLINE_LIMIT, MAX_DEPTH, MAX_MATCHERS, Matcher, Parser
from tierd.core.errors import ConfigError


@dataclass
class Facts:
    pid: int = 10
    rss_bytes: int = 32 << 20
    exe: str = "/usr/bin/redis-server"
    cmdline: str = "redis-server --port 6379"
    cgroup: str = "/kubepods.slice/pod1/abc"
    uid: int = 1000


def parse(table: Any) -> Matcher:
    return Parser().parse(table, "match", empty=True)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({}, True),
        ({"pid": 10}, True),
        ({"pid": 11}, False),
        ({"exe": "redis-server"}, True),
        ({"exe": "redis"}, False),
        ({"exe": "/usr/bin/redis-server"}, True),
        ({"exe": "/bin/redis-server"}, False),
        ({"cmdline": "port 6[0-9]+"}, True),
        ({"cmdline": "^redis-server.*6379$"}, True),
        ({"cmdline": "^port"}, False),
        ({"cgroup": "/kubepods.slice"}, True),
        ({"cgroup": "/kubepods.slice/"}, True),
        ({"cgroup": "/kubepods"}, False),
        ({"cgroup": "/kubepods.slice/pod1/abc/def"}, False),
        ({"cgroup": "/*/pod?"}, True),
        ({"cgroup": "/kube*"}, True),
        ({"cgroup": "/*abc"}, False),
        ({"cgroup": "/"}, True),
        ({"uid": 1000}, True),
        ({"uid": "root"}, False),
        ({"min_rss": "32MiB"}, True),
        ({"min_rss": "33MiB"}, False),
        ({"exe": "redis-server", "uid": 1000}, True),
        ({"exe": "redis-server", "uid": 0}, False),
        ({"any": [{"uid": 0}, {"pid": 10}]}, True),
        ({"any": [{"uid": 0}, {"pid": 11}]}, False),
        ({"all": [{"uid": 1000}, {"pid": 10}]}, True),
        ({"all": [{"uid": 1000}, {"pid": 11}]}, False),
        ({"not": {"uid": 0}}, True),
        ({"not": {"any": [{"uid": 0}, {"pid": 10}]}}, False),
        ({"exe": "redis-server", "not": {"cgroup": "/kubepods.slice/pod2"}}, True),
    ],
)
def test_a_matcher_means_what_it_says(table: dict[str, Any], expected: bool) -> None:
    matcher = parse(table)
    assert matcher.matches(Facts()) is expected
    assert parse(matcher.table()) == matcher


def test_the_name_a_process_gives_itself_counts_for_nothing() -> None:
    hostile = Facts(exe="/tmp/x\nredis-server", cmdline="x\nredis-server")
    assert not parse({"exe": "redis-server"}).matches(hostile)
    assert not parse({"cmdline": "^redis-server"}).matches(hostile)
    assert parse({"cmdline": "x.redis"}).matches(hostile)


def test_bytes_that_are_no_text_can_be_matched_around() -> None:
    odd = Facts(exe=b"/opt/\xff\xfe/prog".decode(errors="surrogateescape"))
    assert parse({"exe": "prog"}).matches(odd)
    assert not parse({"exe": "/opt/prog"}).matches(odd)


@pytest.mark.parametrize(
    ("table", "path", "words"),
    [
        ("redis", "match", "table such as"),
        ({"exe": ""}, "match.exe", "not empty"),
        ({"exe": "bin/redis"}, "match.exe", 'start it with "/"'),
        ({"exe": "/usr/bin/"}, "match.exe", "folder"),
        ({"pid": 0}, "match.pid", "process id from 1"),
        ({"pid": "1"}, "match.pid", "process id from 1"),
        ({"uid": "no such user"}, "match.uid", "no user"),
        ({"uid": -1}, "match.uid", "user id"),
        ({"cgroup": "kubepods"}, "match.cgroup", "root of the cgroup v2 tree"),
        ({"cgroup": "/a/../b"}, "match.cgroup", "not a cgroup path"),
        ({"min_rss": 5}, "match.min_rss", "size with its unit"),
        ({"min_rss": "5%"}, "match.min_rss", "size unit"),
        ({"cmdline": "("}, "match.cmdline", "not a regular expression"),
        ({"cmdline": "a" * 513}, "match.cmdline", "longer than 512"),
        ({"exee": "x"}, "match.exee", "did you mean 'exe'"),
        ({"any": []}, "match.any", "not empty"),
        ({"any": {"pid": 1}}, "match.any", "list of matchers"),
        ({"any": [{"pid": 1}, {}]}, "match.any[1]", "every process"),
        ({"not": [{"pid": 1}]}, "match.not", "table such as"),
        ({"all": [{"any": [{"not": {"pd": 1}}]}]}, "match.all[0].any[0].not.pd", "'pid'"),
    ],
)
def test_a_wrong_matcher_is_refused_with_its_path(table: Any, path: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(table)
    assert caught.value.path == path
    assert words in str(caught.value)


def test_depth_and_number_of_matchers_are_bounded() -> None:
    deep: dict[str, Any] = {"pid": 1}
    for _ in range(MAX_DEPTH + 1):
        deep = {"not": deep}
    with pytest.raises(ConfigError, match="nested deeper"):
        parse(deep)
    with pytest.raises(ConfigError, match="more than 256"):
        parse({"any": [{"pid": 1}] * (MAX_MATCHERS + 1)})


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|a)*$", "(a|aa)+$", "a.*b.*c", "(x+x+)+y", r"(a)\1", "(?=a*)b", "a?" * 20 + "b",
     "(a?){30}b", "(.{0,200}){3}x", "((a{0,9}){0,9}){0,9}b"],
)  # fmt: skip
def test_a_pattern_that_could_take_long_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="take too long"):
        parse({"cmdline": pattern})


@pytest.mark.parametrize(
    "pattern",
    [
        r"redis-server .*:6379",
        r"(java|python3?) .*\bMain\b",
        r"--id=[0-9]{1,5}\b",
        r"^\S+/ceph-osd ",
    ],
)
def test_patterns_that_people_write_are_accepted_and_bounded(pattern: str) -> None:
    """No time is asserted: an unbounded pattern would not return at all."""
    matcher = parse({"cmdline": pattern})
    for piece in ("a", "redis-server ", "java ", "--id=1x", "/"):
        assert not matcher.matches(Facts(cmdline=(piece * CMDLINE_LIMIT)[:CMDLINE_LIMIT]))
