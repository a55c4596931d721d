# SPDX-License-Identifier: Apache-2.0
"""Programs on DRAM, HBM and CXL, in the guest: `guest_hbm.py SHARED_DIR`.

Takes requests from `request` in the shared folder, a JSON object each: command, free (node →
bytes, what ballast leaves), place (as of `put`, or null for where first touch puts them), weights
(the kernel's, of interleaving, by node, or null to leave them),
config (text of tierd's configuration, or null), period (of samples) and poll_s (between two looks
whether the program waits; it ends before if `enough` is there). Prints one JSON object a line:
`ready`, `end`, `done` with what there is to tell, or `failed` with why.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import subprocess
import sys
import termios
import time
import traceback
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench/tiering/guest"))

import ballast  # noqa: E402
import memory  # noqa: E402
import methods  # noqa: E402
import numpy as np  # noqa: E402

CXL = 2
NEAR = 512 << 10
DAEMON_BYTES = 128 << 20
"""More than the daemon takes as it starts."""
THP_DISABLE = 41  # PR_SET_THP_DISABLE
WEIGHTS = Path("/sys/kernel/mm/mempolicy/weighted_interleave")


def tell(event: str, **fields: Any) -> None:
    """Print one event."""
    print(json.dumps({"event": event, **fields}), flush=True)


def where(arrays: dict[str, list[int]]) -> dict[str, list[int]]:
    """Pages of each array by node."""
    found = {}
    for name, (address, size, pid) in arrays.items():
        nodes = memory.nodes_of(pid, _pages(address, size))
        found[name] = np.bincount(nodes[nodes >= 0], minlength=3).tolist()
    return found


def _pages(address: int, size: int) -> np.ndarray:
    count = size // memory.PAGE
    return np.arange(count, dtype=np.uint64) + np.uint64(address // memory.PAGE)


def put(arrays: dict[str, list[int]], place: dict[str, Any]) -> None:
    """Move arrays to nodes.

    Args:
        arrays: name → address, bytes and process.
        place: name → node, or a list of [node, share of the array]: the first pages go to the
            first node, the next ones to the next; a third element, true, scatters them.
    """
    for name, wanted in place.items():
        address, size, pid = arrays[name]
        pages = _pages(address, size)
        for node, share, *scattered in [[wanted, 1.0]] if isinstance(wanted, int) else wanted:
            count = min(len(pages), round(share * (size // memory.PAGE)))
            order = np.arange(len(pages))
            if scattered and scattered[0]:
                order = np.random.default_rng(address).permutation(len(pages))
            memory.move(pid, pages[order[:count]], node)
            pages = np.sort(pages[order[count:]])


def weights() -> list[str]:
    """The kernel's weights of interleaving, by node."""
    return [(WEIGHTS / f"node{node}").read_text().strip() for node in range(CXL + 1)]


@contextlib.contextmanager
def without_huge_pages() -> Iterator[None]:
    """No mapping of this process gets one meanwhile: they would take more than was asked for."""
    libc = ctypes.CDLL(None)
    libc.prctl(THP_DISABLE, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(THP_DISABLE, 0, 0, 0, 0)


@contextlib.contextmanager
def weighing(wanted: list[int] | None) -> Iterator[None]:
    """Weights of interleaving while it lasts; None for those there are."""
    before = weights()
    for node, weight in enumerate(wanted or []):
        (WEIGHTS / f"node{node}").write_text(str(weight))
    try:
        yield
    finally:
        for node, told in enumerate(before if wanted else []):
            (WEIGHTS / f"node{node}").write_text(told)


def _waits(work: subprocess.Popen[bytes]) -> bool:
    """Whether a process has read its input and waits for more (and not, say, for a page)."""
    assert work.stdin is not None
    unread = array("i", [0])
    fcntl.ioctl(work.stdin, termios.FIONREAD, unread)
    return unread[0] == 0 and "pipe_read" in Path(f"/proc/{work.pid}/wchan").read_text()


def run(shared: Path, request: dict[str, Any]) -> dict[str, Any]:
    """One request; its figures."""
    daemon, seen = None, [weights()]
    if request["config"]:
        methods.CGROUP.mkdir(exist_ok=True)
        # Where the last request left too little the daemon's own memory would go to the next node.
        for node in request["free"]:
            ballast.leave_about(DAEMON_BYTES, int(node))
        config = Path("/tmp/tierd-hbm.toml")
        config.write_text(request["config"])
        script = Path(__file__).with_name("guest_hbm_daemon.py")
        daemon = methods.start_marked([sys.executable, script, config, str(request["period"])])
    # After the daemon, whose own memory is on the first node, too.
    with without_huge_pages():
        for node, free in request["free"].items():
            # Whole huge pages first, and not too many of them: they are not given back in parts.
            ballast.leave_about(free + 2 * ballast.ROUGHLY, int(node))
            if int(node) != CXL:  # where the ballast's own memory is
                ballast.leave_exactly(free, int(node), home=CXL, near=NEAR)
    with (
        weighing(request["weights"]),
        subprocess.Popen(
            request["command"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=memory.default_policy,  # noqa: PLW1509
        ) as work,
    ):
        assert work.stdin is not None
        assert work.stdout is not None
        arrays = json.loads(work.stdout.readline())["arrays"]
        pid = json.loads(work.stdout.readline())["pid"]
        put(arrays, request["place"] or {})
        first = where(arrays)
        if daemon is not None:
            for each in {pid} | {pid for _, _, pid in arrays.values()}:
                (methods.CGROUP / "cgroup.procs").write_text(str(each))
        free = [ballast.free_bytes(node) for node in range(CXL + 1)]
        tell("ready", pid=pid, first=first)
        while not (shared / "go").exists():
            pass
        (shared / "go").unlink()
        work.stdin.write(b"\n")
        work.stdin.flush()
        told: dict[str, Any] = {}
        if daemon is not None:
            # As long as the host lets it run; the program waits for the end of it.
            while not ((shared / "enough").exists() or _waits(work)):
                time.sleep(request["poll_s"])
            seen.append(weights())
            told = json.loads(methods.stop_marked(daemon))
        work.stdin.write(b"\n")
        work.stdin.flush()
        sweeps = json.loads(work.stdout.readline())
        last = where(arrays)
        work.stdin.write(b"\n")
        work.stdin.flush()
        end = json.loads(work.stdout.readline())
    tell("end")
    seen.append(weights())
    log = methods.ERRORS.read_text()[-4000:] if daemon is not None else ""
    return {
        "sweeps": sweeps["seconds"],
        "others": sweeps.get("others"),
        "first": first,
        "free": free,
        "last": last,
        "end": end,
        "daemon": told,
        "log": log,
    } | {"weights": seen}


def main() -> int:
    """Requests until one fails."""
    shared = Path(sys.argv[1])
    tell("booted")
    with contextlib.ExitStack() as stack:
        tick = stack.enter_context(subprocess.Popen([methods.BUILT / "tlbtick", "4000"]))
        stack.callback(tick.kill)
        while True:
            file = shared / "request"
            while not file.exists():
                time.sleep(0.2)
            request = json.loads(file.read_text())
            file.unlink()
            try:
                figures = run(shared, request)
            except Exception as error:
                traceback.print_exc()
                tell("failed", why=f"{type(error).__name__}: {error}")
                return 1
            (shared / "figures").write_text(json.dumps(figures))
            tell("done")


if __name__ == "__main__":
    sys.exit(main())
