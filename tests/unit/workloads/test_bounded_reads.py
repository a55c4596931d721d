# SPDX-License-Identifier: Apache-2.0
"""Reads of other processes' files that may not return: what is given up, and what comes late."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tierd._native import ffi, lib
from tierd.core import bounds
from tierd.core.errors import NotAnsweringError, TargetGoneError
from tierd.workloads.bounded_reads import BoundedReads, Read, _Reader

WAIT_S = 0.02


class Held:
    """A read that waits until it is let go."""

    def __init__(self, answer: Any = "late") -> None:
        self.answer, self.go, self.thread = answer, threading.Event(), threading.current_thread()

    def __call__(self) -> Any:
        self.thread = threading.current_thread()
        self.go.wait()
        return self.answer

    def end(self) -> None:
        """Let it go, and wait until its thread has ended."""
        self.go.set()
        self.thread.join()


@pytest.fixture
def held() -> Iterator[Callable[..., Held]]:
    """Makes reads that wait; all are let go in the end."""
    made: list[Held] = []

    def make(answer: Any = "late") -> Held:
        made.append(Held(answer))
        return made[-1]

    yield make
    for each in made:
        each.go.set()


def test_answers_come_in_the_order_of_reads_and_errors_are_the_readers() -> None:
    reads = BoundedReads(WAIT_S)
    gone = TargetGoneError("it went")

    def fails() -> None:
        raise gone

    assert reads.each([Read(1, "a", lambda: 10), Read(2, "a", fails), Read(3, "a", int)]) == [
        10, gone, 0,
    ]  # fmt: skip
    with pytest.raises(TargetGoneError, match="it went"):
        reads.one(2, "a", fails)
    assert (reads.late, reads.given_up) == (frozenset(), 0)
    assert reads.cpu_ns > 0


def test_one_that_does_not_answer_keeps_nobody_else_waiting(held: Callable[..., Held]) -> None:
    reads = BoundedReads(WAIT_S)
    answers = reads.each([Read(1, "a", int), Read(2, "a", held()), Read(3, "a", lambda: 30)])
    assert (answers[0], answers[2]) == (0, 30)
    assert isinstance(answers[1], NotAnsweringError)
    assert (reads.late, reads.given_up) == (frozenset({2}), 1)


def test_while_it_is_late_nothing_more_is_asked_of_a_process(held: Callable[..., Held]) -> None:
    reads = BoundedReads(WAIT_S)
    for _ in range(3):
        with pytest.raises(NotAnsweringError):
            reads.one(2, "a", held())
    assert reads.given_up == 1
    assert reads.one(3, "a", lambda: 7) == 7


def test_an_answer_that_came_late_is_that_to_the_same_question(held: Callable[..., Held]) -> None:
    """A large process's numa_maps takes longer than the loop waits, each time."""
    reads, late = BoundedReads(WAIT_S), held("its maps")
    with pytest.raises(NotAnsweringError):
        reads.one(2, "maps", late)
    late.end()
    assert reads.late == frozenset()
    assert reads.one(2, "maps", int) == "its maps"
    assert reads.one(2, "maps", int) == 0


def test_an_answer_that_came_late_to_another_question_is_none(held: Callable[..., Held]) -> None:
    reads, late = BoundedReads(WAIT_S), held()
    with pytest.raises(NotAnsweringError):
        reads.one(2, "maps", late)
    late.end()
    assert reads.one(2, "pagemap", lambda: 5) == 5


def test_an_answer_that_came_late_to_no_named_question_is_nobodys(
    held: Callable[..., Held],
) -> None:
    """Two that ask without a key ask for different things: the one is no answer to the other."""
    reads, late = BoundedReads(WAIT_S), held()
    with pytest.raises(NotAnsweringError):
        reads.one(2, None, late)
    late.end()
    assert reads.one(2, None, lambda: 5) == 5


class Active(Held):
    """A read whose thread is active until it is let go, as the kernel tells it."""

    def __call__(self) -> Any:
        self.thread = threading.current_thread()
        while not self.go.is_set():
            pass
        return self.answer


