# SPDX-License-Identifier: Apache-2.0
"""What the driver does with managed memory: the rules and costs that the tier is built on.

Every function is one line of the report. `holds` in it says whether the rule that tierd
relies on was seen; lines without it are measurements.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from driver import (
    CHUNK,
    DEVICE,
    HOST,
    NO_PREFERRED,
    PREFERRED,
    Cuda,
    DriverError,
    median_us,
    seconds,
)

MIB = 1 << 20
Line = dict[str, Any]


def machine(cuda: Cuda) -> Line:
    """What is here, and whether managed memory can be moved under running kernels."""
    version = ctypes.c_int()
    cuda("cuDriverGetVersion", ctypes.byref(version))
    folder = Path("/sys/module/nvidia_uvm/parameters")
    names = ("uvm_global_oversubscription", "uvm_perf_pma_batch_nonpinned_order",
             "uvm_perf_prefetch_threshold", "uvm_perf_fault_batch_count")  # fmt: skip
    found = {name: folder / name for name in names}
    return {
        "gpu": cuda.name(),
        "cuda": version.value,
        "free_mib": cuda.free() // MIB,
        "uvm": {name: at.read_text().strip() for name, at in found.items() if at.exists()},
        "holds": cuda.attribute(89) == 1,  # CONCURRENT_MANAGED_ACCESS
    }


def batch(cuda: Cuda) -> Line:
    """How much memory the driver takes for one chunk."""
    addr = cuda.managed(CHUNK)
    before = cuda.free()
    cuda.fill(addr, CHUNK, 1)
    taken = before - cuda.free()
    cuda.drop(addr)
    return {"taken_mib": taken // MIB, "holds": 0 < taken <= 128 * MIB}


def retained(cuda: Cuda, size: int) -> Line:
    """Memory stays with a GPU when its chunks leave, and comes back when they are freed."""
    before = cuda.free()
    addr = cuda.managed(size)
    cuda.fill(addr, size, 1)
    there = cuda.free()
    cuda.go(addr, size, HOST)
    cuda.sync()
    left = cuda.free()
    cuda.drop(addr)
    freed = cuda.free()
    return {
        "size_mib": size // MIB, "before_mib": before // MIB, "on_gpu_mib": there // MIB,
        "on_host_mib": left // MIB, "freed_mib": freed // MIB,
        "holds": left == there and freed == before,
    }  # fmt: skip


def aligned(cuda: Cuda) -> Line:
    """Managed memory of a chunk or more begins at a chunk."""
    at = [cuda.managed(size * MIB) for size in (2, 4, 20, 33, 100)]
    for addr in at:
        cuda.drop(addr)
    return {"holds": not any(addr % CHUNK for addr in at)}


def calls(cuda: Cuda) -> Line:
    """Microseconds of the calls that are made for every move."""
    addr, event, stream = cuda.managed(64 * CHUNK), ctypes.c_void_p(), cuda.stream()
    cuda.fill(addr, 64 * CHUNK, 1)
    cuda("cuEventCreate", ctypes.byref(event), 2)
    cuda("cuEventRecord", event, stream)
    line: Line = {
        "mem_info_us": median_us(cuda.free, 200),
        "event_query_us": median_us(lambda: cuda("cuEventQuery", event), 200),
        "event_record_us": median_us(lambda: cuda("cuEventRecord", event, stream), 200),
        "two_advices_us": median_us(
            lambda: (
                cuda.advise(addr, CHUNK, PREFERRED),
                cuda.advise(addr, CHUNK, NO_PREFERRED),
            ),
            50,
        ),
        "prefetch_of_what_is_there_us": median_us(lambda: cuda.go(addr, CHUNK, DEVICE, stream), 64),
    }
    cuda.drop(addr)
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        line["nvml_memory_us"] = median_us(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle), 200)
    except Exception as error:
        line["nvml_memory_us"] = str(error)
    return line


def rates(cuda: Cuda, size: int) -> Line:
    """Bytes a second each way, by how much is asked for at once, and whether the call waits."""
    addr = cuda.managed(size)
    cuda.fill(addr, size, 7)
    first = seconds(lambda: (cuda.go(addr, size, HOST), cuda.sync()))
    line: Line = {"to_host_first_time_gb_s": round(size / first / 1e9, 1)}
    for name, to, back in (("to_host", HOST, DEVICE), ("to_gpu", DEVICE, HOST)):
        for step in (CHUNK, 16 * CHUNK, size):
            cuda.go(addr, size, back)
            cuda.sync()
            stream = cuda.stream()
            parts = range(addr, addr + size, step)
            issue = seconds(lambda: [cuda.go(at, step, to, stream) for at in parts])  # noqa: B023
            rest = seconds(lambda: cuda.sync(stream))  # noqa: B023
            line[f"{name}_by_{step // MIB}_mib"] = {
                "gb_s": round(size / (issue + rest) / 1e9, 1),
                "in_the_call": round(issue / (issue + rest), 2),
            }
    line["holds"] = not cuda.wrong(addr, size, 7)
    cuda.drop(addr)
    return line


def beside(cuda: Cuda) -> Line:
    """How long other calls wait while a thread prefetches to the host."""
    size, line = 256 * MIB, {}
    addr, other = cuda.managed(size), cuda.managed(CHUNK)
    cuda.fill(addr, size, 1)
    cuda.fill(other, CHUNK, 1)

    def move() -> None:
        cuda.enter()
        started.set()
        cuda.go(addr, size, HOST)

    acts = {
        "mem_info_ms": cuda.free,
        "advise_ms": lambda: cuda.advise(other, CHUNK, PREFERRED),
        "alloc_ms": lambda: cuda.drop(cuda.managed(CHUNK)),
    }
    for name, act in acts.items():
        cuda.go(addr, size, DEVICE)
        cuda.sync()
        started, thread = threading.Event(), threading.Thread(target=move)
        thread.start()
        started.wait()
        line[name] = round(seconds(act) * 1e3, 2)
        thread.join()
    cuda.drop(addr)
    cuda.drop(other)
    return line


def shared(cuda: Cuda) -> Line:
    """Managed memory cannot be shared with another process by its handle."""
    handle, found = ctypes.create_string_buffer(64), []
    if not cuda.has("cuIpcGetMemHandle"):
        return {"absent": "cuIpcGetMemHandle"}
    for addr in (cuda.plain(4 * CHUNK), cuda.managed(4 * CHUNK)):
        found.append(cuda.library.cuIpcGetMemHandle(handle, ctypes.c_uint64(addr)))
        cuda.drop(addr)
    return {"plain": found[0], "managed": found[1], "holds": found[0] == 0 and found[1] != 0}


CHILD = """
import sys; sys.path.insert(0, {folder!r})
from driver import CHUNK, DEVICE, Cuda, seconds
cuda = Cuda({path!r})
"""


class Child:
    """Another process with a context of its own, which runs `code` and prints."""

    def __init__(self, path: str, code: str) -> None:
        whole = CHILD.format(folder=str(Path(__file__).parent), path=path) + code
        self.process = subprocess.Popen(
            [sys.executable, "-c", whole],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> str:
        """All that it prints.

        Raises:
            DriverError: it failed; the text is the end of what it said.
        """
        out, said = self.process.communicate("", timeout=60)
        if self.process.returncode:
            raise DriverError(said.strip().splitlines()[-1])
        return out.strip()


def context(cuda: Cuda, path: str) -> Line:
    """What a borrower's context costs a lender."""
    before = cuda.free()
    child = Child(path, "print(1, flush=True); sys.stdin.read()")
    child.line()
    taken = before - cuda.free()
    child.end()
    return {"mib": taken // MIB}


def cleared(cuda: Cuda, path: str) -> Line:
    """Memory of a process that ended comes cleared. A ballast leaves room for little else."""
    size = 256 * MIB
    room = cuda.free() - (3 << 30)
    ballast = cuda.plain(room) if room > 0 else 0
    Child(path, f"at = cuda.managed({size}); cuda.fill(at, {size}, 165)").end()
    found = Child(
        path,
        f"a = cuda.plain({size}); b = cuda.managed({size}); cuda.go(b, {size}, DEVICE)\n"
        f"cuda.sync(); print(cuda.wrong(a, {size}, 0) + cuda.wrong(b, {size}, 0))",
    ).end()
    if ballast:
        cuda.drop(ballast)
    return {"chunks_not_zero": int(found), "holds": found == "0"}


def _taken_by_another(cuda: Cuda, path: str, addr: int, size: int, value: int) -> Line:
    """Another process takes half of `size` more than is free; no byte at `addr` is wrong then."""
    took = Child(
        path,
        f"size = cuda.free() + {size // 2}\n"
        "print(size >> 20, round(seconds(lambda: cuda.plain(size)), 4))",
    ).end()
    line = {"took_mib_and_s": took, "holds": not cuda.wrong(addr, size, value)}
    cuda.drop(addr)
    return line


def room(cuda: Cuda, path: str, size: int) -> Line:
    """What chunks left behind serves another process's allocation."""
    addr = cuda.managed(size)
    cuda.fill(addr, size, 5)
    cuda.go(addr, size, HOST)
    cuda.sync()
    return _taken_by_another(cuda, path, addr, size, 5)


def reclaim(cuda: Cuda, path: str, size: int) -> Line:
    """An allocation of another process evicts managed memory: a lender is never refused."""
    addr = cuda.managed(size)
    cuda.fill(addr, size, 3)
    return _taken_by_another(cuda, path, addr, size, 3)
