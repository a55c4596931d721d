# SPDX-License-Identifier: Apache-2.0
"""How often memory behind cards is asked for, from /sys/class/neoprof (docs/neoprof-driver.md)."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

CLASS: Final = "sys/class/neoprof"
DIGITS: Final = 32


class RequestCount:
    """Counts requests to the memory of cards.

    Args:
        root: root of /sys ("/" but in tests).
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._files: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._total = 0
        self._silent: set[int] = set()

    def count(self, numbers: Collection[int]) -> int:
        """Requests that these cards have seen since each was first asked; it never falls.

        A card that does not tell, or is gone, counts none.
        """
        for number in self._files.keys() - set(numbers):
            self._forget(number)
        for number in numbers:
            told = self._read(number)
            if told is None:
                self._forget(number)
                continue
            # A card that was reset begins at 0.
            self._total += max(0, told - self._last.get(number, told))
            self._last[number] = told
        return self._total

    def close(self) -> None:
        """Let go of the files."""
        for number in list(self._files):
            self._forget(number)

    def _read(self, number: int) -> int | None:
        try:
            if number not in self._files:
                path = self._root / CLASS / f"neoprof{number}" / "requests"
                self._files[number] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return int(os.pread(self._files[number], DIGITS, 0))
        except (OSError, ValueError) as error:
            if number not in self._silent:
                self._silent.add(number)
                log.info('card=%d event=no_request_count reason="%s"', number, error)
            return None

    def _forget(self, number: int) -> None:
        self._last.pop(number, None)
        if (descriptor := self._files.pop(number, None)) is not None:
            os.close(descriptor)
