# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of a service on a host that is made up: `Meter`, `KERNEL`, `rss_bytes`."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tierd._native import lib


@dataclass(frozen=True)
class Kernel:
    """Nanoseconds of CPU time that a kernel uses for an answer about a page or folio.

    Measured on Linux 6.18 in a virtual machine, on a process of a GiB. `scan_ns` is what the
    module's scanner uses for an entry of a page table (docs/operate/scale.md).
    """

    query_ns: int = 190
    query_huge_ns: int = 700
    pagemap_ns: int = 10
    move_ns: int = 1500
    scan_ns: int = 20


KERNEL = Kernel()


class Meter:
    """CPU time of the service's threads, without that of stand-ins and with that of the kernel."""

    def __init__(self) -> None:
        self._own = threading.local()
        self.left_out_ns = self.kernel_ns = 0

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """What is done inside is no part of the service."""
        begun = lib.tierd_thread_cpu_ns()
        try:
            yield
        finally:
            spent = lib.tierd_thread_cpu_ns() - begun
            self.left_out_ns += spent
            self._own.ns = getattr(self._own, "ns", 0) - spent

    def kernel(self, spent_ns: int) -> None:
        """The kernel would have used so much for this thread."""
        self.kernel_ns += spent_ns
        self._own.ns = getattr(self._own, "ns", 0) + spent_ns

    def thread_ns(self) -> int:
        """As `tierd_thread_cpu_ns`."""
        return int(lib.tierd_thread_cpu_ns()) + int(getattr(self._own, "ns", 0))

    def process_ns(self) -> int:
        """Of all threads, without the kernel's part that is counted by `kernel`."""
        return time.process_time_ns() - self.left_out_ns


def rss_bytes() -> tuple[int, int]:
    """Resident memory of this process, and the most since `forget_peak`."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            found[name] = int(rest.split()[0]) << 10
    return found["VmRSS"], found["VmHWM"]


def forget_peak() -> None:
    """The peak of `rss_bytes` begins anew (proc_pid_clear_refs(5))."""
    descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY)
    os.write(descriptor, b"5")
    os.close(descriptor)
