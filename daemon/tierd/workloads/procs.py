# SPDX-License-Identifier: Apache-2.0
"""What /proc tells about a process, each fact read once and only when asked for.

Field numbers are those of proc(5). Names and paths may hold any byte but NUL:
they are decoded with surrogate escapes and never split at spaces or newlines.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tierd.config.matchers import CMDLINE_LIMIT
from tierd.core import bounds, linux
from tierd.core.errors import HiddenProgramError, TargetGoneError, UnjudgeableError
from tierd.core.pagekey import PAGE_SIZE
from tierd.workloads.bounded_reads import BoundedReads

PROC: Final = Path("/proc")
_ENDED: Final = frozenset((b"Z", b"X", b"x"))


def read_bytes(path: str, limit: int = bounds.PROC_BYTES, *, once: bool = False) -> bytes:
    """Up to `limit` bytes of a file below /proc/PID.

    Args:
        once: the kernel makes this file in one piece (stat, status, cgroup): a read has it all.

    Raises:
        TargetGoneError: the process is gone, or gone to where we may not look.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise TargetGoneError(f"cannot read {path}: {error.strerror}") from None
    try:
        if once:
            return os.read(descriptor, limit)
        chunks = []
        # The kernel makes maps and its like a page at a time; a larger buffer is cleared in vain.
        while limit > 0 and (chunk := os.read(descriptor, min(limit, bounds.PROC_BYTES))):
            chunks.append(chunk)
            limit -= len(chunk)
        return b"".join(chunks)
    except OSError as error:
        raise TargetGoneError(f"cannot read {path}: {error.strerror}") from None
    finally:
        os.close(descriptor)


class Stat(NamedTuple):
    """One reading of /proc/PID/stat.

    Attributes:
        comm: name of the main thread, at most 15 bytes; the process can choose it.
        kernel_thread: whether it has no user memory at all.
        ended: a zombie, or dead.
        start_time: clock ticks since boot at which it started; with `pid` it names
            the process for good.
        rss_bytes: resident memory, approximate as the kernel counts it per CPU.
        image: changes when the process executes another program: the addresses of
            its code and stack, or its name where the kernel hides those. The same
            program executed again with address randomisation off looks the same.
        activity: changes when the process ran for some time, or its memory changed: page
            faults, CPU time, size, resident pages.
    """

    pid: int
    comm: str
    ppid: int
    kernel_thread: bool
    ended: bool
    start_time: int
    rss_bytes: int
    image: tuple[bytes, ...]
    activity: tuple[bytes, ...] = ()


_decoded = functools.lru_cache(1024)(os.fsdecode)


def parse_stat(text: bytes) -> Stat:
    """A reading from the text of /proc/PID/stat. Raises ValueError: not the text of a stat file."""
    head, _, rest = text.partition(b" (")
    comm, found, tail = rest.rpartition(b") ")  # comm itself may hold ") "
    fields = tail.split(None, 26)
    if not found or len(fields) < 26:
        raise ValueError("not a stat file")
    code, stack = fields[23], fields[25]
    hidden = int(stack) == 0
    return Stat(  # fields[0] is field 3, the state
        pid=int(head),
        comm=_decoded(comm),
        ppid=int(fields[1]),
        kernel_thread=bool(int(fields[6]) & linux.PF_KTHREAD),
        ended=fields[0] in _ENDED,
        start_time=int(fields[19]),
        rss_bytes=int(fields[21]) * PAGE_SIZE,
        image=(comm,) if hidden else (code, stack),
        # minflt, majflt, utime, stime, vsize, rss (proc_pid_stat(5))
        activity=(fields[7], fields[9], fields[11], fields[12], fields[20], fields[21]),
    )


def read_stat(pid: int, root: Path = PROC) -> Stat:
    """One reading of a process. Raises TargetGoneError: there is no such process."""
    return reported_stat(stat_text(pid, root), pid)


def stat_text(pid: int, root: Path = PROC) -> bytes:
    """What `reported_stat` takes, as the kernel tells it now.

    Raises:
        TargetGoneError: there is no such process.
    """
    return read_bytes(f"{root}/{pid}/stat", once=True)


def reported_stat(text: bytes, pid: int) -> Stat:
    """The reading that a process' stat file holds.

    Raises:
        TargetGoneError: it is not whole: the process went away meanwhile.
    """
    try:
        return parse_stat(text)
    except ValueError:
        raise TargetGoneError(f"the stat file of process {pid} is not complete") from None


def start_time(pid: int, root: Path = PROC) -> int:
    """`Stat.start_time` of a process, and nothing else of it.

    Raises:
        TargetGoneError: there is no such process.
    """
    fields = stat_text(pid, root).rpartition(b") ")[2].split(None, 20)
    try:
        return int(fields[19])
    except (IndexError, ValueError):
        raise TargetGoneError(f"the stat file of process {pid} is not complete") from None


