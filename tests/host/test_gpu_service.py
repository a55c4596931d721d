# SPDX-License-Identifier: Apache-2.0
"""Processes: clients that are killed, a daemon that is killed, the shim.

Everything runs on the stand-in driver (shared between the processes by a file); the
clock is the wall's here, so nothing is measured but bounds that a second is far above.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests/fakegpu"), str(TOP / "tests/workloads/gpu")]

import standin  # noqa: E402
from standin import CHUNK, World, check  # noqa: E402

WAIT_S = 600.0
"""For what must happen at all, on however busy a host."""


def until(true: Callable[[], bool], what: str, limit_s: float = WAIT_S) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.01)


def environment(folder: Path, gpu_chunks: int = 64) -> dict[str, str]:
    path = ":".join(str(TOP / part) for part in ("daemon", "tests/fakegpu", "tests/workloads/gpu"))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "LD_LIBRARY_PATH": str(standin.FAKE),
        "FAKEGPU_WORLD": str(folder / "world"),
        "FAKEGPU_TOPOLOGY": "v100x4",
        "FAKEGPU_GPU_BYTES": str(gpu_chunks * CHUNK),
        "FAKEGPU_PAYLOAD": "256",
        "FAKEGPU_BATCH": "1",
        "FAKEGPU_CONTEXT_BYTES": str(2 * CHUNK),
    }


@contextlib.contextmanager
def started(code: str, folder: Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment(folder) | more, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()
    return line(process)


DAEMON = """
import sys
from pathlib import Path
from dataclasses import replace
from tierd_gpu.cli import serve
from tierd_gpu.nvml import Nvml
from tierd_gpu.server import ServerSettings
from tierd_gpu.service import GpuService
from tierd_gpu.settings import HarvestSettings
settings = HarvestSettings(floor_bytes=4 << 20, refill_bytes=8 << 20, observe_ns=0,
                           home_free_chunks=4, context_bytes=4 << 20)
nvml = Nvml()
service = GpuService(nvml.topology(), nvml, ServerSettings(Path(sys.argv[1])), settings)
print("ready", flush=True)
serve(service)
"""

BESIDE = """
import sys
from tierd.config.whole import loads
from tierd.engine.components import beside
from tierd_gpu.background import GpuBackgroundService
config = loads(f'[gpu]\\nsocket = "{sys.argv[1]}"\\nfloor = "4MiB"\\nrefill = "8MiB"').gpu
with beside([GpuBackgroundService(config)]) as served:
    print("ready", flush=True)
    sys.stdin.readline()
print("closed", flush=True)
"""

CLIENT = """
import sys, time
import standin
from standin import CHUNK
lib = standin.load()
class Attached(standin.World):
    def __init__(self):
        self.lib, self._clients = lib, []
        lib.cu.cuInit(0)
        self.gpus = lib.cu.fg_gpu_count()
world = Attached()
client = world.client(0, chunks=256, socket=sys.argv[1])
out = lib.ffi.new("uint64_t *")
assert lib.tg.tg_alloc(client, 96 * CHUNK, out) == 0
base, value = int(out[0]), {}
stats = lib.ffi.new("struct tg_stats *")
def use(chunk, write=None):
    addr = base + chunk * CHUNK
    lib.tg.tg_acquire(client, addr, CHUNK)
    found = world.kernel(0, addr, write=write)
    lib.tg.tg_release(client, addr, CHUNK)
    return found
for chunk in range(96):
    value[chunk] = 1000 + chunk
    use(chunk, value[chunk])
print("filled", flush=True)
turn = 0
for request in sys.stdin:
    if request.strip() == "check":
        bad = sum(use(c) != lib.cu.fg_hash_of(v) for c, v in value.items())
        print("bad", bad, flush=True)
    elif request.strip() == "work":
        for _ in range(200):
            turn += 1
            chunk = turn % 96
            if turn % 3:
                assert use(chunk) == lib.cu.fg_hash_of(value[chunk])
            else:
                value[chunk] = turn
                use(chunk, turn)
            time.sleep(0.0005)
        print("worked", flush=True)
    lib.tg.tg_stats_get(client, stats)
    print(stats.attached, stats.detached, stats.moves_done, stats.parked, flush=True)
