# SPDX-License-Identifier: Apache-2.0
"""A /proc tree made of files, whose processes start, change and end on command."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tierd.workloads.events import ProcessEvents, ProcessEventSocket

PF_KTHREAD = 0x00200000


@dataclass
class FakeProc:
    root: Path
    pidfds: dict[int, int] = field(default_factory=dict)
    opened: int = 0

    def add(
        self,
        pid: int,
        *,
        comm: bytes = b"prog",
        exe: str | bytes = "/usr/bin/prog",
        cmdline: bytes = b"prog\0-x\0",
        cgroup: str = "/",
        uid: int = 1000,
        rss_bytes: int = 64 << 20,
        start_time: int = 100,
        ppid: int = 1,
        flags: int = 0,
        state: bytes = b"S",
        code: int = 0x1000,
    ) -> None:
        """Start a process, or change one that is there."""
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        fields = [b"0"] * 50
        fields[0] = state
        fields[1] = str(ppid).encode()
        fields[6] = str(flags).encode()
        fields[19] = str(start_time).encode()
        fields[21] = str(rss_bytes // 4096).encode()
        fields[23] = str(code).encode()
        fields[25] = str(0x7FFF_0000).encode()
        (folder / "stat").write_bytes(b"%d (%s) %s\n" % (pid, comm, b" ".join(fields)))
        (folder / "cmdline").write_bytes(cmdline)
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        (folder / "status").write_text(f"Name:\tprog\nUid:\t1\t{uid}\t3\t4\nVmLck:\t       0 kB\n")
        (folder / "exe").unlink(missing_ok=True)
        (folder / "exe").symlink_to(os.fsdecode(exe))

    def end(self, pid: int, *, exited: bool = True) -> None:
        """End a process; its pidfd says so unless `exited` is false."""
        shutil.rmtree(self.root / str(pid))
        if exited and pid in self.pidfds:
            os.eventfd_write(self.pidfds.pop(pid), 1)

    def pidfd_open(self, pid: int) -> int:
        if not (self.root / str(pid)).exists():
            raise ProcessLookupError(3, "No such process")
        self.opened += 1
        self.pidfds[pid] = os.eventfd(0)
        return self.pidfds[pid]


class FakeEvents(ProcessEventSocket):
    """Process events that a test queues."""

    def __init__(self) -> None:
        self.queued = ProcessEvents()
        self.closed = False
        self.overflows = 0
        self.received = 0

    def fileno(self) -> int:
        return -1

    def drain(self) -> ProcessEvents:
        found, self.queued = self.queued, ProcessEvents()
        self.overflows += found.lost
        return found

    def close(self) -> None:
        self.closed = True
