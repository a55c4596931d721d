# SPDX-License-Identifier: Apache-2.0
"""Helpers of the kernel-module checks that run as root inside a lab guest.

A check is a function that returns a dictionary with "ok"; `main` runs the named ones,
prints one JSON line each and exits with 0 only if all are ok.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tierd.sources.kmod.netlink import Control
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import RECORD, Kind

ROOT = Path(__file__).resolve().parents[2]
WORKLOADS = ROOT / "build/workloads"
TLB_PERIOD_US = 4000
"""See tests/workloads/tlbtick.c: accessed bits in the emulator need it."""

Result = dict[str, Any]
_SPLAT = re.compile(
    r"WARNING: |BUG: |BUG |kernel BUG|Oops|general protection fault|blocked for more than"
    r"|self-detected stall|rcu.*stall|Kernel panic|unregister_netdevice|Call Trace|corruption"
)


CARDS = ("tierd_neoprof", "tierd_neoprof_window")
"""What drives cards, and those that this lab simulates; in the order in which they are loaded."""


def module_file(*defined: str, name: str = "tierd") -> Path:
    """A module for the running kernel, without its debug information (it loads faster).

    `defined`: macros that it was built with.
    """
    folder = "-".join([os.uname().release, *defined])
    stripped = Path(f"/tmp/{folder}/{name}.ko")
    if not stripped.exists():
        stripped.parent.mkdir(exist_ok=True)
        built = ROOT / "build/kmod" / folder / f"{name}.ko"
        subprocess.run(["strip", "--strip-debug", "-o", str(stripped), str(built)], check=True)
    return stripped


def load(*defined: str, **parameters: object) -> None:
    """insmod with parameters; a module that a failed check left behind goes first."""
    if loaded():
        unload()
    insmod(module_file(*defined), parameters)


def load_cards(*, window: bool = True, window_v1: int = 0, **parameters: object) -> None:
    """insmod of the driver of cards, with parameters, and of that of simulated ones."""
    insmod(module_file(name=CARDS[0]), parameters)
    if window:
        insmod(module_file(name=CARDS[1]), {"v1": window_v1})


def insmod(file: Path, parameters: Mapping[str, object]) -> None:
    """Load a file."""
    words = [f"{name}={value}" for name, value in parameters.items()]
    subprocess.run(["insmod", str(file), *words], check=True)


def parameter(name: str) -> str:
    """A parameter of the module."""
    return Path(f"/sys/module/tierd/parameters/{name}").read_text().strip()


def unload() -> None:
    """rmmod, of the driver of cards first."""
    there = [name for name in reversed(CARDS) if Path("/sys/module", name).is_dir()]
    subprocess.run(["rmmod", *there, "tierd"], check=True)


def try_unload() -> bool:
    """rmmod, which is refused while somebody has the device open; true if it went."""
    return subprocess.run(["rmmod", "tierd"], capture_output=True, check=False).returncode == 0


def ask_to_close(closing: bool = True) -> None:
    """Ask the readers of the device to close it, or to stay."""
    Path("/sys/module/tierd/parameters/closing").write_text(str(int(closing)))


def loaded() -> bool:
    """Whether the module is there."""
    return Path("/sys/module/tierd").is_dir()


@contextlib.contextmanager
def module(*defined: str, **parameters: object) -> Iterator[None]:
    """The module for the length of a block."""
    load(*defined, **parameters)
    try:
        yield
    finally:
        if loaded():
            unload()


def scanner_pid() -> int:
    """Pid of the scanner's thread."""
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_text().strip() == "tierd-scan":
                return int(comm.parent.name)
    raise LookupError("no tierd-scan thread")


def cpu_ns(pid: int) -> int:
    """CPU time a thread has run."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def splats() -> list[str]:
    """Lines of the kernel's log that must not be there."""
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    return [line for line in log.splitlines() if _SPLAT.search(line)]


def memory() -> dict[str, int]:
    """Kernel memory that the module could leak, in bytes."""
    fields = dict(
        line.split(":") for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line
    )
    return {
        name: int(fields[name].split()[0]) * 1024
        for name in ("MemFree", "SUnreclaim", "VmallocUsed", "PageTables", "KernelStack")
    }


