# SPDX-License-Identifier: Apache-2.0
"""Loans between processes: the daemon, an engine with the vLLM connector's parts, a lender."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / part) for part in ("tests/host", "tests/fakegpu")]

import standin  # noqa: E402
from test_gpu_service import daemon, line, started, tell  # noqa: E402

ENGINE = """
import ctypes, random, sys, time
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, sys.argv[3])
from vllm_neighbour import NeighbourSpec, base
CHUNK, HOME = 2 << 20, 4
cu = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert not cu.cuInit(0)
assert not cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cu.cuCtxPushCurrent_v2(context)
assert not cu.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(HOME * CHUNK))
spec = NeighbourSpec(SimpleNamespace(extra_config=dict(
    library=sys.argv[2], socket=sys.argv[1], neighbour=1, block_bytes=CHUNK,
    neighbour_bytes=40 * CHUNK)))
manager = spec.get_manager()
tensor = SimpleNamespace(tensor=SimpleNamespace(data_ptr=lambda: memory.value),
                         page_size_bytes=CHUNK)
worker = spec.get_worker(SimpleNamespace(tensors=[tensor]))
rng, cache, jobs = random.Random(1), {}, 0
counts = dict(hits=0, misses=0, kept=0, wrong=0)

def content(key):
    return (key * 32)[:64]

def copy(block, data=None):
    # The engine's own kernels: they write a block, or read it.
    buffer = ctypes.create_string_buffer(data or bytes(64), 64)
    at = ctypes.c_uint64(memory.value + block * CHUNK)
    if data:
        assert not cu.cuMemcpyHtoDAsync_v2(at, buffer, ctypes.c_size_t(64), None)
    else:
        assert not cu.cuMemcpyDtoHAsync_v2(buffer, at, ctypes.c_size_t(64), None)
    return buffer.raw

def move(submit, *specs):
    global jobs
    jobs += 1
    assert submit(jobs, *specs)
    worker.wait({jobs})
    assert [(each.job_id, each.success) for each in worker.get_finished()] == [(jobs, True)]

def home(*blocks):
    return SimpleNamespace(block_ids=list(blocks))

def step():
    key = b"%02d" % rng.randrange(30)
    if key not in cache:
        if len(cache) == HOME:
            old, block = next(iter(cache.items()))
            del cache[old]
            output = manager.prepare_store([old], None)
            if output and output.keys_to_store:
                move(worker.submit_store, home(block), output.store_spec)
                manager.complete_store(output.keys_to_store, None)
                counts["kept"] += 1
        else:
            block = len(cache)
        if manager.lookup(key, None) is base.LookupResult.HIT:
            move(worker.submit_load, manager.prepare_load([key], None), home(block))
            manager.complete_load([key], None)
            counts["hits"] += 1
        else:
            copy(block, content(key))
            counts["misses"] += 1
        cache[key] = block
    counts["wrong"] += copy(cache[key]) != content(key)

print("ready", flush=True)
for request in sys.stdin:
    if request.strip() == "work":
        for _ in range(300):
            step()
    elif request.strip() == "end":
        worker.shutdown()
        print("ended", flush=True)
        continue
    state = manager.store.loan.state()
    print(counts["hits"], counts["misses"], counts["wrong"], manager.store.dropped,
          state.held // CHUNK, state.granted // CHUNK, int(state.served), flush=True)
"""

LENDER = """
import ctypes, sys
cu = ctypes.CDLL("libcuda.so.1")
context, at = ctypes.c_void_p(), ctypes.c_uint64()
assert not cu.cuInit(0)
assert not cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1)
assert not cu.cuCtxPushCurrent_v2(context)
print("ready", flush=True)
for request in sys.stdin:
    print(cu.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(int(request) << 21)), flush=True)
"""


def engine(folder: Path) -> subprocess.Popen[str]:
    arguments = [str(folder / "gpu.sock"), str(standin.CLIENT), str(TOP / "docs/operate/examples")]
    return started(f"import sys; sys.argv = ['', *{arguments!r}]\n" + ENGINE, folder)


def figures(process: subprocess.Popen[str], text: str) -> list[int]:
    return [int(part) for part in tell(process, text).split()]


def test_blocks_that_an_engine_evicts_are_found_on_the_neighbour_until_it_wants_its_memory(
    tmp_path: Path,
) -> None:
    standin.load()
    with (
        engine(tmp_path) as app,
        started(LENDER, tmp_path) as lender,
        daemon(tmp_path) as served,
    ):
        assert line(app) == "ready"
        assert line(lender) == "ready"
        assert line(served) == "ready"
        # Hits come when the daemon has granted something.
        while (seen := figures(app, "work"))[0] < 100:
            assert seen[2] == 0
        assert seen[4] > 0
        assert tell(lender, "50") == "0"
        while (seen := figures(app, "look"))[4] > seen[5] or not seen[3]:
            pass
        assert seen[4] <= 14
        hits = figures(app, "work")[0]
        assert figures(app, "work")[0] >= hits
        # Without the daemon all is given back, and the engine goes on.
        served.kill()
        while (seen := figures(app, "look"))[4] or seen[6]:
            pass
        seen = figures(app, "work")
        assert seen[2] == 0
        assert seen[1] > 0
        assert tell(app, "end") == "ended"