"""


def daemon(folder: Path, text: str = DAEMON) -> Any:
    code = f"import sys; sys.argv = ['', {str(folder / 'gpu.sock')!r}]\n" + text
    return started(code, folder)


def client(folder: Path) -> Any:
    code = f"import sys; sys.argv = ['', {str(folder / 'gpu.sock')!r}]\n" + CLIENT
    return started(code, folder)


def numbers(process: subprocess.Popen[str]) -> list[int]:
    return [int(part) for part in line(process).split()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    standin.load()
    return tmp_path


def test_chunks_move_to_neighbours_through_the_socket_and_survive_the_daemons_death(
    folder: Path,
) -> None:
    with client(folder) as app:
        assert line(app) == "filled"
        with daemon(folder) as served:
            assert line(served) == "ready"
            until_moving(app)
            served.send_signal(signal.SIGKILL)
            served.wait()
            killed = time.monotonic()
            detached = 0
            while not detached:
                tell(app, "look")
                detached = int(line_now(app).split()[1])
                assert time.monotonic() - killed < WAIT_S
        assert tell(app, "check") == "bad 0"


def test_the_services_thread_serves_as_well_and_hangs_up_when_it_is_closed(folder: Path) -> None:
    with client(folder) as app:
        assert line(app) == "filled"
        with daemon(folder, BESIDE) as served:
            assert line(served) == "ready"
            until_moving(app)
            assert tell(served, "end") == "closed"
            assert served.wait(WAIT_S) == 0
        tell(app, "look")
        until(lambda: int(line_now(app).split()[1]) > 0, "letting go")
        assert tell(app, "check") == "bad 0"


def until_moving(app: subprocess.Popen[str]) -> None:
    """Until some commands were carried out; a starved host may need many rounds for them."""
    end = time.monotonic() + WAIT_S
    while (figures := worked(app))[2] < 5:
        assert time.monotonic() < end, f"attached, detached, moves, parked: {figures}"


def worked(app: subprocess.Popen[str]) -> list[int]:
    """One round of work; attached, detached, moves done, chunks parked."""
    assert tell(app, "work") == "worked"
    return numbers(app)


def line_now(app: subprocess.Popen[str]) -> str:
    """The figures that `tell` has already read, asked once more."""
    assert app.stdin is not None
    app.stdin.write("look\n")
    app.stdin.flush()
    return line(app)


def test_a_killed_client_gives_its_memory_back_and_the_daemon_goes_on(folder: Path) -> None:
    with daemon(folder) as served:
        assert line(served) == "ready"
        with client(folder) as app:
            assert line(app) == "filled"
            assert tell(app, "work") == "worked"
            app.send_signal(signal.SIGKILL)
            app.wait()
        with client(folder) as app:
            assert line(app) == "filled"
            until(lambda: worked(app)[0] == 1, "attaching")
            assert tell(app, "check") == "bad 0"
        assert served.poll() is None


def test_a_stopped_daemon_is_let_go_within_a_second(folder: Path) -> None:
    """SIGSTOP: the socket stays open and silent. The client's own clock is asked."""
    with daemon(folder) as served, client(folder) as app:
        assert line(served) == "ready"
        assert line(app) == "filled"
        until(lambda: worked(app)[0] >= 1, "attaching")
        served.send_signal(signal.SIGSTOP)
        started_s = time.monotonic()
        tell(app, "look")
        while int(line_now(app).split()[1]) == 0:
            assert time.monotonic() - started_s < WAIT_S
        served.send_signal(signal.SIGCONT)
        assert tell(app, "check") == "bad 0"


PROGRAM = """
import ctypes, sys
cu = ctypes.CDLL("libcuda.so.1")
assert cu.cuInit(0) == 0
context = ctypes.c_void_p()
assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cu.cuCtxPushCurrent_v2(context) == 0
addr, free, total = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_size_t()
how = sys.argv[1]
if how == "directory":
    entry = ctypes.c_void_p()
    assert cu.cuGetProcAddress_v2(b"cuMemAlloc", ctypes.byref(entry), 12000,
                                  ctypes.c_uint64(0), None) == 0
    alloc = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(entry.value)
else:
    alloc = cu.cuMemAlloc_v2
    alloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
# More than the GPU has: managed memory can, the driver's own cannot.
status = alloc(ctypes.addressof(addr), ctypes.c_size_t(100 << 21))
print(status, cu.cuMemFree_v2(addr) if not status else "-",
      cu.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), total.value >> 21)
"""