@contextlib.contextmanager
def tlbtick() -> Iterator[None]:
    """The helper that empties the emulator's TLB.

    All that runs beside it takes three times as long, so start it when there is something to scan.
    """
    with subprocess.Popen([str(WORKLOADS / "tlbtick"), str(TLB_PERIOD_US)]) as process:
        try:
            yield
        finally:
            process.kill()


class Hotset:
    """The workload, and what it knows of itself."""

    def __init__(self, *options: str, size: str = "1G") -> None:
        self.file = Path("/tmp/hotset-pages")
        self.file.unlink(missing_ok=True)
        command = [str(WORKLOADS / "hotset"), "--size", size, "--scattered", "--no-check"]
        command += ["--seconds", "100000", "--interval", "1", "--hot-file", str(self.file)]
        self.process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if json.loads(line)["event"] == "start":
                break
        self.pid = self.process.pid
        first, *rest = self.file.read_text().split("\n", 1)
        base, pages, _ = first.split()
        self.first_vpn, self.pages = int(base, 16) >> 12, int(pages)
        self.hot = np.array(rest[0].split(), np.uint64) + np.uint64(self.first_vpn)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Its memory, in page numbers."""
        return [(self.first_vpn, self.first_vpn + self.pages)]

    def __enter__(self) -> Hotset:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


class Rounds:
    """The records of one target, a scan at a time."""

    def __init__(self, ring: Ring, target: int) -> None:
        self._ring = ring
        self._target = target
        self._left = np.empty(0, RECORD)

    def next(self, timeout_s: float) -> tuple[int, np.ndarray]:
        """The next scan that has ended: its number and its page records."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            # The record at the end of a scan carries its number.
            ours = self._left["page"] >> 48 == self._target
            marks = np.flatnonzero((self._left["kind"] == Kind.ROUND) & ours)
            if len(marks):
                first = int(marks[0])
                found, self._left = self._left[:first], self._left[first:]
                number = int(self._left["value"][0])
                self._left = self._left[1:]
                return number, found[found["kind"] == Kind.PAGE]
            self._left = np.concatenate([self._left, drain(self._ring)])
            time.sleep(0.01)
        raise TimeoutError(f"no scan of target {self._target} ended in {timeout_s} s")

    def until(self, number: int, timeout_s: float) -> np.ndarray:
        """The page records of scan `number` or the first one after it."""
        while True:
            found, records = self.next(timeout_s)
            if found >= number:
                return records


def drain(ring: Ring) -> np.ndarray:
    """All unread records, copied; a view that stayed would keep the device mapped."""
    views = ring.views()
    copied = np.concatenate([np.empty(0, RECORD), *views])
    ring.consume(len(copied))
    return copied


@contextlib.contextmanager
def connection() -> Iterator[Control]:
    """A netlink connection for the length of a block."""
    control = Control.open()
    try:
        yield control
    finally:
        control.close()


@contextlib.contextmanager
def ring() -> Iterator[Ring]:
    """A mapped ring for the length of a block."""
    opened = Ring.open()
    try:
        yield opened
    finally:
        opened.close()


def main(checks: Mapping[str, Callable[[], Result]]) -> int:
    """Run the checks named on the command line, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checks", nargs="*", metavar="CHECK", choices=[[], *checks])
    names = parser.parse_args().checks or list(checks)
    ok = True
    for name in names:
        start = time.monotonic()
        try:
            result = checks[name]()
        except Exception as error:
            traceback.print_exc()
            result = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        found = splats()
        result["ok"] = bool(result["ok"]) and not found
        if found:
            result["dmesg"] = found[:5]
            subprocess.run(["dmesg", "--clear"], check=True)
        result["seconds"] = round(time.monotonic() - start, 2)
        print(json.dumps({"check": name, **result}), flush=True)
        ok = ok and result["ok"]
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit("the checks are in the guest_kmod_*.py beside this file")
