# SPDX-License-Identifier: Apache-2.0
"""Choosing among sources: best first, fallback while running, retry later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tierd.core import bounds
from tierd.core.access import AccessBatch, AccessSource, Availability, WatchedTarget
from tierd.core.errors import UnavailableError
from tierd.sources.selection import SourceSelector


class Source(AccessSource):
    """A source whose health a test sets."""

    def __init__(self, name: str, ok: bool = True) -> None:
        self.name = name
        self.ok = ok
        self.breaks_on_poll = False
        self.watching: Sequence[WatchedTarget] | None = None

    def available(self) -> Availability:
        return Availability(self.ok, "fine" if self.ok else f"{self.name} is not there")

    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        self.watching = targets

    def poll(self) -> list[AccessBatch]:
        if self.breaks_on_poll:
            raise UnavailableError("module unloaded")
        page = np.array([1], np.uint64)
        return [AccessBatch(page, np.ones(1, np.float32), 0, self.name)]

    def close(self) -> None:
        self.watching = None


def test_the_first_that_works_is_used():
    first, second = Source("first", ok=False), Source("second")
    selector = SourceSelector([first, second])
    selector.watch([], 0)
    assert selector.active is second
    assert selector.reasons == {"first": "first is not there"}


def test_none_is_one_error_with_every_reason():
    selector = SourceSelector([Source("a", ok=False), Source("b", ok=False)])
    with pytest.raises(UnavailableError, match=r"a: a is not there; b: b is not there"):
        selector.watch([], 0)


def test_a_source_that_breaks_while_polled_gives_way_to_the_next():
    first, second = Source("first"), Source("second")
    selector = SourceSelector([first, second])
    selector.watch([], 0)
    assert len(selector.poll(0)) == 1
    first.breaks_on_poll = True
    assert selector.poll(1) == []
    assert selector.active is None
    assert first.watching is None
    selector.watch([], 2)
    assert selector.active is second
    assert selector.reasons == {"first": "module unloaded"}


def test_a_better_source_is_taken_again_after_a_while_and_the_other_stopped():
    first, second = Source("first", ok=False), Source("second")
    selector = SourceSelector([first, second])
    selector.watch([], 0)
    first.ok = True
    selector.watch([], bounds.SOURCE_RETRY_NS - 1)
    assert selector.active is second
    selector.watch([], bounds.SOURCE_RETRY_NS)
    assert selector.active is first
    assert second.watching is None
    assert selector.reasons == {}


def test_close_stops_the_source_in_use():
    source = Source("only")
    selector = SourceSelector([source])
    selector.watch([], 0)
    selector.close()
    assert source.watching is None
    assert selector.poll(0) == []
