# SPDX-License-Identifier: Apache-2.0
"""The last bytes of a stream."""

from __future__ import annotations


class Tail:
    """Keeps at most the last `limit` bytes of what is added, and counts the rest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self.dropped = 0

    def add(self, data: bytes) -> None:
        """Append `data`; what is too much is dropped from the front."""
        self._data += data
        # In larger steps than asked for, so that each byte is moved once on average.
        if len(self._data) > 2 * self._limit:
            self._trim()

    def _trim(self) -> None:
        excess = len(self._data) - self._limit
        if excess > 0:
            del self._data[:excess]
            self.dropped += excess

    @property
    def data(self) -> bytes:
        """The last bytes."""
        self._trim()
        return bytes(self._data)

    @property
    def text(self) -> str:
        """The same as text, with bytes that are no UTF-8 replaced."""
        return self.data.decode("utf-8", "replace")
