# SPDX-License-Identifier: Apache-2.0
"""Page frames of another process, as /proc/PID/pagemap tells them."""

from __future__ import annotations

from io import FileIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

_PRESENT = 63
_FRAME = np.uint64((1 << 55) - 1)


def frames_of(pid: int, first_vpn: int, pages: int) -> npt.NDArray[np.uint64]:
    """Page frames, uint64[pages], of a range of a process; 0 where nothing is present.

    Raises:
        OSError: there is no such process.
    """
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as file:
        return frames_in(file, first_vpn, pages)


def frames_in(pagemap: FileIO, first_vpn: int, pages: int) -> npt.NDArray[np.uint64]:
    """The same from an open file.

    An open pagemap stays with the address space it was opened for: once its process has ended
    or runs another program the kernel tells the end of the file, however often it is asked.
    """
    words = np.zeros(pages, np.uint64)
    pagemap.seek(first_vpn * 8)
    done = 0
    while done < words.nbytes and (data := pagemap.read(words.nbytes - done)):
        words.view(np.uint8)[done : done + len(data)] = np.frombuffer(data, np.uint8)
        done += len(data)
    return (words & _FRAME) * (words >> np.uint64(_PRESENT))
