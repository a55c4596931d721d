# SPDX-License-Identifier: Apache-2.0
"""The stand-in driver, the client library and the replayer, built and bound for tests.

`build()` makes what is older than its sources; `load()` binds it with cffi (ABI mode),
from the declarations in the headers themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import cffi

TOP = Path(__file__).resolve().parents[2]
BUILD = TOP / "build"
FAKE = BUILD / "fakegpu"
DRIVER = FAKE / "libcuda.so.1"
NVML = FAKE / "libnvidia-ml.so.1"
CLIENT = BUILD / "gpu" / "libtierd-gpu.so"
SHIM = BUILD / "gpu" / "libtierd-gpu-preload.so"
REPLAY = FAKE / "libreplay.so"
CHUNK = 2 << 20
HOST_BIT = 1 << 8
LOST_BIT = 1 << 31

_CUDA = """
typedef int CUresult;
typedef unsigned long long CUdeviceptr;
CUresult cuInit(unsigned int);
CUresult cuDevicePrimaryCtxRetain(void **, int);
CUresult cuDevicePrimaryCtxRelease_v2(int);
CUresult cuDeviceGetCount(int *);
CUresult cuDeviceGetUuid_v2(unsigned char *, int);
CUresult cuCtxGetDevice(int *);
CUresult cuIpcGetMemHandle(void *, CUdeviceptr);
CUresult cuThreadExchangeStreamCaptureMode(int *);
CUresult cuStreamBeginCapture_v2(void *, int);
CUresult cuStreamEndCapture(void *, void **);
CUresult cuCtxPushCurrent_v2(void *);
CUresult cuCtxPopCurrent_v2(void **);
CUresult cuCtxSynchronize(void);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned int);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, int, void *);
CUresult cuMemAdvise(CUdeviceptr, size_t, int, int);
CUresult cuMemRangeGetAttribute(void *, size_t, int, CUdeviceptr, size_t);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, void *);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, void *);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, void *);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, void *);
CUresult cuStreamCreate(void **, unsigned int);
CUresult cuStreamQuery(void *);
CUresult cuStreamSynchronize(void *);
CUresult cuStreamWaitEvent(void *, void *, unsigned int);
CUresult cuEventCreate(void **, unsigned int);
CUresult cuEventDestroy_v2(void *);
CUresult cuEventRecord(void *, void *);
CUresult cuEventQuery(void *);
CUresult cuEventSynchronize(void *);
CUresult cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *);
"""


def _declarations(path: Path) -> str:
    """What cffi can read of a header: no directives, no attributes."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
    text = re.sub(r"#define RP_SLOTS (\d+)", "", text)
    lines = [
        line
        for line in text.splitlines()
        if not line.startswith("#") and 'extern "C"' not in line and line.strip() != "}"
    ]
    text = "\n".join(lines).replace("FG_API ", "").replace("TG_API ", "")
    return text.replace("RP_SLOTS", "1024")


