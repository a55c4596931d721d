# SPDX-License-Identifier: Apache-2.0
"""`BoundedReads`: files of other processes are read where the reading can be given up.

The kernel takes a process's map lock when its maps, numa_maps, smaps, pagemap or cmdline is read.
If that process waits for a file server while it holds the lock, or somebody waits to write under
it, a reader waits for as long. A signal that ends the reader's process ends such a wait, so a
thread will do (for calls that no signal ends see daemon/native/agent.c).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from tierd._native import ffi, lib
from tierd.core import bounds
from tierd.core.errors import NotAnsweringError
from tierd.core.process import give_up_all


class Read(NamedTuple):
    """What is to be read.

    Attributes:
        key: names the question. A late answer is returned only to who asks with the same key; with
            None to nobody.
        function: reads, and returns what it found, or raises an exception.
    """

    pid: int
    key: Hashable
    function: Callable[[], Any]


class _Reader(threading.Thread):
    """A thread that makes reads one after another, until it is left with one."""

    def __init__(self) -> None:
        super().__init__(name="tierd-reader", daemon=True)
        self._begin, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self._lock = threading.Lock()
        self._reads: Sequence[Read] = ()
        self._left = self._enough = False
        self.answers: list[Any] = []
        self.cpu_ns = 0
        self._active_ns = ffi.new("uint64_t *")
        self.start()

    def slept(self, wait_s: float) -> bool:
        """Whether the thread slept for nearly all of the last `wait_s`."""
        return bool(lib.tierd_slept(self.native_id, int(wait_s * 1e9), self._active_ns))

    def begin(self, reads: Sequence[Read]) -> None:
        """Make these; `done` is released after the last."""
        self._reads, self.answers, self._enough = reads, [], False
        self._begin.release()

    def end_round(self) -> None:
        """Have the read that it is at be the last of these."""
        self._enough = True

    def leave(self) -> int:
        """Have the thread end after the read that it is at; which one that is."""
        with self._lock:
            self._left = True
            return len(self.answers)

    def run(self) -> None:
        """The thread's work."""
        # It may have been started before the loop's thread gave up what it does not need again.
        give_up_all("CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE", "CAP_SYS_NICE", "CAP_SYS_ADMIN")
        while True:
            self._begin.acquire()
            begun_ns = lib.tierd_thread_cpu_ns()
            for read in self._reads:
                answer = _answer(read)
                with self._lock:
                    self.answers.append(answer)
                    if self._left:
                        return
                if self._enough:
                    break
            self.cpu_ns += lib.tierd_thread_cpu_ns() - begun_ns
            self.done.release()
            if self._left:
                return


def _answer(read: Read) -> Any:
    try:
        return read.function()
    except Exception as error:  # raised by who asked
        return error


