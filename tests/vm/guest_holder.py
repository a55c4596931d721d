# SPDX-License-Identifier: Apache-2.0
"""A process that holds memory for `guest_mover.py` and knows what must be in it.

It answers each command, a JSON line on a pipe, with a JSON line on another.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np

PAGE = 4096
HUGE = 2 << 20
MADV_HUGEPAGE, MADV_NOHUGEPAGE = 14, 15
MPOL_BIND = 2
SYS_SET_MEMPOLICY = 238
WORDS = PAGE // 8

libc = ctypes.CDLL(None, use_errno=True)


class _IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Memory:
    """Anonymous memory with a known word in every place, and counters that go up."""

    def __init__(self) -> None:
        self.map: mmap.mmap | None = None
        self.words: np.ndarray = np.empty((0, WORDS), np.uint64)
        self.expected = np.empty(0, np.uint64)
        self.pipes: list[tuple[int, int]] = []
        self.writing = threading.Event()
        self.writer: threading.Thread | None = None
        self.children: list[int] = []

    def allocate(self, pages: int, kind: str) -> dict[str, Any]:
        """Map and fill `pages` pages; kind is small, huge or ballast (touched only)."""
        length = pages * PAGE + HUGE
        self.map = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        start = -(-base // HUGE) * HUGE
        advice = MADV_HUGEPAGE if kind == "huge" else MADV_NOHUGEPAGE
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(pages * PAGE), advice)
        raw = np.frombuffer(self.map, np.uint64, count=pages * WORDS, offset=start - base)
        self.words = raw.reshape(pages, WORDS)
        self.expected = np.zeros(pages, np.uint64)
        if kind == "ballast":
            self.words[:, 0] = 1
        else:
            for low, high in self._parts():
                self.words[low:high] = self._pattern(low, high)
        return {"vpn": start // PAGE}

    def _parts(self) -> list[tuple[int, int]]:
        # Small ones, so that little memory but the held one is in use.
        pages = len(self.words)
        return [(low, min(low + 512, pages)) for low in range(0, pages, 512)]

    @staticmethod
    def _pattern(low: int, high: int) -> np.ndarray:
        page = np.arange(low, high, dtype=np.uint64)[:, None]
        word = np.arange(WORDS, dtype=np.uint64)[None, :]
        return (page * np.uint64(0x9E3779B97F4A7C15) + word) | np.uint64(1)

    def verify(self) -> dict[str, Any]:
        """Whether every word is what it must be; word 0 also has the counter added."""
        wrong = 0
        for low, high in self._parts():
            want = self._pattern(low, high)
            want[:, 0] += self.expected[low:high]
            wrong += int(np.count_nonzero((self.words[low:high] != want).any(axis=1)))
        return {"wrong": wrong, "writes": int(self.expected.sum())}

    def write(self) -> dict[str, Any]:
        """Begin to add to word 0 of all pages, without end."""
        self.writing.set()
        self.writer = threading.Thread(target=self._write)
        self.writer.start()
        return {}

    def _write(self) -> None:
        pages = len(self.words)
        at = 0
        while self.writing.is_set():
            part = slice(at, min(at + 512, pages))
            self.words[part, 0] += np.uint64(1)
            self.expected[part] += np.uint64(1)
            at = part.stop % pages

    def quiet(self) -> dict[str, Any]:
        """Stop writing."""
        self.writing.clear()
        if self.writer is not None:
            self.writer.join()
        return {}

    def pin(self, first: int, count: int) -> dict[str, Any]:
        """Hold a reference on some pages, as a device would: they lie in a pipe."""
        reader, writer = os.pipe()
        fcntl_set_pipe_size = 1031
        import fcntl

        fcntl.fcntl(writer, fcntl_set_pipe_size, 1 << 20)
        vector = _IoVec(self.words[first].ctypes.data, count * PAGE)
        done = libc.vmsplice(writer, ctypes.byref(vector), ctypes.c_ulong(1), 0)
        self.pipes.append((reader, writer))
        return {"pinned": int(done) // PAGE}

    def release(self) -> dict[str, Any]:
        """Let go of all pins."""
        for reader, writer in self.pipes:
            os.close(reader)
            os.close(writer)
        self.pipes.clear()
        return {}

    def share(self) -> dict[str, Any]:
        """Have a child that maps the same pages."""
        child = os.fork()
        if child == 0:
            threading.Event().wait()
        self.children.append(child)
        return {"child": child}

    def unshare(self) -> dict[str, Any]:
        """End the children."""
        for child in self.children:
            os.kill(child, 9)
            os.waitpid(child, 0)
        self.children.clear()
        return {}

    def drop(self, first: int, count: int) -> dict[str, Any]:
        """Give pages back to the kernel (they read as zero afterwards)."""
        dont_need = 4
        address = ctypes.c_void_p(self.words[first].ctypes.data)
        return {"result": libc.madvise(address, ctypes.c_size_t(count * PAGE), dont_need)}

    @staticmethod
    def bind(node: int) -> dict[str, Any]:
        """Take memory from one node only, from now on."""
        mask = ctypes.c_ulong(1 << node)
        result = libc.syscall(SYS_SET_MEMPOLICY, MPOL_BIND, ctypes.byref(mask), 64)
        return {"result": result}


def serve(commands: TextIO, answers: TextIO, memory: Memory) -> None:
    """Answer commands until there are no more."""
    for line in commands:
        name, *arguments = json.loads(line)
        answers.write(json.dumps(getattr(memory, name)(*arguments)) + "\n")
        answers.flush()
    memory.quiet()
    memory.unshare()


class Holder:
    """A child process that holds memory; a context manager that ends it.

    The child is forked, because starting an interpreter takes seconds in a guest.
    """

    def __init__(
        self,
        pages: int,
        kind: str = "small",
        *,
        node: int | None = None,
        memory: Callable[[], Memory] = Memory,
    ) -> None:
        command_end, self._commands_fd = os.pipe()
        self._answers_fd, answer_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._commands_fd)
            os.close(self._answers_fd)
            try:
                with os.fdopen(command_end) as commands, os.fdopen(answer_end, "w") as answers:
                    serve(commands, answers, memory())
            finally:
                os._exit(0)
        os.close(command_end)
        os.close(answer_end)
        self._commands = os.fdopen(self._commands_fd, "w")
        self._answers = os.fdopen(self._answers_fd)
        if node is not None:
            self.ask("bind", node)
        self.vpn: int = self.ask("allocate", pages, kind)["vpn"]
        self.pages = pages

    def ask(self, name: str, *arguments: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._commands.write(json.dumps([name, *arguments]) + "\n")
        self._commands.flush()
        answer: dict[str, Any] = json.loads(self._answers.readline())
        return answer

    def kill(self) -> None:
        """End it at once."""
        os.kill(self.pid, signal.SIGKILL)

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._commands.close()
        self._answers.close()
        os.waitpid(self.pid, 0)