def test_one_that_is_only_slow_is_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs for longer than one may sleep; the looks at its activity are what is counted."""
    reads, slow = BoundedReads(5 * WAIT_S), Active("it came")
    looks, slept = [], _Reader.slept

    def looked(reader: _Reader, wait_s: float) -> bool:
        looks.append(slept(reader, wait_s))
        if len(looks) == bounds.SLOW_READ_TIMES:
            slow.go.set()
        return looks[-1]

    monkeypatch.setattr(_Reader, "slept", looked)
    assert reads.one(2, "a", slow) == "it came"
    assert not any(looks)
    assert (reads.given_up, reads.late) == (0, frozenset())


def test_one_that_never_ends_is_given_up_though_it_is_active(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads, slow, looks = BoundedReads(5 * WAIT_S), Active(), []
    slept = _Reader.slept
    monkeypatch.setattr(
        _Reader, "slept", lambda reader, wait_s: looks.append(1) or slept(reader, wait_s)
    )
    with pytest.raises(NotAnsweringError):
        reads.one(2, "a", slow)
    slow.end()
    # The first wait is free.
    assert len(looks) == 1 + bounds.SLOW_READ_TIMES


def test_a_round_that_takes_long_leaves_the_rest_to_the_next_one() -> None:
    """Where each of many reads takes a second, the loop goes on after a few; all get their turn."""
    reads, made = BoundedReads(WAIT_S, round_s=0.0), []

    def slowly(pid: int) -> int:
        made.append(pid)
        time.sleep(1.5 * WAIT_S)  # longer than a wait, and not given up
        return pid

    asked = [Read(pid, "a", partial(slowly, pid)) for pid in (1, 2, 3)]
    for _ in range(4):
        for pid, answer in zip((1, 2, 3), reads.each(asked), strict=True):
            assert answer == pid or "others were slow" in str(answer)
    assert set(made) == {1, 2, 3}
    assert reads.given_up == 0


def test_single_reads_of_a_round_have_an_end_together() -> None:
    """Each walk and each query of a tick is one of them: sixty slow ones would be a minute."""
    reads = BoundedReads(WAIT_S, round_s=WAIT_S)
    asked = [partial(reads.one, pid, "a", partial(time.sleep, 1.5 * WAIT_S)) for pid in range(4)]
    for read in asked:
        read()  # whoever makes no rounds has no such end
    for _ in range(2):
        reads.start_round()
        asked[0]()
        for read in asked[1:]:
            with pytest.raises(NotAnsweringError, match="others were slow"):
                read()
    assert reads.given_up == 6


def test_with_as_many_late_as_there_may_be_none_is_asked(held: Callable[..., Held]) -> None:
    reads, late = BoundedReads(WAIT_S, limit=2), [held(), held()]
    for pid, each in enumerate(late):
        with pytest.raises(NotAnsweringError):
            reads.one(pid, "a", each)
    with pytest.raises(NotAnsweringError):
        reads.one(9, "a", int)
    late[0].end()
    assert reads.one(9, "a", int) == 0


def test_answers_that_nobody_comes_for_are_forgotten(held: Callable[..., Held]) -> None:
    reads = BoundedReads(WAIT_S, limit=1)
    for pid in range(6):
        late = held()
        with pytest.raises(NotAnsweringError):
            reads.one(pid, "a", late)
        late.end()
    assert len(reads._late) <= 3


def test_threads_of_reads_do_not_keep_the_process_from_ending(held: Callable[..., Held]) -> None:
    reads, late = BoundedReads(WAIT_S), held()
    with pytest.raises(NotAnsweringError):
        reads.one(2, "a", late)
    assert late.thread.daemon


def test_after_the_stop_the_read_in_hand_is_the_last() -> None:
    """Of many processes that get stuck at once, the end of the service waits for one."""
    freed, begun = threading.Event(), []
    reads = BoundedReads(0.05)

    def stuck(pid: int) -> None:
        begun.append(pid)
        reads.stop()
        freed.wait()

    answers = reads.each([Read(pid, "maps", partial(stuck, pid)) for pid in range(1, 9)])
    freed.set()
    assert begun == [1]
    assert reads.given_up == 1
    assert all(isinstance(each, NotAnsweringError) for each in answers)
    reads.close()


def test_a_thread_that_sleeps_is_told_from_one_that_waits_for_a_processor() -> None:
    """A stopped process sleeps; one that turns is active, also while it gets no processor."""
    active_ns = ffi.new("uint64_t *")
    program = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as turns:
        try:
            assert turns.stdout is not None
            turns.stdout.readline()  # while it starts it sleeps as well
            until(lambda: not lib.tierd_slept(turns.pid, 0, active_ns))
            # More than it can have been active: that it is runnable is what tells.
            assert not lib.tierd_slept(turns.pid, 10**15, active_ns)
            turns.send_signal(signal.SIGSTOP)
            until(lambda: lib.tierd_slept(turns.pid, 10**15, active_ns))
        finally:
            turns.kill()


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
