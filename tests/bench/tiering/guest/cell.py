# SPDX-License-Identifier: Apache-2.0
"""The cells of the benchmark, inside the machine: each one workload under one method.

Owns: the order of things, from an empty machine to an empty machine.
Must not touch: the watching of memory traffic; the host does that between `ready` and `go`.

Takes cells from `request` in the shared folder, a JSON object each: method, command,
fast (bytes of the workload on the fast node), pages (whether to tell the workload's frames).
Prints one JSON object a line: `ready` when the workload waits, `end` when it has ended, `done`
with the figures, or `failed` with why, after which no cell is taken any more. `go` in the
folder lets the workload run, `over` has the method ended: traffic is watched in between.

What a cell begins with does not depend on what was there before, nor on how fast the host is:
the pages that the workload touched first are on the fast node, as many as asked for, and FREE
bytes there are free. The workload starts at a fixed time after the method, in step with the
beat of a daemon that has been there before.

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

import ballast
import memory
import methods
import numpy as np
from touches import Touches

TLB_PERIOD_US = 4000
"""See tests/workloads/tlbtick.c; beside every method, so that all are alike."""
FREE = 12 << 20
"""Of the fast node when the workload starts: more than the kernel keeps for itself, and a little
more than the 2 % that tierd keeps free, so that no method has to begin with making room."""
SPARE = 24 << 20
"""While the workload populates: what it touches first must find room."""
BEAT_S = 5.0
"""A multiple of the intervals of all daemons."""
SETTLE_S = 1.0
"""From the method's beginning to the workload's."""


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


def sleep_until(moment: float) -> None:
    """Sleep to a time of the monotonic clock: daemons go on, and the guest skips the rest."""
    while (left := moment - time.monotonic()) > 0:
        time.sleep(left)


def arrange(pid: int, touched: memory.Pages, fast: int) -> dict[str, int]:
    """Put the pages touched first on the fast node, `fast` bytes of them; what was moved."""
    vpns, _ = memory.page_table(pid)
    vpns = vpns[memory.nodes_of(pid, vpns) >= 0]  # not the page of zeros
    vpns.sort()
    rank = np.full(len(vpns), len(touched))
    at = np.searchsorted(vpns, touched)
    at[at == len(vpns)] = 0
    known = vpns[at] == touched
    rank[at[known]] = np.flatnonzero(known)
    first = np.argsort(rank, kind="stable")[: fast // memory.PAGE]
    wanted = np.zeros(len(vpns), bool)
    wanted[first] = True
    moved = memory.place(pid, vpns, wanted)
    return {**moved, "untold": len(vpns) - int(known.sum()), "pages": len(vpns)}


def populated(
    request: dict[str, Any], method: methods.Method, work: subprocess.Popen[bytes], touches: Touches
) -> dict[str, Any]:
    """Wait for the workload's memory, and put it where the cell has it; what came of it.

    Meanwhile the fast node is short of memory. Where kswapd then finds nothing that it can free
    sixteen times, it gives the node up, and no method that comes after can have it demote; so
    it may demote here, too.
    """
    assert work.stdout is not None
    methods.DEMOTION.write_text("1")
    ready: dict[str, Any] = json.loads(work.stdout.readline())
    pid = ready["pid"]
    if method.limited:
        ready["arranged"] = arrange(pid, touches.order(pid), request["fast"])
        # Other processes of a workload took some: whoever exchanges pages needs a little room.
        ballast.leave_about(SPARE)
    methods.DEMOTION.write_text("0")
    return ready


def run(shared: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The cell; its figures."""
    method = methods.METHODS[request["method"]](shared)
    method.prepare()
    since = time.monotonic()
    if method.limited:
        ballast.leave_about(request["fast"] + SPARE)
    else:
        ballast.release()
    with (
        Touches() as touches,
        subprocess.Popen(
            [*method.wrapper, *request["command"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=memory.default_policy,  # noqa: PLW1509
        ) as work,
    ):
        assert work.stdin is not None
        assert work.stdout is not None
        ready = populated(request, method, work, touches)
        pid = ready["pid"]
        method.settle(pid)
        vpns, pfns = memory.page_table(pid)
        if request["pages"]:
            np.savez(shared / "pages.npz", vpn=vpns, pfn=pfns)
        fast = float((memory.nodes_of(pid, vpns) == memory.FAST).mean())
        free = ballast.leave_exactly(FREE) if method.limited else ballast.free_bytes()
        before = memory.moves()
        tell("ready", pid=pid, free=free, fast_at_start=fast, arranged=ready.get("arranged"))
        wait_for(shared / "go")
        waited = time.monotonic() - since
        sleep_until(since + (waited // BEAT_S + 1) * BEAT_S)
        begun = time.monotonic()
        method.begin(pid)
        sleep_until(begun + SETTLE_S)
        work.stdin.write(b"\n")
        work.stdin.flush()
        end = json.loads(work.stdout.readline())
    after = memory.moves()
    tell("end", **{key: end[key] for key in ("ok", "answer", "operations", "max_rss")})
    wait_for(shared / "over")
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