@lru_cache
def build() -> None:
    """Make what is older than its sources; one process at a time."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / ".gpu-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for folder in ("tests/fakegpu", "daemon/native/gpu", "tests/workloads/gpu"):
            subprocess.run(["make", "-s", "-C", str(TOP / folder)], check=True)


@dataclass(frozen=True)
class Libraries:
    """The bound libraries: `cu` (driver and harness), `tg` (client), `rp` (replayer)."""

    ffi: Any
    cu: Any
    tg: Any
    rp: Any


@lru_cache
def load() -> Libraries:
    """Build and bind."""
    build()
    ffi = cffi.FFI()
    ffi.cdef(_CUDA)
    ffi.cdef(_declarations(TOP / "tests/fakegpu/fakegpu.h"))
    ffi.cdef(_declarations(TOP / "daemon/native/gpu/tierd_gpu.h"))
    ffi.cdef(_declarations(TOP / "tests/workloads/gpu/replay.h"))
    cu = ffi.dlopen(str(DRIVER))
    return Libraries(ffi, cu, ffi.dlopen(str(CLIENT)), ffi.dlopen(str(REPLAY)))


class World:
    """One stand-in world; a context manager that closes it.

    Small ones take single blocks, and contexts cost nothing, unless told otherwise.
    """

    def __init__(
        self,
        topology: str = "v100x4",
        *,
        gpu_bytes: int = 0,
        payload: int = 64,
        blocks: int = 0,
        scrub: int = 0,
        batch: int = 1,
        context_bytes: int = 0,
        path: Path | None = None,
        manual: bool = False,
    ) -> None:
        self.lib = load()
        ffi = self.lib.ffi
        name = ffi.new("char[]", topology.encode())
        config = ffi.new("struct fg_config *")
        config.topology, config.gpu_bytes, config.payload = name, gpu_bytes, payload
        config.max_blocks, config.scrub = blocks, scrub
        config.batch, config.context_bytes = batch, context_bytes
        where = ffi.new("char[]", os.fsencode(path)) if path else ffi.NULL
        status = self.lib.cu.fg_world_open(where, config)
        if status:
            raise OSError(-status, os.strerror(-status))
        self.gpus = int(self.lib.cu.fg_gpu_count())
        self._clients: list[Any] = []
        if manual:
            self.lib.cu.fg_set_manual(1)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close clients, then the world."""
        for slot, client in self._clients:
            self.lib.cu.fg_tenant_use(slot)
            self.lib.tg.tg_close(client)
        self._clients.clear()
        self.lib.cu.fg_world_close()

    def tenant(self) -> int:
        """A new process within this one."""
        slot = int(self.lib.cu.fg_tenant_new())
        if slot < 0:
            raise OSError(-slot, os.strerror(-slot))
        return slot

    @contextlib.contextmanager
    def on(self, gpu: int, slot: int = -1) -> Any:
        """The primary context of a GPU is current, as tenant `slot`."""
        cu, ffi = self.lib.cu, self.lib.ffi
        cu.fg_tenant_use(slot)
        context = ffi.new("void **")
        check(cu.cuDevicePrimaryCtxRetain(context, gpu))
        check(cu.cuCtxPushCurrent_v2(context[0]))
        try:
            yield
        finally:
            cu.cuCtxPopCurrent_v2(ffi.NULL)

    def managed(self, gpu: int, chunks: int, slot: int = -1) -> int:
        """The address of new managed memory."""
        out = self.lib.ffi.new("CUdeviceptr *")
        with self.on(gpu, slot):
            check(self.lib.cu.cuMemAllocManaged(out, chunks * CHUNK, 1))
        return int(out[0])

    def client(
        self,
        gpu: int,
        slot: int = -1,
        *,
        role: int = 1,
        chunks: int = 65536,
        inflight: int = 2,
        socket: str | None = None,
    ) -> Any:
        """A client of the library, closed with the world."""
        ffi = self.lib.ffi
        keep = [ffi.new("char[]", os.fsencode(DRIVER)), ffi.new("char[]", b"test")]
        if socket:
            keep.append(ffi.new("char[]", socket.encode()))
        options = ffi.new("struct tg_options *")
        options.driver, options.name, options.device = keep[0], keep[1], gpu
        options.role, options.max_chunks = role, chunks
        options.inflight = inflight
        if socket:
            options.socket = keep[2]
        else:
            options.clock_ns = ffi.cast("uint64_t (*)(void)", ffi.addressof(self.lib.cu, "fg_now"))
        out = ffi.new("struct tg_client **")
        self.lib.cu.fg_tenant_use(slot)
        status = self.lib.tg.tg_open(options, out)
        if status:
            raise OSError(-status, os.strerror(-status))
        self._clients.append((slot, out[0]))
        return out[0]

    def drop(self, client: Any, *, close: bool = True) -> None:
        """Close one client now (or forget it: its process was killed)."""
        slot = next(s for s, c in self._clients if c == client)
        self._clients = [(s, c) for s, c in self._clients if c != client]
        if close:
            self.lib.cu.fg_tenant_use(slot)
            self.lib.tg.tg_close(client)

    def stats(self, gpu: int) -> Any:
        """`struct fg_gpu_stats`."""
        out = self.lib.ffi.new("struct fg_gpu_stats *")
        self.lib.cu.fg_stats(gpu, out)
        return out

    def advance(self, ns: int) -> None:
        """A manual clock goes on, from when this thread is back from its calls."""
        now = self.lib.cu.fg_now()
        self.lib.cu.fg_take_spent()
        self.lib.cu.fg_set_now(now + ns)

    def kernel(self, gpu: int, addr: int, *, write: int | None = None, pages: int = 512,
               compute_ns: int = 1000, slot: int = -1) -> int:  # fmt: skip
        """One access; returns the hash of what was read (0 for a write)."""
        ffi, cu = self.lib.ffi, self.lib.cu
        digest, status = ffi.new("uint64_t *"), ffi.new("int *")
        cu.fg_tenant_use(slot)
        cu.fg_kernel(gpu, addr, pages * 4096, write is not None, write or 0, compute_ns,
                     cu.fg_now(), digest, status)  # fmt: skip
        check(status[0])
        return int(digest[0])


class DriverError(Exception):
    """A CUresult that is not success; `args[0]` is its number."""


def check(result: int) -> None:
    """Raise DriverError unless a call succeeded."""
    if result:
        raise DriverError(result)
