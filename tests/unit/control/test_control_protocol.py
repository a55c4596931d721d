# SPDX-License-Identifier: Apache-2.0
"""The control protocol: what is a request, and that nothing else ever does harm."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from control_fuzz import mutate
from desk import READER, ROOT, make_desk
from fuzz import inputs
from hypothesis import given, settings

from tierd.control import protocol
from tierd.control.commands import REQUESTS, ControlContext, dispatch
from tierd.control.protocol import ErrorKind, Request, RequestError

T = TypeVar("T")
SHARES = {"status": 0.02, "set": 0.01, "pause": 0.001, "resume": 0.001}
"""Share of the well-formed requests that is carried out in the fuzz test."""
FUZZ_INPUTS = inputs(300_000)


def malformed(line: bytes) -> str:
    with pytest.raises(RequestError) as caught:
        protocol.parse(line)
    assert caught.value.kind is ErrorKind.MALFORMED
    return caught.value.message


def test_a_request_is_a_line_of_json():
    assert protocol.parse(b'{"command": "status"}') == Request("status")
    line = b'{"command": "set", "args": {"key": "a"}, "id": 3}\n'
    assert protocol.parse(line) == Request("set", {"key": "a"}, 3)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "not a line of JSON"),
        (b"status", "not a line of JSON"),
        (b"[]", "a JSON object"),
        (b"{}", '"command" must be'),
        (b'{"command": 5}', '"command" must be'),
        (b'{"command": "a", "args": []}', '"args" must be'),
        (b'{"command": "a", "id": 1.5}', '"id" must be'),
        (b'{"command": "a", "id": true}', '"id" must be'),
        (b'{"command": "a", "id": "' + b"x" * 65 + b'"}', "at most 64"),
        (b'{"command": "a", "what": 1}', "has no 'what'"),
        (b'{"command": "\xff"}', "UTF-8"),
        (b'{"command": NaN}', "NaN is no JSON"),
        (b"[" * 60_000, "nested"),
        (b'{"command":' + b"9" * 5000 + b"}", "not a line of JSON"),
        (b" " * (protocol.MOST_BYTES + 1), "at most 65536 bytes"),
    ],
)
def test_what_is_no_request_is_told_why(line: bytes, why: str):
    assert why in malformed(line)


def test_answers_are_single_lines_of_ascii_whatever_a_process_calls_itself():
    line = protocol.answer({"comm": "a\nb\udcff\u2028"}, 4)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert line.isascii()
    assert json.loads(line) == {"ok": True, "result": {"comm": "a\nb\udcff\u2028"}, "id": 4}


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda t: t.encode("utf-8", "ignore")))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_a_request_or_malformed(line: bytes):
    try:
        assert protocol.parse(line).command is not None
    except RequestError as error:
        assert error.kind is ErrorKind.MALFORMED
        assert json.loads(protocol.failure(error))["error"]["message"]


class _Inline(ControlContext):
    """Runs what is for the loop at once."""

    def in_loop(self, function: Callable[[], T]) -> T:
        return function()


def test_wrong_requests_end_in_clear_errors(tmp_path: Path):
    """No input ends in anything but an answer or a RequestError; the desk is a real one."""
    _, plain = make_desk(tmp_path)
    desk = _Inline(plain.service, plain.state, plain.feed, plain.pause_file)
    source = random.Random(20_260_101)
    seen: dict[str, int] = {}
    for _ in range(FUZZ_INPUTS):
        line = mutate(source)
        try:
            request = protocol.parse(line)
            # Those that are right cost much more than those that are wrong.
            if source.random() > SHARES.get(request.command, 1.0):
                continue
            answer = protocol.answer(
                dispatch(desk, source.choice((ROOT, READER)), request), request.id
            )
            kind = "ok"
        except RequestError as error:
            answer = protocol.failure(error)
            kind = error.kind
        assert answer.endswith(b"\n")
        seen[kind] = seen.get(kind, 0) + 1
    print(f"control socket: {FUZZ_INPUTS} inputs, {seen}")
    # The generator reaches past the parser.
    assert {"ok", "malformed", "unknown", "denied", "refused"} <= seen.keys()
    assert seen["ok"] > FUZZ_INPUTS / 2500


def request(command: str, **args: Any) -> Request:
    return Request(command, args)


def test_readers_may_read_and_nothing_else(tmp_path: Path):
    _, plain = make_desk(tmp_path)
    desk = _Inline(plain.service, plain.state, plain.feed, plain.pause_file)
    for name, command in REQUESTS.items():
        if command.changes:
            with pytest.raises(RequestError) as caught:
                dispatch(desk, READER, request(name))
            assert caught.value.kind is ErrorKind.DENIED
        else:
            dispatch(desk, READER, request(name))
    assert [n for n, c in REQUESTS.items() if not c.changes] == ["version", "status", "events"]


@pytest.mark.parametrize(
    ("asked", "kind", "why"),
    [
        (request("statu"), ErrorKind.UNKNOWN, "no command 'statu'"),
        (request("status", hot=1), ErrorKind.UNKNOWN, "no argument 'hot'"),
        (request("status", hottest=1), ErrorKind.MALFORMED, "must be bool"),
        (request("explain", pid=True), ErrorKind.MALFORMED, "must be int"),
        (request("explain"), ErrorKind.MALFORMED, "takes a pid"),
        (request("explain", pid=1, cgroup="/"), ErrorKind.MALFORMED, "takes a pid"),
        (request("explain", cgroup="/", address=1), ErrorKind.MALFORMED, "takes a pid"),
        (request("explain", pid=-4), ErrorKind.MALFORMED, "no process"),
        (request("explain", pid=1, address=1 << 64), ErrorKind.MALFORMED, "no process"),
        (request("set", key="a"), ErrorKind.MALFORMED, "needs a key and a value"),
        (
            request("set", key="migration.rat", value=1),
            ErrorKind.REFUSED,
            "migration.rat: unknown key",
        ),
        (request("set", key="migration", value={}), ErrorKind.REFUSED, "is a section"),
        (request("set", key="nothing.at.all", value=1), ErrorKind.REFUSED, "unknown key"),
        (request("set", key="migration.rate_limit", value=5), ErrorKind.REFUSED, "must be a rate"),
        (request("set", key="targets.deny.0", value=5), ErrorKind.REFUSED, "targets.deny"),
    ],
)
def test_wrong_requests_are_told_what_is_wrong(
    tmp_path: Path, asked: Request, kind: ErrorKind, why: str
):
    _, plain = make_desk(tmp_path)
    desk = _Inline(plain.service, plain.state, plain.feed, plain.pause_file)
    with pytest.raises(RequestError) as caught:
        dispatch(desk, ROOT, asked)
    assert caught.value.kind is kind
    assert why in caught.value.message
