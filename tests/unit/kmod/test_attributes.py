# SPDX-License-Identifier: Apache-2.0
"""Attributes are coded as pyroute2 codes them, and what is not one is refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink import genlmsg

from tierd.kmod.attributes import Answer, encoded
from tierd.kmod.uapi import ATTRIBUTES

VALUES = {
    "uint8": st.integers(0, 2**8 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "cdata": st.binary(max_size=60),
    "asciiz": st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20),
}
Message = type("Message", (genlmsg,), {"nla_map": ATTRIBUTES})


@st.composite
def attributes(draw: st.DrawFn) -> list[tuple[str, Any]]:
    known = [pair for pair in ATTRIBUTES if pair[1] != "none"]
    chosen = draw(st.lists(st.sampled_from(known), unique=True, max_size=8))
    return [(name, draw(VALUES[kind])) for name, kind in chosen]


@given(attributes())
def test_bytes_are_those_of_pyroute2_and_are_read_back(given_ones: list[tuple[str, Any]]) -> None:
    message = Message()
    message["cmd"], message["version"] = 1, 1
    message["attrs"] = [list(pair) for pair in given_ones]
    message.encode()
    ours = encoded(given_ones)
    assert bytes(message.data)[20:] == ours
    answer = Answer(ours)
    assert [answer.get_attr(name) for name, _ in given_ones] == [value for _, value in given_ones]
    assert answer.get_attr("TIERD_A_UNSPEC") is None


def test_what_has_no_value_is_left_out() -> None:
    assert encoded([("TIERD_A_PID", None), ["TIERD_A_TARGET", 3]]) == encoded(
        [("TIERD_A_TARGET", 3)]
    )


def test_an_attribute_of_a_later_version_is_passed_over() -> None:
    later = struct.pack("=HHI", 8, 4000, 7)
    answer = Answer(later + encoded([("TIERD_A_PID", 12)]))
    assert answer.get_attr("TIERD_A_PID") == 12


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("=HH", 40, 3),
        struct.pack("=HH", 2, 3),
        struct.pack("=HHBxxx", 5, 3, 1),
        encoded([("TIERD_A_PID", 12)])[:6],
    ],
)
def test_what_is_no_attribute_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="bytes"):
        Answer(data)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        Answer(data)
    except ValueError:
        return
