# SPDX-License-Identifier: Apache-2.0
"""`Processes`: a pidfd for each target, so that pages are moved in the right process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

NO_PIDFD: Final = -1


@dataclass(slots=True)
class _Held:
    pid: int
    pidfd: int


class Processes:
    """Pidfds by target number, opened when a target is first seen with a pid."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}

    def hold(self, pids: Mapping[int, int]) -> list[tuple[int, int, int]]:
        """(target, pid, pidfd) ascending by target; the pidfd is -1 if the process is gone.

        A target keeps its first process. After that has ended the target stays gone, even if
        the pid is used again, until it gets another pid, is left out, or is forgotten.
        """
        for target in self._held.keys() - pids.keys():
            self._close(self._held.pop(target))
        for target, pid in pids.items():
            held = self._held.get(target)
            if held is None or held.pid != pid:
                if held is not None:
                    self._close(held)
                self._held[target] = _Held(pid, _open(pid))
        return [(target, held.pid, held.pidfd) for target, held in sorted(self._held.items())]

    def forget(self, pid: int) -> None:
        """Close the pidfd of a process."""
        for target in [each for each, held in self._held.items() if held.pid == pid]:
            self._close(self._held.pop(target))

    def close(self) -> None:
        """Close everything."""
        self.hold({})

    @staticmethod
    def _close(held: _Held) -> None:
        if held.pidfd != NO_PIDFD:
            os.close(held.pidfd)


def _open(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (ProcessLookupError, ValueError, OverflowError):
        return NO_PIDFD
    except OSError as error:
        # EINVAL: the number of a thread, or of no process.
        import errno

        if error.errno in (errno.EINVAL, errno.ENOENT):
            return NO_PIDFD
        raise
