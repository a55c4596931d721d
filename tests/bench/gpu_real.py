# SPDX-License-Identifier: Apache-2.0
"""What tierd relies on, checked and measured on the GPU of this machine.

    python tests/bench/gpu_real.py [--driver libcuda.so.1] [--mib 1024] [--out FILE]

On one GPU: the client library's moves to the host and back with every byte compared,
write-back and drop, the driver's own reclaim when another process allocates, whether
memory comes cleared from another process, and the shim's cost on a PyTorch step. Says so
and exits with 5 where there is no GPU. On the stand-in driver it says "simulated".
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "daemon"), str(TOP / "tests/fakegpu")]

import numpy as np  # noqa: E402

UNAVAILABLE = 5
CHUNK = 2 << 20
HOLDER = """
import sys; sys.path[:0] = {path!r}
import gpu_real
cu = gpu_real.Cuda({driver!r})
addr, took = cu.take(int(sys.argv[1]))
if sys.argv[2] == "fill":
    cu.fill(addr, int(sys.argv[1]))
    print(took, flush=True)
elif sys.argv[2] == "look":
    print(cu.nonzero(addr, int(sys.argv[1])), flush=True)
else:
    print(took, flush=True)
    sys.stdin.readline()
"""
STEP = """
import time, torch
net = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
data = torch.randn(512, 2048, device="cuda")
def step():
    optimizer.zero_grad(); net(data).square().mean().backward(); optimizer.step()
for _ in range(20): step()
torch.cuda.synchronize(); start = time.perf_counter()
for _ in range(200): step()
torch.cuda.synchronize(); print((time.perf_counter() - start) / 200)
"""


class Cuda:
    """The driver, bound at run time; raises SystemExit(5) where there is none."""

    def __init__(self, driver: str) -> None:
        import standin

        standin.build()
        import cffi

        self.ffi = cffi.FFI()
        self.ffi.cdef(standin._CUDA)
        self.ffi.cdef("CUresult cuDeviceGetName(char *, int, int);")
        self.ffi.cdef(standin._declarations(TOP / "daemon/native/gpu/tierd_gpu.h"))
        self.driver = driver
        try:
            self.cu = self.ffi.dlopen(driver)
        except OSError:
            print(f"no GPU here: {driver} cannot be opened; nothing was measured")
            raise SystemExit(UNAVAILABLE) from None
        context = self.ffi.new("void **")
        if self.cu.cuInit(0) or self.cu.cuDevicePrimaryCtxRetain(context, 0):
            print("no GPU here: the driver does not start; nothing was measured")
            raise SystemExit(UNAVAILABLE)
        self.call(self.cu.cuCtxPushCurrent_v2(context[0]))
        name = self.ffi.new("char[]", 128)
        self.call(self.cu.cuDeviceGetName(name, 128, 0))
        self.name = self.ffi.string(name).decode()
        self.tg = self.ffi.dlopen(str(standin.CLIENT))

    def call(self, result: int) -> None:
        """Raise unless a call of the driver succeeded."""
        if result:
            raise RuntimeError(f"CUDA error {result}")

    def take(self, size: int) -> tuple[int, float]:
        """The driver's own memory, and how long it took."""
        out = self.ffi.new("CUdeviceptr *")
        start = time.perf_counter()
        self.call(self.cu.cuMemAlloc_v2(out, size))
        return int(out[0]), time.perf_counter() - start

    def fill(self, addr: int, size: int) -> None:
        """A pattern that is not zero."""
        self.call(self.cu.cuMemsetD8Async(addr, 0xA5, size, self.ffi.NULL))
        self.call(self.cu.cuCtxSynchronize())

    def nonzero(self, addr: int, size: int) -> int:
        """Bytes that are not zero."""
        found = 0
        for at in range(0, size, CHUNK):
            found += int(np.count_nonzero(self.read(addr + at, min(CHUNK, size - at))))
        return found

    def read(self, addr: int, size: int) -> Any:
        """Bytes at an address, uint8[size]."""
        data = np.zeros(size, np.uint8)
        self.call(
            self.cu.cuMemcpyDtoHAsync_v2(
                self.ffi.cast("void *", data.ctypes.data), addr, size, self.ffi.NULL
            )
        )
        self.call(self.cu.cuCtxSynchronize())
        return data

    def write(self, addr: int, data: Any) -> None:
        """Bytes to an address."""
        self.call(
            self.cu.cuMemcpyHtoDAsync_v2(
                addr, self.ffi.cast("void *", data.ctypes.data), len(data), self.ffi.NULL
            )
        )
        self.call(self.cu.cuCtxSynchronize())

    def free_bytes(self) -> int:
        """Free memory of the GPU."""
        free, total = self.ffi.new("size_t *"), self.ffi.new("size_t *")
        self.call(self.cu.cuMemGetInfo_v2(free, total))
        return int(free[0])


