# SPDX-License-Identifier: Apache-2.0
"""What a GPU has room for, by count.

Managed memory stays with a GPU when its bytes leave: the driver marks it unused and gives
it up, before anything else, when somebody needs memory there. Until then it is as good as
free, and NVML calls it used. So the free memory that NVML tells is no measure of room; it
is, with what the tenants' chunks left behind counted in. A second figure bounds it from
above: all memory less what processes have for themselves (NVML tells that for each
process, contexts included and managed memory not) less the chunks that are there. It shows
what others took of the unused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tierd_gpu.links import CHUNK_BYTES


@dataclass(slots=True)
class Account:
    """One GPU's memory.

    Attributes:
        total: bytes.
        free: bytes, as NVML told last.
        own: bytes that processes have for themselves, as NVML told last; None where it
            does not tell.
        left: what left its memory here, as (session, chunk), the longest ago first.
        taken: chunks that came since NVML was asked and had no memory here.
    """

    total: int
    free: int
    own: int | None = None
    left: dict[tuple[int, int], None] = field(default_factory=dict)
    taken: int = 0

    def tell(self, free: int, own: int | None) -> None:
        """NVML was asked."""
        self.free, self.own, self.taken = free, own, 0

    def came(self, session: int, chunk: int) -> None:
        """A chunk is here: in the memory that it left here, or in new memory."""
        if (session, chunk) in self.left:
            del self.left[session, chunk]
            return
        if self.left and self.free < (self.taken + 1) * CHUNK_BYTES:
            del self.left[next(iter(self.left))]  # the driver took it from the oldest
        else:
            self.taken += 1

    def went(self, session: int, chunk: int) -> None:
        """A chunk was here and is somewhere else."""
        self.left[session, chunk] = None
        if len(self.left) > self.total // CHUNK_BYTES:
            del self.left[next(iter(self.left))]  # no more than the GPU holds, whoever says so

    def freed(self, session: int, first: int, count: int) -> None:
        """Chunks are no more: their memory is free, as NVML will tell."""
        if not self.left:
            return
        if count < len(self.left):
            for chunk in range(first, first + count):
                self.left.pop((session, chunk), None)
            return
        end = first + count
        gone = [key for key in self.left if key[0] == session and first <= key[1] < end]
        for key in gone:
            del self.left[key]

    def room(self, present: int) -> int:
        """Chunks that can come without any other having to leave, `present` being here."""
        room = self.free // CHUNK_BYTES - self.taken + len(self.left)
        if self.own is not None:
            room = min(room, (self.total - self.own) // CHUNK_BYTES - present)
        return max(0, room)
