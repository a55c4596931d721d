# SPDX-License-Identifier: Apache-2.0
"""`Loading`: one BPF program on its way into the service, by a helper process.

The service does not wait for the compiler: `Loading.poll` says None until the program is
there. When one way fails, the next is tried; when none is left, `UnavailableError` tells
each way's reason.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from tierd.core import bounds
from tierd.core.errors import UnavailableError
from tierd.sources.ebpf import files

log = logging.getLogger(__name__)

WAYS: Final = ("bcc", "prebuilt")


@dataclass(frozen=True, slots=True)
class Program:
    """What is to be loaded.

    Attributes:
        name: of its file in `ebpf/`, without `.bpf.c`.
        functions: (name, kind) of each BPF function; kind is perf_event, kprobe or tracepoint.
        maps: entries by map name; 0 leaves what the source says.
        defines: the same sizes as the source's macros, for bcc.
    """

    name: str
    functions: tuple[tuple[str, str], ...]
    maps: dict[str, int] = field(default_factory=dict)
    defines: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Loaded:
    """Descriptors of a loaded program, and what loading cost.

    Attributes:
        maps, programs: descriptors by name; `close` closes them.
        way: "bcc" or "prebuilt".
        seconds: of the helper. peak_rss_kib: its largest resident memory.
    """

    maps: dict[str, int]
    programs: dict[str, int]
    way: str
    seconds: float
    peak_rss_kib: int

    def close(self) -> None:
        """Close every descriptor; what nothing else holds leaves the kernel."""
        for fd in (*self.maps.values(), *self.programs.values()):
            with contextlib.suppress(OSError):
                os.close(fd)
        self.maps, self.programs = {}, {}


def ways(program: str, wanted: Sequence[str] = WAYS) -> tuple[list[str], dict[str, str]]:
    """(ways that may work here, why the others cannot), without trying them."""
    usable, reasons = [], {}
    for way in wanted:
        if way == "bcc":
            if files.find_bcc_python() is None:
                reasons[way] = "no Python here has bcc (package python3-bpfcc)"
            elif files.find_source(program) is None:
                reasons[way] = f"the source {program}.bpf.c is not installed"
            elif files.find_headers() is None:
                reasons[way] = (
                    f"no kernel headers: /lib/modules/{os.uname().release}/build is missing "
                    "(package linux-headers), the kernel has no kheaders, /usr/src has none"
                )
            else:
                usable.append(way)
        elif files.find_object(program) is None:
            reasons[way] = f"no compiled object {program}.bpf.o (make -C ebpf)"
        else:
            usable.append(way)
    return usable, reasons


class Loading:
    """Runs helpers until one has loaded the program.

    Raises:
        UnavailableError: no way can work here.
    """

    def __init__(self, program: Program, wanted: Sequence[str] = WAYS) -> None:
        self._program = program
        self._left, self._reasons = ways(program.name, wanted)
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = io.BytesIO()
        self._channel: socket.socket | None = None
        self._open = contextlib.ExitStack()
        """What the present helper has open here."""
        self._deadline = 0.0
        self._way = ""
        self._next()

    def _next(self) -> None:
        if not self._left:
            told = "; ".join(f"{way}: {reason}" for way, reason in self._reasons.items())
            raise UnavailableError(
                f"the BPF program {self._program.name} cannot be loaded: {told}",
                hint="tierd doctor lists what this host can do and what to install",
            )
        self._way = self._left.pop(0)
        try:
            self._start()
        except OSError as error:
            self._clean()
            self._reasons[self._way] = f"cannot start the helper: {error.strerror}"
            self._next()

    def _request(self) -> dict[str, Any]:
        headers = files.find_headers() if self._way == "bcc" else None
        return {
            "loader": self._way,
            "owner": os.getpid(),
            "source": str(files.find_source(self._program.name)),
            "object": str(files.find_object(self._program.name)),
            "functions": self._program.functions,
            "maps": self._program.maps,
            "defines": self._program.defines,
            "environment": headers.environment if headers else {},
            "flags": headers.flags if headers else (),
        }

    def _start(self) -> None:
        request = self._request()
        ours, theirs = socket.socketpair()
        self._channel = self._open.enter_context(ours)
        request["socket"] = theirs.fileno()
        python = files.find_bcc_python() if self._way == "bcc" else None
        package = str(Path(__file__).resolve().parents[3])
        environment = {**os.environ, "PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1"}
        self._errors = self._open.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        with theirs:
            self._process = subprocess.Popen(
                [str(python or sys.executable), "-m", "tierd.sources.ebpf.helper"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=(theirs.fileno(),),
                env=environment,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._open.enter_context(self._process.stdout)
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stream:
            stream.write(json.dumps(request).encode())
        self._deadline = time.monotonic() + bounds.BPF_HELPER_TIMEOUT_S

    def poll(self) -> Loaded | None:
        """The loaded program, once; None while the helper works.

        Raises:
            UnavailableError: every way failed.
        """
        process = self._process
        if process is None:
            raise UnavailableError(f"the BPF program {self._program.name} was taken already")
        if process.poll() is None:
            if time.monotonic() > self._deadline:
                process.kill()
                process.wait()
                self._fail(f"the helper took more than {bounds.BPF_HELPER_TIMEOUT_S:.0f} s")
            return None
        assert process.stdout is not None
        try:
            answer = json.loads(process.stdout.read() or b"null")
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self._fail(f"the helper ended with status {process.returncode}: {self._said()}")
            return None
        if not answer["ok"]:
            words = answer["message"] + (f" ({answer['hint']})" if answer["hint"] else "")
            log.debug("event=helper_failed way=%s said=%r", self._way, self._said())
            self._fail(words)
            return None
        try:
            named = self._take()
        except (OSError, ValueError) as error:
            self._fail(f"what the helper loaded cannot be taken over: {error}")
            return None
        self._clean()
        maps = {n.removeprefix("map_"): fd for n, fd in named.items() if n.startswith("map_")}
        programs = {n.removeprefix("prog_"): fd for n, fd in named.items() if n.startswith("prog_")}
        return Loaded(maps, programs, self._way, answer["seconds"], answer["peak_rss_kib"])

    def wait(self, timeout_s: float | None = None) -> Loaded:
        """The loaded program, waiting for it (None: twice `bounds.BPF_HELPER_TIMEOUT_S`).

        Raises:
            UnavailableError: every way failed, or the time is over.
        """
        timeout_s = 2 * bounds.BPF_HELPER_TIMEOUT_S if timeout_s is None else timeout_s
        end = time.monotonic() + timeout_s
        while (loaded := self.poll()) is None:
            if time.monotonic() > end:
                self.close()
                raise UnavailableError(f"loading {self._program.name} took over {timeout_s:.0f} s")
            stream = self._process.stdout if self._process else None
            if stream is not None and self._process is not None and self._process.poll() is None:
                select.select([stream], [], [], 0.2)
        return loaded

    def _take(self) -> dict[str, int]:
        assert self._channel is not None
        self._channel.settimeout(5.0)
        data, fds, _, _ = socket.recv_fds(self._channel, 1 << 16, 64)
        names = json.loads(data)
        if len(names) != len(fds):
            for fd in fds:
                os.close(fd)
            raise ValueError(f"{len(fds)} descriptors for {len(names)} names")
        for fd in fds:
            os.set_inheritable(fd, False)
        return dict(zip(names, fds, strict=True))

    def _said(self) -> str:
        """The end of what the helper wrote to its standard error, in one line."""
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0)
            text = self._errors.read().decode(errors="replace")
            return " ".join(text.split())[-bounds.BPF_HELPER_ERROR_CHARACTERS :]
        return ""

    def _fail(self, reason: str) -> None:
        self._reasons[self._way] = reason
        log.info(
            'event=bpf_load_failed program=%s way=%s reason="%s"',
            self._program.name,
            self._way,
            reason,
        )
        self._clean()
        self._next()

    def _clean(self) -> None:
        self._open.close()
        self._process = None

    def close(self) -> None:
        """End a helper that still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._clean()
