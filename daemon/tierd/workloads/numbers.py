# SPDX-License-Identifier: Apache-2.0
"""Target numbers: handed out, and again only once whoever keeps page keys has dropped them."""

from __future__ import annotations

from collections import deque

from tierd.core.pagekey import MAX_TARGETS


class Numbers:
    """Numbers from 0 to `MAX_TARGETS` - 1, the longest free first once all were in use."""

    def __init__(self) -> None:
        self._unused = 0
        self._free: deque[int] = deque()
        self._unreleased: set[int] = set()

    @property
    def unreleased(self) -> int:
        """How many `retire` took that were not released yet."""
        return len(self._unreleased)

    def take(self) -> int | None:
        """A free number; None if there is none."""
        if self._free:
            return self._free.popleft()
        if self._unused < MAX_TARGETS:
            self._unused += 1
            return self._unused - 1
        return None

    def give_back(self, number: int) -> None:
        """It was taken and not used."""
        self._free.appendleft(number)

    def retire(self, number: int) -> None:
        """Its target ended; it may still stand in page keys."""
        self._unreleased.add(number)

    def release(self, number: int) -> None:
        """No page key has it any more.

        Raises:
            KeyError: it was not retired.
        """
        self._unreleased.remove(number)
        self._free.append(number)