def list_pids(root: Path = PROC) -> list[int]:
    """All processes, as numbers."""
    return [int(name) for name in os.listdir(root) if name.isdecimal()]  # noqa: PTH208 - speed


class Process:
    """The facts of one process, bound to one reading of its stat.

    exe and cmdline are kept from one reading to the next while the process runs
    the same program; cgroup and uid can change at any time and are read anew.
    Reading a fact raises TargetGoneError when the process is gone. The number can
    belong to another process by then: whoever keeps a process must hold a pidfd and
    compare `start_time` once more (`registry`).
    """

    __slots__ = ("_cgroup", "_cmdline", "_exe", "_from_root", "_reads", "_root", "_uid", "stat")

    def __init__(
        self,
        stat: Stat,
        root: Path = PROC,
        before: Process | None = None,
        *,
        reads: BoundedReads | None = None,
        from_root: Callable[[str], str | None] = str,
    ) -> None:
        """One reading of a process.

        Args:
            before: an earlier reading of the same process.
            from_root: `CgroupNamespace.path`.
        """
        self.stat = stat
        self._from_root = from_root
        self._reads = reads
        self._root = root
        self._exe: str | None = None
        self._cmdline: str | None = None
        self._cgroup: str | None = None
        self._uid: int | None = None
        if before is not None and before.same_program(stat):
            self._exe = before._exe
            self._cmdline = before._cmdline

    def same_program(self, stat: Stat) -> bool:
        """Whether `stat` is of the same process, and it has not executed another program."""
        own = self.stat
        return own.start_time == stat.start_time and own.image == stat.image

    @property
    def pid(self) -> int:
        """Process id."""
        return self.stat.pid

    @property
    def rss_bytes(self) -> int:
        """Resident memory at this reading."""
        return self.stat.rss_bytes

    @property
    def exe(self) -> str:
        """Path of the executable, without the kernel's " (deleted)".

        Raises:
            HiddenProgramError: the kernel shows it to nobody who may not trace the process.
        """
        if self._exe is None:
            path = f"{self._root}/{self.pid}/exe"
            try:
                self._exe = str(Path(path).readlink()).removesuffix(" (deleted)")
            except PermissionError:
                raise HiddenProgramError(
                    f"the program of process {self.pid} is hidden from this user",
                    hint="it takes CAP_SYS_PTRACE, and no security module that refuses it",
                ) from None
            except OSError as error:
                raise TargetGoneError(f"cannot read {path}: {error.strerror}") from None
        return self._exe

    @property
    def cmdline(self) -> str:
        """Arguments joined by spaces, at most `CMDLINE_LIMIT` bytes of them."""
        if self._cmdline is None:
            path = f"{self._root}/{self.pid}/cmdline"
            read = functools.partial(read_bytes, path, CMDLINE_LIMIT)
            key = ("cmdline", self.stat.start_time, self.stat.image)
            raw = read() if self._reads is None else self._reads.one(self.pid, key, read)
            self._cmdline = os.fsdecode(raw.rstrip(b"\0").replace(b"\0", b" "))
        return self._cmdline

    @property
    def cgroup(self) -> str:
        """Path from the root of the cgroup v2 tree; on a host with v1, see `parse_cgroup`.

        Raises:
            UnjudgeableError: it cannot be known in this cgroup namespace.
        """
        path = self._from_root(self.shown_cgroup)
        if path is None:
            raise UnjudgeableError(
                f"process {self.pid} is in {self.shown_cgroup} of this cgroup namespace, and what "
                "that is from the host's root is not known",
                hint="run tierd in the host's cgroup namespace, or match by exe, cmdline or uid "
                "(docs/operate/targets.md)",
            )
        return path

    @property
    def shown_cgroup(self) -> str:
        """Path as this cgroup namespace shows it."""
        if self._cgroup is None:
            self._cgroup = parse_cgroup(read_bytes(f"{self._root}/{self.pid}/cgroup", once=True))
        return self._cgroup

    @property
    def uid(self) -> int:
        """Effective user id (second number of Uid in status)."""
        if self._uid is None:
            status = read_bytes(f"{self._root}/{self.pid}/status", once=True)
            _, _, rest = status.partition(b"\nUid:")
            try:
                self._uid = int(rest.split(None, 2)[1])
            except (IndexError, ValueError):
                raise TargetGoneError(f"process {self.pid} has no Uid line") from None
        return self._uid


def parse_cgroup(text: bytes) -> str:
    """The path of a process from /proc/PID/cgroup (cgroups(7)); "/" when there is none.

    That in the v2 tree. Where that is its root, and v1 hierarchies have the process elsewhere (a
    hybrid host's containers), it is that of the memory controller, or else of any.
    """
    unified, memory, other = "/", "/", "/"
    for line in os.fsdecode(text).split("\n"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            unified = path
        elif "memory" in controllers.split(","):
            memory = path
        elif path:
            other = path if other == "/" else other
    return next((path for path in (unified, memory, other) if path != "/"), "/")
