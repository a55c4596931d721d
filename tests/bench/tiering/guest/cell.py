# SPDX-License-Identifier: Apache-2.0
"""The cells of the benchmark, inside the machine: each one workload under one method.

Owns: the order of things, from an empty machine to an empty machine.
Must not touch: the watching of memory traffic; the host does that between `ready` and `go`.

Takes cells from `request` in the shared folder, a JSON object each: method, command,
free (bytes of the fast node), pages (whether to tell the workload's frames). Prints one JSON
object a line: `ready` when the workload waits and the method runs, `end` when the workload has
ended, `done` with the figures, or `failed` with why, after which no cell is taken any more.

usage: cell.py SHARED_DIR
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import memory
import methods
import numpy as np

TLB_PERIOD_US = 4000
"""See tests/workloads/tlbtick.c; beside every method, so that all are alike."""


def tell(event: str, **fields: Any) -> None:
    """Print one event."""
    print(json.dumps({"event": event, **fields}), flush=True)


@contextlib.contextmanager
def tlbtick() -> Iterator[None]:
    """The emulator's TLB forgets, as hardware's does."""
    with subprocess.Popen([methods.BUILT / "tlbtick", str(TLB_PERIOD_US)]) as process:
        try:
            yield
        finally:
            process.kill()


def wait_for(file: Path) -> None:
    """Wait without sleeping: an idle machine with counted instructions skips its sleeps, and
    hours would pass for the methods while the host thinks."""
    while not file.exists():
        pass
    file.unlink()


def next_request(shared: Path) -> dict[str, Any]:
    """The next cell. Nothing runs meanwhile, so that hours that are skipped do no harm."""
    file = shared / "request"
    while not file.exists():
        time.sleep(0.2)
    request: dict[str, Any] = json.loads(file.read_text())
    file.unlink()
    return request


def run(shared: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The cell; its figures."""
    method = methods.METHODS[request["method"]](shared)
    method.prepare()
    free = memory.leave_free(request["free"] if method.limited else None)
    with subprocess.Popen(
        [*method.wrapper, *request["command"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=memory.default_policy,  # noqa: PLW1509
    ) as work:
        assert work.stdin is not None
        assert work.stdout is not None
        ready = json.loads(work.stdout.readline())
        pid = ready["pid"]
        vpns, pfns = memory.page_table(pid)
        fast = float((memory.nodes_of(pid, vpns) == memory.FAST).mean())
        before = memory.moves()
        method.begin(pid)
        if request["pages"]:
            np.savez(shared / "pages.npz", vpn=vpns, pfn=pfns)
        begun = time.monotonic()
        tell("ready", pid=pid, bytes=ready["bytes"], free=free, fast_at_start=fast)
        wait_for(shared / "go")
        waited = time.monotonic() - begun
        work.stdin.write(b"\n")
        work.stdin.flush()
        end = json.loads(work.stdout.readline())
    after = memory.moves()
    tell("end", **{key: end[key] for key in ("ok", "answer", "operations", "max_rss")})
    figures = method.end()
    return {
        "method": figures,
        "waited_s": waited,
        "moves": {name: after[name] - before[name] for name in after},
        "status": work.returncode,
    }


def main() -> int:
    """Cells until one fails."""
    shared = Path(sys.argv[1])
    tell("booted")
    with tlbtick():
        while True:
            request = next_request(shared)
            try:
                figures = run(shared, request)
            except Exception as error:
                traceback.print_exc()
                tell("failed", why=f"{type(error).__name__}: {error}")
                return 1
            tell("done", **figures)


if __name__ == "__main__":
    sys.exit(main())