class BoundedReads:
    """Makes reads; to be called from one thread.

    Args:
        wait_s: a read that sleeps for between this and twice as long is given up for now. One that
            uses a processor, or waits for it, is given up after `bounds.SLOW_READ_TIMES` more.
        limit: most reads that are late at a time; with so many, none is made.
        round_s: of the reads that are asked for together, those are made that begin within so long,
            so that many slow ones do not stop the loop. The others are refused, and come first when
            they are asked for again. Single reads that have to be waited for have so long together
            from one `start_round` to the next.

    Attributes:
        given_up: reads that had no answer in time, or no time left, since the start.
    """

    def __init__(
        self,
        wait_s: float = bounds.ANSWER_NS / 2e9,
        limit: int = bounds.READERS,
        round_s: float = bounds.READS_NS / 1e9,
    ) -> None:
        self._wait_s = wait_s
        self._round_s = round_s
        self._behind: dict[int, int] = {}
        """Processes whose reads were refused as others took too long; which comes first."""
        self._limit = limit
        self._reader: _Reader | None = None
        self._late: dict[int, tuple[Read, _Reader, int]] = {}
        self._cpu_ns = 0
        self.given_up = 0
        self._stopped = False
        self._left_s = math.inf
        """For single reads, until the next round."""

    @property
    def late(self) -> frozenset[int]:
        """Processes that do not answer."""
        return frozenset(pid for pid, (_, reader, _) in self._late.items() if reader.is_alive())

    @property
    def cpu_ns(self) -> int:
        """CPU time of reads, but for those that were given up."""
        return self._cpu_ns + (0 if self._reader is None else self._reader.cpu_ns)

    def stop(self) -> None:
        """Make no further read: the service ends. A signal handler may call it."""
        self._stopped = True

    def close(self) -> None:
        """End the thread that waits for reads."""
        if self._reader is not None:
            self._reader.leave()
            self._reader.begin([])
            self._reader, self._cpu_ns = None, self.cpu_ns

    def start_round(self) -> None:
        """Single reads that have to be waited for have `round_s` from now to the next call."""
        self._left_s = self._round_s

    def one(self, pid: int, key: Hashable, function: Callable[[], Any]) -> Any:
        """Make a read, and return what it found.

        Raises:
            NotAnsweringError: there is no answer, or none yet to an earlier read of the process, or
                single reads of this round took too long.
        """
        if self._left_s <= 0:
            self.given_up += 1
            raise _refusal(pid, "others were slow")
        begun_s = time.monotonic()
        (answer,) = self.each([Read(pid, key, function)])
        if (took_s := time.monotonic() - begun_s) > self._wait_s:
            self._left_s -= took_s
        if isinstance(answer, Exception):
            raise answer
        return answer

    def each(self, reads: Sequence[Read]) -> list[Any]:
        """Make reads, at most one of each process; what each found, or its exception.

        An answer that came late is returned when the same is asked again.
        """
        answers: dict[int, Any] = {}
        left = []
        for read in reads:
            if (late := self._late_answer(read)) is None:
                left.append(read)
            else:
                answers[read.pid] = late[0]
        left.sort(key=lambda read: self._behind.get(read.pid, len(self._behind)))
        end_s = time.monotonic() + self._round_s
        while left:
            if self._stopped or len(self.late) >= self._limit:
                answers |= {read.pid: _refusal(read.pid) for read in left}
                break
            if len(answers) and time.monotonic() >= end_s:
                answers |= {read.pid: _refusal(read.pid, "others were slow") for read in left}
                self._behind = {read.pid: place for place, read in enumerate(left)}
                break
            found = self._make(left, end_s)
            answers |= {read.pid: each for read, each in zip(left, found, strict=False)}
            left = left[len(found) :]
        return [answers[read.pid] for read in reads]

    def _late_answer(self, read: Read) -> tuple[Any] | None:
        """What is to be said of a read while, or as, an earlier one is late; None: make it."""
        if read.pid not in self._late:
            return None
        before, reader, place = self._late[read.pid]
        if reader.is_alive():
            return (_refusal(read.pid),)
        del self._late[read.pid]
        same = read.key is not None and before.key == read.key
        return (reader.answers[place],) if same else None

    def _make(self, reads: Sequence[Read], end_s: float) -> list[Any]:
        """Answers up to the first that is late, or that came after `end_s`."""
        try:
            reader = self._reader or _Reader()
        except RuntimeError:  # There is no thread to be had: TasksMax=, or memory.
            return [_refusal(read.pid, "no thread is left to read it") for read in reads]
        self._reader = reader
        reader.begin(reads)
        seen, times = -1, 0
        while not reader.done.acquire(timeout=self._wait_s):
            # Most reads are not waited for, and this costs as much as a short one.
            slept = reader.slept(self._wait_s)
            if time.monotonic() >= end_s:
                reader.end_round()
            if len(reader.answers) > seen:
                seen, times = len(reader.answers), 0
                continue
            times += 1
            if not slept and times < bounds.SLOW_READ_TIMES:
                continue
            place = reader.leave()
            if place == len(reads):  # the last answer came in this moment
                self._reader, self._cpu_ns = None, self.cpu_ns
                return reader.answers
            if len(self._late) >= 2 * self._limit:  # answers that nobody came for
                self._late = {pid: each for pid, each in self._late.items() if each[1].is_alive()}
            self._late[reads[place].pid] = reads[place], reader, place
            self._reader, self._cpu_ns = None, self.cpu_ns
            self.given_up += 1
            return [*reader.answers[:place], _refusal(reads[place].pid)]
        return reader.answers


def _refusal(pid: int, why: str = "its memory maps are locked") -> NotAnsweringError:
    return NotAnsweringError(f"process {pid} does not answer: {why}")


def late_agents() -> tuple[frozenset[int], int]:
    """Processes that agents have no answer about (-1: DAMON), and how often there was none."""
    about, timeouts = ffi.new("int[]", bounds.READERS), ffi.new("uint64_t *")
    count = lib.tierd_agents_late(about, len(about), timeouts)
    return frozenset(about[0:count]), int(timeouts[0])
