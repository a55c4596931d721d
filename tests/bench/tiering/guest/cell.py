# SPDX-License-Identifier: Apache-2.0
"""A cell of the benchmark, inside its machine: one workload under one method.

The cell comes in the parcel (parcel.py), a JSON object: method, settings (TOML over those of tierd,
if any), internal (other tuning constants), trial (options of `tierd trial`), command, fast (bytes
of the workload on the fast node), pages (whether to tell the workload's frames), profile (whether
to tell what lies where in memory: symbols.py), phase_s (below).
Prints one JSON object a line: `ready` when the workload waits, `end` when it has ended, `done`
with the figures, or `failed` with why. Memory traffic is watched from `ready` to `end`. The
guest itself asks for that, at a moment of its own: nothing here waits for the host.

The pages that the workload touched first are on the fast node, as many as asked for, and FREE
bytes there are free. The workload starts at a fixed time after the method, in step with the
beat of a daemon that has been there before; `phase_s` says where in the beat.
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
import symbols
from parcel import Parcel
from touches import Touches

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "support"))

from card_window import Window, find_device

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
COUNTS = Path("/run/counts")
"""The requests of an earlier run, if the parcel has them."""


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


def run(parcel: Parcel, request: dict[str, Any]) -> dict[str, Any]:
    """The cell; its figures."""
    window = Window()
    COUNTS.write_bytes(parcel.get("counts"))
    given = methods.Given(
        COUNTS, request["settings"], request["internal"], request["lies"], request["trial"]
    )
    method = methods.METHODS[request["method"]](given)
    method.prepare()
    since = time.monotonic()
    if method.limited:
        ballast.leave_about(request["fast"] + SPARE)
    else:
        ballast.release()
    with (
        Touches() as touches,
        subprocess.Popen(
            [*method.wrapper, *request["command"], *method.arguments],
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
            parcel.put("pages", np.stack([vpns, pfns]).astype("<u8").tobytes())
        fast = float((memory.nodes_of(pid, vpns) == memory.FAST).mean())
        free = ballast.leave_exactly(FREE) if method.limited else ballast.free_bytes()
        before = memory.moves()
        tell("ready", pid=pid, free=free, fast_at_start=fast, arranged=ready.get("arranged"))
        window.lab("START")
        window.lab("CLEAR")
        waited = time.monotonic() - since
        sleep_until(since + (waited // BEAT_S + 1) * BEAT_S + request["phase_s"])
        begun = time.monotonic()
        method.begin(pid)
        sleep_until(begun + SETTLE_S)
        work.stdin.write(b"\n")
        work.stdin.flush()
        method.during(work)
        end = json.loads(work.stdout.readline())
    after = memory.moves()
    window.lab("DUMP")
    window.lab("STOP")
    if request.get("profile"):
        parcel.put("symbols", symbols.told(method.daemons()))
    tell("end", **{key: end[key] for key in ("ok", "answer", "operations", "max_rss")})
    figures = method.end()
    return {
        "method": figures,
        "waited_s": waited,
        "moves": {name: after[name] - before[name] for name in after},
        "status": work.returncode,
    }


def main() -> int:
    """0 if the cell has a figure."""
    parcel = Parcel(find_device())
    tell("booted")
    with tlbtick():
        try:
            figures = run(parcel, json.loads(parcel.get("request")))
        except Exception as error:
            traceback.print_exc()
            tell("failed", why=f"{type(error).__name__}: {error}")
            return 1
        tell("done", **figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