def pattern(chunk: int, size: int) -> Any:
    """The bytes of a chunk."""
    return np.random.default_rng(chunk).integers(0, 256, size, np.uint8)


class Moves:
    """The client library with a range, told what to do without a daemon."""

    def __init__(self, cuda: Cuda, chunks: int) -> None:
        self.cuda, self.chunks = cuda, chunks
        ffi = cuda.ffi
        self._driver = ffi.new("char[]", os.fsencode(cuda.driver))
        options = ffi.new("struct tg_options *")
        options.driver, options.role, options.max_chunks = self._driver, 1, chunks
        options.inflight = 4
        client = ffi.new("struct tg_client **")
        status = cuda.tg.tg_open(options, client)
        if status:
            raise OSError(-status, "the client library does not open")
        self.client = client[0]
        out = ffi.new("uint64_t *")
        if cuda.tg.tg_alloc(self.client, chunks * CHUNK, out):
            raise MemoryError(chunks)
        self.base = int(out[0])
        for chunk in range(chunks):
            cuda.tg.tg_acquire(self.client, self.base + chunk * CHUNK, CHUNK, 1)
            cuda.call(cuda.cu.cuMemsetD8Async(self.base + chunk * CHUNK, 0, CHUNK, ffi.NULL))
            cuda.write(self.base + chunk * CHUNK, pattern(chunk, CHUNK))
            cuda.tg.tg_release(self.client, self.base + chunk * CHUNK, CHUNK)

    def hint(self, hint: int) -> float:
        """All chunks where the hint says (1: home, 2: host); seconds."""
        tg, stats = self.cuda.tg, self.cuda.ffi.new("struct tg_stats *")
        start = time.perf_counter()
        tg.tg_hint(self.client, self.base, self.chunks * CHUNK, hint)
        while True:
            moving = tg.tg_pump(self.client)
            tg.tg_stats_get(self.client, stats)
            if not moving and not stats.queued:
                break
        if stats.moves_failed:
            raise RuntimeError(f"{stats.moves_failed} moves failed")
        return time.perf_counter() - start

    def wrong(self) -> int:
        """Chunks whose bytes are not what was written."""
        kept = 64 if "Stand-in" in self.cuda.name else CHUNK
        return sum(
            not np.array_equal(
                self.cuda.read(self.base + c * CHUNK, kept), pattern(c, CHUNK)[:kept]
            )
            for c in range(self.chunks)
        )


def holder(cuda: Cuda, size: int, what: str) -> Any:
    """Another process that allocates."""
    code = HOLDER.format(path=[str(Path(__file__).parent), *sys.path[:2]], driver=cuda.driver)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(size), what],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def shim_cost() -> dict[str, float] | str:
    """A PyTorch step without and with the shim, seconds."""
    import standin

    probe = [sys.executable, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        return "not measured: no PyTorch with CUDA here"
    found = {}
    for name, mode in (("plain", None), ("lend", "lend"), ("borrow", "borrow")):
        environment = dict(os.environ)
        if mode:
            environment |= {"LD_PRELOAD": str(standin.SHIM), "TIERD_GPU": mode}
        ran = subprocess.run(
            [sys.executable, "-c", STEP], env=environment, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        found[name] = float(ran.stdout)
    return found


def measure(cuda: Cuda, chunks: int) -> dict[str, Any]:
    """All figures."""
    report: dict[str, Any] = {"gpu": cuda.name, "simulated": "Stand-in" in cuda.name}
    moves = Moves(cuda, chunks)
    size = chunks * CHUNK
    report["to_host_bytes_per_s"] = size / moves.hint(2)
    report["wrong_after_to_host"] = moves.wrong()
    moves.hint(1)
    moves.hint(2)
    report["to_gpu_bytes_per_s"] = size / moves.hint(1)
    report["wrong_after_round_trip"] = moves.wrong()
    moves.hint(1)
    need = cuda.free_bytes() + size // 2
    other = holder(cuda, need, "hold")
    took = other.stdout.readline().strip()
    report["reclaim"] = {"bytes": need, "seconds": took or "refused"}
    report["wrong_after_reclaim"] = moves.wrong()
    other.communicate("\n")
    holder(cuda, size, "fill").communicate()
    look = holder(cuda, size, "look")
    report["bytes_left_by_another_process"] = int(look.communicate()[0] or -1)
    cuda.tg.tg_close(moves.client)
    report["shim_step_seconds"] = shim_cost()
    return report


def main() -> int:
    """Measure, print, and fail if any byte was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--driver", default="libcuda.so.1")
    parser.add_argument("--mib", type=int, default=1024, help="managed memory to move")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    args = parser.parse_args()
    report = measure(Cuda(args.driver), args.mib // 2)
    print(json.dumps(report, indent=1))
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return int(any(report[name] for name in report if name.startswith("wrong")))


if __name__ == "__main__":
    sys.exit(main())