@pytest.mark.parametrize("how", ["dlsym", "directory"])
@pytest.mark.parametrize(("mode", "expected"), [("off", "2 - 0 64"), ("borrow", "0 0 0 64")])
def test_the_shim_takes_over_allocations_only_when_asked(
    folder: Path, how: str, mode: str, expected: str
) -> None:
    """Without a daemon it is transparent: managed memory, placed by the driver."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True,
        env=environment(folder) | {
            "LD_PRELOAD": str(standin.SHIM), "TIERD_GPU": mode,
            "TIERD_GPU_SOCKET": str(folder / "none.sock"),
        },
    )  # fmt: skip
    assert ran.stdout.strip() == expected


WRAPPER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
typedef int (*alloc)(unsigned long long *, size_t);
int wrapped;
int cuMemAlloc_v2(unsigned long long *out, size_t bytes)
{
	static __thread int depth;
	alloc next = (alloc)dlsym(RTLD_NEXT, "cuMemAlloc_v2");
	int ret;
	if (depth++)
		return 999; /* itself */
	wrapped++;
	ret = next(out, bytes);
	depth--;
	return ret;
}
"""


def test_a_library_that_wraps_the_driver_finds_what_comes_after_itself(folder: Path) -> None:
    """RTLD_NEXT asked by another preloaded library, before and behind the shim."""
    (folder / "wrapper.c").write_text(WRAPPER)
    wrapper = folder / "wrapper.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(wrapper), str(folder / "wrapper.c"),
         f"-L{standin.FAKE}", "-l:libcuda.so.1"], check=True,
    )  # fmt: skip
    program = """
    import ctypes
    cu = ctypes.CDLL("libcuda.so.1")
    context, addr = ctypes.c_void_p(), ctypes.c_uint64()
    assert cu.cuInit(0) == 0
    assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cu.cuCtxPushCurrent_v2(context) == 0
    alloc = ctypes.CDLL(None).cuMemAlloc_v2
    print(alloc(ctypes.byref(addr), ctypes.c_size_t(4 << 20)))
    """
    for order in (f"{wrapper} {standin.SHIM}", f"{standin.SHIM} {wrapper}"):
        for mode in ("off", "borrow"):
            ran = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True,
                check=False, env=environment(folder) | {
                    "LD_PRELOAD": order, "TIERD_GPU": mode,
                    "TIERD_GPU_SOCKET": str(folder / "none.sock"),
                },
            )  # fmt: skip
            assert (ran.returncode, ran.stdout.strip()) == (0, "0"), (order, mode, ran.stderr)


def test_the_torch_entry_points_give_tracked_memory(folder: Path) -> None:
    code = f"""
    import cffi
    ffi = cffi.FFI()
    ffi.cdef("void *tg_torch_alloc(ssize_t, int, void *);"
             "void tg_torch_free(void *, ssize_t, int, void *);")
    lib = ffi.dlopen({str(standin.CLIENT)!r})
    tensor = lib.tg_torch_alloc(100 << 21, 0, ffi.NULL)
    print(int(ffi.cast("uintptr_t", tensor)) % (2 << 20), tensor != ffi.NULL, flush=True)
    lib.tg_torch_free(tensor, 100 << 21, 0, ffi.NULL)
    print(lib.tg_torch_alloc(1 << 21, 9, ffi.NULL) == ffi.NULL, flush=True)
    """
    with started(code, folder, TIERD_GPU_SOCKET=str(folder / "none.sock")) as program:
        assert line(program) == "0 True"
        assert line(program) == "True"


def test_a_shared_world_evicts_across_processes(folder: Path) -> None:
    """A lender that takes everything at once is not refused, and the borrower's bytes stay."""
    with client(folder) as app:
        assert line(app) == "filled"
        lender = """
        import standin
        from standin import CHUNK
        lib = standin.load()
        lib.cu.cuInit(0)
        context, out = lib.ffi.new("void **"), lib.ffi.new("CUdeviceptr *")
        lib.cu.cuDevicePrimaryCtxRetain(context, 0)
        lib.cu.cuCtxPushCurrent_v2(context[0])
        print(lib.cu.cuMemAlloc_v2(out, 56 * CHUNK), flush=True)
        """
        with started(lender, folder) as other:
            assert line(other) == "0"
            assert tell(app, "check") == "bad 0"


__all__ = ["World", "check"]
