# SPDX-License-Identifier: Apache-2.0
"""`SighupFlag`: SIGHUP's note to the control loop that the configuration shall be read again."""

from __future__ import annotations

from types import FrameType


class SighupFlag:
    """A signal handler that only remembers.

    Attributes:
        waits: a request that nobody has served.
    """

    def __init__(self) -> None:
        self.waits = False

    def __call__(self, number: int = 0, frame: FrameType | None = None) -> None:
        """The signal came."""
        del number, frame
        self.waits = True
