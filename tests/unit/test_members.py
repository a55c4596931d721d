# SPDX-License-Identifier: Apache-2.0
"""Sets of pages."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tierd.core.pagekey import PageKeySet
from tierd.sources.kmod.uapi import RECORD

NEVER = 2**64 - 1
PIECES = st.lists(st.lists(st.integers(0, 300), max_size=80), max_size=40)


@given(PIECES, st.lists(st.integers(0, 600)))
def test_a_page_is_a_member_once_it_was_added(pieces: list[list[int]], asked: list[int]) -> None:
    one = PageKeySet()
    for piece in pieces:
        one.add(np.array(piece, np.uint64) << np.uint64(40))
    added = {page for piece in pieces for page in piece}
    found = one.has(np.array(asked, np.uint64) << np.uint64(40))
    assert found.tolist() == [page in added for page in asked]


def test_a_set_grows_by_many_small_pieces() -> None:
    one, pages = PageKeySet(), np.random.default_rng(1).integers(0, 2**63, 9000, dtype=np.uint64)
    for at in range(0, 6000, 7):
        one.add(pages[at : min(at + 7, 6000)])
    assert len(one) == 6000
    assert one.has(pages).tolist() == [True] * 6000 + [False] * 3000


def test_nothing_is_in_an_empty_set() -> None:
    one = PageKeySet()
    one.add(np.empty(0, np.uint64))
    assert not one
    assert one.has(np.array([0, 1, NEVER], np.uint64)).tolist() == [False] * 3


def test_a_key_of_all_ones_is_never_a_member() -> None:
    one = PageKeySet()
    one.add(np.array([NEVER, 0], np.uint64))
    assert one.has(np.array([NEVER, 0], np.uint64)).tolist() == [False, True]


def test_pages_are_read_from_records_and_from_views() -> None:
    records = np.zeros(50, RECORD)
    records["page"] = np.arange(50)
    one = PageKeySet()
    one.add(records["page"][::2])
    assert one.has(records["page"]).tolist() == [page % 2 == 0 for page in range(50)]
    assert one.has(records["page"][::-3]).tolist() == [page % 2 == 0 for page in range(49, -1, -3)]
    odd = np.zeros(4, np.dtype([("mark", "u1"), ("page", "=u8")]))
    odd["page"] = [1, 2, 3, 4]
    assert one.has(odd["page"]).tolist() == [False, True, False, True]
