# SPDX-License-Identifier: Apache-2.0
"""Pages that fail under the mover and under the service; run as root inside a lab guest.

usage: guest_memory_errors.py --tlbtick PATH --tierd PATH

Prints one JSON object: what became of moves by hand (`mover`), and beside the service (`service`).
Poison is what madvise(2) makes of a page (MADV_HWPOISON, MADV_SOFT_OFFLINE): the kernel then does
all that it does where memory fails, and nobody reads the page.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from guest_holder import PAGE, SYS_SET_MEMPOLICY, Holder, Memory, libc
from guest_mishaps import EMULATED
from moverkit import TARGET, Machine, fates, keys, plan

from tierd.control.protocol import Client
from tierd.core.linux import PAGEMAP_FRAME
from tierd.workloads.residency import ResidencyScanner

NEAR, FAR = 0, 1
PAGES, HOT = 16384, 4096
POISONED, REPLACED = 1000, 3000
"""Among the hot pages: one that fails, and one that the kernel replaces in time."""
MADV_HWPOISON, MADV_SOFT_OFFLINE = 100, 101
SOCKET = Path("/run/tierd/control.sock")
DEADLINE_S, ANSWER_S = 300, 120.0
CONFIG = """
[targets]
match = {{ pid = {pid} }}
refresh_interval = "500ms"
[sources]
order = ["damon"]
[control]
timeout = "60s"
[tier_health]
enabled = true
interval = "1s"
cpu_limit = "10%"
"""


class Failing(Memory):
    """Memory of which pages can be made to fail; those are not touched afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: list[int] = []
        # The kernel sends one to whom it takes a page from (Linux 6.11 and later).
        signal.signal(signal.SIGBUS, lambda *_: None)

    def unbind(self) -> dict[str, Any]:
        """Take memory from any node, and let it be moved."""
        return {"result": libc.syscall(SYS_SET_MEMPOLICY, 0, None, 0)}

    def address(self, page: int) -> dict[str, Any]:
        """The physical address of a page."""
        with Path("/proc/self/pagemap").open("rb") as file:
            file.seek(self.words[page].ctypes.data // PAGE * 8)
            (entry,) = struct.unpack("<Q", file.read(8))
        return {"address": f"{(entry & PAGEMAP_FRAME) * PAGE:#x}"}

    def leave(self, page: int) -> dict[str, Any]:
        """Touch a page no more."""
        self.failed.append(page)
        return {}

    def fail(self, page: int, advice: int) -> dict[str, Any]:
        """Make a page fail; the address that it had, and the errno."""
        found = self.address(page)
        address = ctypes.c_void_p(self.words[page].ctypes.data)
        result = libc.madvise(address, ctypes.c_size_t(PAGE), advice)
        if advice == MADV_HWPOISON:
            self.leave(page)
        return {**found, "error": ctypes.get_errno() if result else 0}

    def use(self, hot: int) -> dict[str, Any]:
        """Begin to read the first pages again and again, but for those that fail."""
        ends = [-1, *sorted(self.failed), hot]
        parts = [slice(low + 1, high) for low, high in itertools.pairwise(ends)]
        self.writing.set()

        def read() -> None:
            while self.writing.is_set():
                for part in parts:
                    self.words[part, ::64].sum()

        self.writer = threading.Thread(target=read)
        self.writer.start()
        return {}

    def verify(self) -> dict[str, Any]:
        """How many pages, of those that did not fail, are not what they were."""
        wrong = looked_at = 0
        for page in range(len(self.words)):
            if page not in self.failed:
                want = self._pattern(page, page + 1)[0]
                wrong += bool((self.words[page] != want).any())
                looked_at += 1
        return {"wrong": wrong, "pages": looked_at}


def nodes(holder: Holder) -> np.ndarray:
    """The kernel's word on each page: its node, or a negative errno."""
    page = keys(holder.vpn, holder.pages) & np.uint64((1 << 48) - 1)
    found, _ = ResidencyScanner().query(holder.pid, page)
    return found


def by_hand() -> dict[str, Any]:
    """What the mover makes of a page that failed and of one that was replaced."""
    with Holder(512, node=FAR, memory=Failing) as holder:
        holder.ask("unbind")
        failed = [holder.ask("fail", 5, MADV_HWPOISON), holder.ask("fail", 9, MADV_SOFT_OFFLINE)]
        mover = Machine.mover()
        moves = plan(keys(holder.vpn, 512), NEAR, source=FAR)
        first = mover.execute(moves, {TARGET: holder.pid})
        again = mover.execute(moves, {TARGET: holder.pid})
        return {
            "failed": failed,
            "fates": [fates(first), fates(again)],
            "errors": [first.errors, again.errors],
            "retries": first.retries + again.retries,
            "fate_of_failed": int(first.fate[5]),
            "kernel_says": int(nodes(holder)[5]),
            "verified": holder.ask("verify"),
        }


def ask(request: str, **fields: Any) -> Any:
    """The service's answer."""
    with Client(SOCKET, ANSWER_S) as client:
        return client.ask(request, **fields)


def wait(service: subprocess.Popen[str], what: Any) -> bool:
    """Whether it becomes true while the service lives."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end and service.poll() is None:
        if what():
            return True
        time.sleep(0.5)
    return False


def reported() -> set[str]:
    """Kinds of errors that the service tells of."""
    return {each["kind"] for each in ask("status")["memory_errors"]["errors"]}


def beside_the_service(args: argparse.Namespace) -> dict[str, Any]:
    """The same while the service moves the hot pages around them."""
    folder = Path(tempfile.mkdtemp())
    with Holder(PAGES, node=FAR, memory=Failing) as holder:
        holder.ask("unbind")
        config = folder / "tierd.toml"
        config.write_text(CONFIG.format(pid=holder.pid) + EMULATED)
        log = (folder / "log").open("w+")
        command = [args.tierd, "run", "--config", str(config), "--json"]
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: print(Path(log.name).read_text()[-6000:], file=sys.stderr))
            service = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            )
            stack.callback(service.kill)
            found: dict[str, Any] = {"started": wait(service, SOCKET.exists)}
            # Nothing moves while the pages are made to fail: each is where it was looked up.
            ask("pause", reason="a page is about to fail")
            wait(service, lambda: ask("status")["memory_errors"]["events"])
            found["failed"] = [
                holder.ask("fail", POISONED, MADV_HWPOISON),
                holder.ask("fail", REPLACED, MADV_SOFT_OFFLINE),
            ]
            found["reported"] = wait(service, lambda: len(reported()) >= 2)
            before = nodes(holder)[:HOT]
            found["near_before"] = int(np.count_nonzero(before == NEAR))
            holder.ask("use", HOT)
            ticks = subprocess.Popen([args.tlbtick, "4000"])
            ask("resume")
            found["moved"] = wait(
                service, lambda: np.count_nonzero(nodes(holder)[:HOT] == NEAR) >= 0.95 * HOT
            )
            ticks.kill()
            ticks.wait()
            found["memory_errors"] = ask("status")["memory_errors"]
            found["lives"] = service.poll() is None
            holder.ask("quiet")
            service.terminate()
            told = service.stdout.read() if service.stdout else ""
            found["status"] = service.wait()
            found["totals"] = json.loads(told.splitlines()[-1])
        now = nodes(holder)
        found["near_after"] = int(np.count_nonzero(now[:HOT] == NEAR))
        found["poisoned"], found["replaced"] = int(now[POISONED]), int(now[REPLACED])
        found["verified"] = holder.ask("verify")
    log.seek(0)
    lines = log.read().splitlines()
    found["log"] = [line for line in lines if "event=memory_error" in line]
    found["alarming"] = [line for line in lines if "Traceback" in line or "_failed" in line]
    found["instance_left"] = Path("/sys/kernel/tracing/instances/tierd-errors").exists()
    return found


def main() -> int:
    """Print what was found."""
    parser = argparse.ArgumentParser()
    for name in ("tlbtick", "tierd"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    mover = by_hand()
    print(json.dumps(mover), file=sys.stderr)
    print(json.dumps({"mover": mover, "service": beside_the_service(args)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
