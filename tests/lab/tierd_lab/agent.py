# SPDX-License-Identifier: Apache-2.0
"""Runs in a lab guest: takes commands from the host and runs them."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

CHUNK = 32768


class Port:
    """A virtio port: one device, read and written at the same time."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR)
        self._lock = threading.Lock()

    def lines(self) -> Iterator[bytes]:
        """Lines from the host until it hangs up."""
        rest = b""
        while data := os.read(self._fd, CHUNK):
            *lines, rest = (rest + data).split(b"\n")
            yield from lines

    def write(self, data: bytes) -> None:
        """Write all of `data`, whole."""
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]


class Agent:
    """Reads requests from `port`, a line of JSON each, and answers in the same way."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def send(self, **message: Any) -> None:
        """Tell the host something."""
        self._port.write(json.dumps(message).encode() + b"\n")

    def serve(self) -> None:
        """Take requests until the host hangs up."""
        self.send(event="ready", pid=os.getpid())
        for line in self._port.lines():
            request = json.loads(line)
            if request["do"] == "end":
                return
            if request["do"] == "start":
                threading.Thread(target=self._start, args=(request,), daemon=True).start()
            elif request["do"] == "signal":
                self._signal(request["id"], request["number"])

    def _signal(self, job: int, number: int) -> None:
        child = self._children.get(job)
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)

    def _start(self, request: dict[str, Any]) -> None:
        job = request["id"]
        try:
            child = subprocess.Popen(
                request["argv"],
                cwd=request["cwd"],
                env={**os.environ, **request["env"]},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self.send(event="failed", id=job, message=str(error))
            return
        self._children[job] = child
        self.send(event="started", id=job, pid=child.pid)
        assert child.stdin and child.stdout and child.stderr
        readers = [
            threading.Thread(target=self._read, args=(job, name, pipe), daemon=True)
            for name, pipe in (("stdout", child.stdout), ("stderr", child.stderr))
        ]
        for reader in readers:
            reader.start()
        writer = threading.Thread(
            target=self._write, args=(child.stdin, request["stdin"]), daemon=True
        )
        writer.start()
        timed_out = False
        try:
            child.wait(request["timeout_s"])
        except subprocess.TimeoutExpired:
            timed_out = True
            self._signal(job, signal.SIGKILL)
            child.wait()
        # A grandchild may hold the pipes open; its output is not waited for.
        for reader in readers:
            reader.join(1.0)
        del self._children[job]
        self.send(event="ended", id=job, status=child.returncode, timed_out=timed_out)

    @staticmethod
    def _write(pipe: IO[bytes], text: str) -> None:
        with contextlib.suppress(OSError), pipe:
            pipe.write(base64.b64decode(text))

    def _read(self, job: int, name: str, pipe: IO[bytes]) -> None:
        with pipe:
            while data := os.read(pipe.fileno(), CHUNK):
                self.send(event=name, id=job, data=base64.b64encode(data).decode())


def main() -> None:
    """Serve the port named on the command line."""
    Agent(Port(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
