# SPDX-License-Identifier: Apache-2.0
"""A thread's memory policy for a while, on this kernel."""

from __future__ import annotations

import ctypes
import threading

import pytest

from tierd.core.process import preferring

GET_MEMPOLICY, SET_MEMPOLICY = 239, 238
PREFERRED, BIND = 1, 2

libc = ctypes.CDLL(None, use_errno=True)


def policy() -> tuple[int, int]:
    """Mode and nodes of this thread's memory policy, from the kernel."""
    mode, nodes = ctypes.c_int(-1), (ctypes.c_uint64 * 16)()
    assert libc.syscall(GET_MEMPOLICY, ctypes.byref(mode), nodes, 1024, None, 0) == 0
    return mode.value, nodes[0]


def test_a_policy_is_another_within_and_as_before_after_it() -> None:
    assert policy() == (0, 0)
    with preferring(0) as prefers:
        assert prefers
        assert policy() == (PREFERRED, 1)
    assert policy() == (0, 0)


def test_a_policy_that_the_operator_chose_comes_back_even_after_an_error() -> None:
    seen: list[tuple[int, int]] = []

    def bound() -> None:
        nodes = (ctypes.c_uint64 * 16)(1)
        assert libc.syscall(SET_MEMPOLICY, BIND, nodes, 1025) == 0
        with pytest.raises(KeyError), preferring(0):
            seen.append(policy())
            raise KeyError
        seen.append(policy())

    thread = threading.Thread(target=bound)
    thread.start()
    thread.join()
    assert seen == [(PREFERRED, 1), (BIND, 1)]
    assert policy() == (0, 0)
