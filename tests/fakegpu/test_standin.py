# SPDX-License-Identifier: Apache-2.0
"""The stand-in keeps the driver's rules: those of the "CUDA Driver API" reference, and those of
the open kernel module (tests/fakegpu names the place of each)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import pytest
from standin import CHUNK, HOST_BIT, LOST_BIT, DriverError, World, check

SMALL = 16 * CHUNK
PREFERRED, ACCESSED_BY = 3, 5


@pytest.fixture
def world() -> Iterator[World]:
    with World(gpu_bytes=SMALL) as made:
        yield made


def prefetch(world: World, addr: int, to: int, chunks: int = 1, gpu: int = 0) -> None:
    if to >= 0:
        with world.on(to):
            pass  # what it needs there: a context
    with world.on(gpu):
        check(world.lib.cu.cuMemPrefetchAsync(addr, chunks * CHUNK, to, world.lib.ffi.NULL))
        check(world.lib.cu.cuStreamSynchronize(world.lib.ffi.NULL))


def context(world: World, gpu: int) -> None:
    check(world.lib.cu.cuDevicePrimaryCtxRetain(world.lib.ffi.new("void **"), gpu))


def advise(world: World, addr: int, advice: int, where: int) -> None:
    check(world.lib.cu.cuMemAdvise(addr, CHUNK, advice, where))


def device_memory(world: World, gpu: int, chunks: int) -> int:
    out = world.lib.ffi.new("CUdeviceptr *")
    with world.on(gpu):
        check(world.lib.cu.cuMemAlloc_v2(out, chunks * CHUNK))
    return int(out[0])


def test_a_kernel_brings_managed_memory_to_its_gpu_and_oversubscription_evicts_to_the_host(
    world: World,
) -> None:
    base = world.managed(0, 20)
    for chunk in range(20):
        world.kernel(0, base + chunk * CHUNK, write=chunk + 1)
    assert [world.lib.cu.fg_residency(base + c * CHUNK) for c in (0, 3, 4, 19)] == [
        HOST_BIT, HOST_BIT, 1, 1,
    ]  # fmt: skip
    for chunk in range(20):
        assert world.kernel(0, base + chunk * CHUNK) == world.lib.cu.fg_hash_of(chunk + 1)


def test_an_allocation_evicts_managed_pages_of_another_process_to_the_host_only(
    world: World,
) -> None:
    other = world.tenant()
    base = world.managed(1, 16, other)
    for chunk in range(16):
        world.kernel(1, base + chunk * CHUNK, write=chunk, slot=other)
    device_memory(world, 1, 10)
    world.lib.cu.fg_tenant_use(other)
    places = [world.lib.cu.fg_residency(base + c * CHUNK) for c in range(16)]
    assert places == [HOST_BIT] * 10 + [2] * 6
    assert world.stats(1).evicted_of_others == 10


def test_device_memory_is_never_evicted(world: World) -> None:
    device_memory(world, 0, 16)
    with pytest.raises(DriverError, match="2"):
        device_memory(world, 0, 1)
    base = world.managed(0, 1)
    with pytest.raises(DriverError):
        world.kernel(0, base)


def test_a_prefetch_takes_latency_and_bytes_over_bandwidth_and_lanes_serve_one_at_a_time(
    world: World,
) -> None:
    base = world.managed(0, 4)
    for chunk in range(4):
        world.kernel(0, base + chunk * CHUNK, write=1)
    start = world.lib.cu.fg_now()
    prefetch(world, base, 3, 2)
    assert world.lib.cu.fg_now() - start == pytest.approx(80_000 + 2 * (1300 + CHUNK / 48), abs=4)
    prefetch(world, base + 2 * CHUNK, -1, 1)  # finds the memory on the host
    prefetch(world, base + 2 * CHUNK, 0, 1)
    start = world.lib.cu.fg_now()
    prefetch(world, base + 2 * CHUNK, -1, 1)
    assert world.lib.cu.fg_now() - start == pytest.approx(55_000 + 1500 + CHUNK / 12, abs=4)


def test_a_stream_is_not_ready_until_its_copy_ends_and_events_order_streams(world: World) -> None:
    cu, ffi = world.lib.cu, world.lib.ffi
    cu.fg_set_manual(1)
    base = world.managed(0, 1)
    world.kernel(0, base, write=1)
    streams, event = ffi.new("void *[2]"), ffi.new("void **")
    with world.on(0):
        check(cu.cuStreamCreate(streams, 1))
        check(cu.cuStreamCreate(streams + 1, 1))
        check(cu.cuEventCreate(event, 2))
        context(world, 1)
        check(cu.cuMemPrefetchAsync(base, CHUNK, 1, streams[0]))
        check(cu.cuEventRecord(event[0], streams[0]))
        check(cu.cuStreamWaitEvent(streams[1], event[0], 0))
        assert cu.cuEventQuery(event[0]) == 600
        assert cu.cuStreamQuery(streams[1]) == 600
        cu.fg_set_now(cu.fg_now() + 1_000_000)
        assert cu.cuEventQuery(event[0]) == 0
        assert cu.cuStreamQuery(streams[1]) == 0
    assert cu.fg_residency(base) == 2


def test_accessed_by_reads_in_place_where_the_preferred_location_holds_it(world: World) -> None:
    base = world.managed(0, 1)
    world.kernel(0, base, write=5)
    prefetch(world, base, 1)
    advise(world, base, PREFERRED, 1)
    advise(world, base, ACCESSED_BY, 0)
    assert world.kernel(0, base, pages=4) == world.lib.cu.fg_hash_of(5)
    assert world.lib.cu.fg_residency(base) == 2
    assert world.stats(0).remote_bytes == 4 * 4096


def test_a_link_that_breaks_in_mid_copy_leaves_the_block_where_it_was(world: World) -> None:
    cu, ffi = world.lib.cu, world.lib.ffi
    cu.fg_set_manual(1)
    base = world.managed(0, 1)
    world.kernel(0, base, write=9)
    with world.on(0):
        context(world, 3)
        check(cu.cuMemPrefetchAsync(base, CHUNK, 3, ffi.NULL))
        cu.fg_take_spent()
        cu.fg_set_now(cu.fg_now() + 90_000)
        assert cu.fg_link_set(0, 3, 0) == 0
        assert cu.cuStreamSynchronize(ffi.NULL) == 220
    assert cu.fg_residency(base) == 1
    assert world.kernel(0, base) == cu.fg_hash_of(9)
    assert world.stats(3).free_bytes + world.stats(3).unused_bytes == SMALL


def test_a_lost_device_takes_what_only_it_had(world: World) -> None:
    base = world.managed(0, 2)
    for chunk in range(2):
        world.kernel(0, base + chunk * CHUNK, write=chunk)
    prefetch(world, base, 1, 2)
    prefetch(world, base, -1)
    world.lib.cu.fg_device_lose(1)
    assert world.lib.cu.fg_residency(base) == HOST_BIT
    assert world.lib.cu.fg_residency(base + CHUNK) == LOST_BIT
    assert world.kernel(0, base) == world.lib.cu.fg_hash_of(0)
    with pytest.raises(DriverError, match="719"):
        world.kernel(0, base + CHUNK)


def test_an_allocation_fails_when_told_to(world: World) -> None:
    world.lib.cu.fg_fail_allocations(1)
    with pytest.raises(DriverError, match="2"):
        device_memory(world, 0, 1)
    device_memory(world, 0, 1)


@pytest.mark.parametrize(("scrub", "seen"), [(0, False), (1, True)])
def test_frames_are_cleared_between_processes_unless_the_driver_is_the_worst_one(
    scrub: int, seen: bool
) -> None:
    with World(gpu_bytes=CHUNK, scrub=scrub) as world:
        first, second = world.tenant(), world.tenant()
        secret = world.managed(0, 1, first)
        world.kernel(0, secret, write=1234, slot=first)
        digest = world.kernel(0, secret, slot=first)
        world.lib.cu.fg_tenant_use(first)
        check(world.lib.cu.cuMemFree_v2(secret))
        fresh = world.managed(0, 1, second)
        assert (world.kernel(0, fresh, slot=second) == digest) is seen


def test_a_process_that_ends_gives_everything_back(world: World) -> None:
    other = world.tenant()
    base = world.managed(2, 8, other)
    for chunk in range(8):
        world.kernel(2, base + chunk * CHUNK, write=1, slot=other)
    world.lib.cu.fg_tenant_kill(other)
    assert world.stats(2).free_bytes == SMALL


def test_the_cpu_sees_the_bytes_wherever_they_were() -> None:
    with World(gpu_bytes=4 * CHUNK, payload=CHUNK, blocks=64) as world:
        base = world.managed(0, 8)
        words = (ctypes.c_uint64 * (8 * CHUNK // 8)).from_address(base)
        for chunk in range(8):
            words[chunk * CHUNK // 8] = 100 + chunk
        for chunk in range(8):
            world.kernel(0, base + chunk * CHUNK)
        assert world.stats(0).evict_copies == 4
        assert [words[c * CHUNK // 8] for c in range(8)] == [100 + c for c in range(8)]
        assert world.lib.cu.fg_residency(base + 7 * CHUNK) == HOST_BIT


def test_the_same_calls_take_the_same_virtual_time() -> None:
    ends = []
    for _ in range(2):
        with World(gpu_bytes=SMALL) as world:
            base = world.managed(0, 40)
            for turn in range(200):
                world.kernel(0, base + (turn * 7 % 40) * CHUNK, write=turn)
            ends.append(world.lib.cu.fg_now())
    assert ends[0] == ends[1]


def in_use(world: World, gpu: int) -> tuple[int, int, int]:
    """Chunks free as the driver tells, taken ahead, and left behind."""
    stats = world.stats(gpu)
    return tuple(n // CHUNK for n in (stats.free_bytes, stats.spare_bytes, stats.unused_bytes))


def told(world: World, gpu: int) -> int:
    """Free chunks by cuMemGetInfo."""
    free, total = world.lib.ffi.new("size_t *"), world.lib.ffi.new("size_t *")
    with world.on(gpu):
        check(world.lib.cu.cuMemGetInfo_v2(free, total))
    return int(free[0]) // CHUNK


def test_memory_stays_with_a_gpu_when_its_block_leaves_until_the_range_is_freed(
    world: World,
) -> None:
    base = world.managed(0, 4)
    for chunk in range(4):
        world.kernel(0, base + chunk * CHUNK, write=chunk)
    prefetch(world, base, -1, 4)
    assert in_use(world, 0) == (12, 0, 4)
    assert told(world, 0) == 12
    prefetch(world, base, 0, 2)
    assert in_use(world, 0) == (12, 0, 2)
    assert [world.kernel(0, base + c * CHUNK) for c in range(4)] == [
        world.lib.cu.fg_hash_of(c) for c in range(4)
    ]
    check(world.lib.cu.cuMemFree_v2(base))
    assert in_use(world, 0) == (16, 0, 0)


def test_what_was_left_behind_goes_before_anything_is_evicted(world: World) -> None:
    """First what nobody has, then the unused, the longest first, then blocks that are there."""
    other = world.tenant()
    base = world.managed(1, 12, other)
    for chunk in range(12):
        world.kernel(1, base + chunk * CHUNK, write=chunk, slot=other)
    world.lib.cu.fg_tenant_use(other)
    with world.on(1, other):
        check(world.lib.cu.cuMemPrefetchAsync(base, 6 * CHUNK, -1, world.lib.ffi.NULL))
    world.lib.cu.fg_tenant_use(-1)
    before = world.lib.cu.fg_now()
    device_memory(world, 1, 10)
    assert in_use(world, 1) == (0, 0, 0)
    assert world.lib.cu.fg_now() == before
    assert world.stats(1).evicted_of_others == 0
    device_memory(world, 1, 2)
    assert world.stats(1).evicted_of_others == 2


def test_managed_memory_is_taken_in_batches_that_count_as_used() -> None:
    with World(gpu_bytes=256 * CHUNK, batch=0) as world:
        base = world.managed(0, 65)
        world.kernel(0, base, write=1)
        assert in_use(world, 0) == (192, 63, 0)
        for chunk in range(1, 65):
            world.kernel(0, base + chunk * CHUNK, write=1)
        assert in_use(world, 0) == (128, 63, 0)
        device_memory(world, 0, 180)  # what was taken ahead is given up
        assert in_use(world, 0) == (0, 11, 0)
        assert world.stats(0).evicted_self == 0


def test_a_context_takes_memory_that_is_not_evicted_and_gives_it_back() -> None:
    with World(gpu_bytes=64 * CHUNK, context_bytes=7 * CHUNK) as world:
        assert told(world, 0) == 57
        assert told(world, 0) == 57
        other = world.tenant()
        with world.on(0, other):
            pass
        assert in_use(world, 0)[0] == 50
        assert world.stats(0).plain_bytes == 14 * CHUNK
        world.lib.cu.fg_tenant_kill(other)
        assert in_use(world, 0)[0] == 57
        world.lib.cu.fg_tenant_use(-1)
        for _ in range(2):
            check(world.lib.cu.cuDevicePrimaryCtxRelease_v2(0))
        assert in_use(world, 0)[0] == 64


def test_a_prefetch_to_a_gpu_needs_a_context_there(world: World) -> None:
    base = world.managed(0, 1)
    world.kernel(0, base, write=1)
    with world.on(0):
        assert world.lib.cu.cuMemPrefetchAsync(base, CHUNK, 2, world.lib.ffi.NULL) == 101
    prefetch(world, base, 2)
    assert world.lib.cu.fg_residency(base) == 4


def test_calls_cost_time(world: World) -> None:
    cu, ffi = world.lib.cu, world.lib.ffi
    base = world.managed(0, 1)
    world.kernel(0, base, write=1)

    def took(call) -> int:
        start = cu.fg_now()
        call()
        return int(cu.fg_now() - start)

    assert took(lambda: told(world, 0)) == 6400
    assert took(lambda: advise(world, base, PREFERRED, 0)) == 2800
    with world.on(0):
        assert took(lambda: check(cu.cuMemPrefetchAsync(base, CHUNK, 0, ffi.NULL))) == 5500


def test_on_a_manual_clock_the_calls_of_a_thread_are_counted_for_it(world: World) -> None:
    cu = world.lib.cu
    cu.fg_set_manual(1)
    base = world.managed(0, 1)
    start = cu.fg_now()
    advise(world, base, PREFERRED, 0)
    assert cu.fg_now() == start + 2800
    assert cu.fg_take_spent() == 2800
    assert cu.fg_now() == start


def test_a_prefetch_to_the_host_ends_in_the_call_and_one_to_a_gpu_does_not(world: World) -> None:
    cu, ffi = world.lib.cu, world.lib.ffi
    base = world.managed(0, 2)
    for chunk in range(2):
        world.kernel(0, base + chunk * CHUNK, write=1)
    with world.on(0):
        start = cu.fg_now()
        check(cu.cuMemPrefetchAsync(base, 2 * CHUNK, -1, ffi.NULL))
        assert cu.fg_now() - start > 2 * CHUNK / 12
        assert cu.cuStreamQuery(ffi.NULL) == 0
        start = cu.fg_now()
        check(cu.cuMemPrefetchAsync(base, 2 * CHUNK, 0, ffi.NULL))
        assert cu.fg_now() - start == 80_000
        assert cu.cuStreamQuery(ffi.NULL) == 600


def test_two_prefetches_of_one_process_follow_each_other(world: World) -> None:
    """Also in opposite directions and on two streams, which share no lane."""
    cu, ffi = world.lib.cu, world.lib.ffi
    base = world.managed(0, 2)
    world.kernel(0, base, write=1)
    world.kernel(0, base + CHUNK, write=1)
    prefetch(world, base, -1)
    streams = ffi.new("void *[2]")
    with world.on(0):
        check(cu.cuStreamCreate(streams, 1))
        check(cu.cuStreamCreate(streams + 1, 1))
        start = cu.fg_now()
        check(cu.cuMemPrefetchAsync(base, CHUNK, 0, streams[0]))
        check(cu.cuMemPrefetchAsync(base + CHUNK, CHUNK, -1, streams[1]))
        one_way = 1500 + CHUNK / 12
        assert cu.fg_now() - start == pytest.approx(80_000 + 55_000 + 474_000 + 2 * one_way, abs=9)


def test_a_fault_on_a_block_costs_by_the_pages_that_are_touched(world: World) -> None:
    times = []
    for pages in (1, 32, 512):
        base = world.managed(0, 1)
        prefetch(world, base, -1)
        start = world.lib.cu.fg_now()
        world.kernel(0, base, pages=pages, compute_ns=0)
        times.append(world.lib.cu.fg_now() - start)
    moved = [1500 + size / 12 for size in (64 << 10, CHUNK, CHUNK)]
    assert times == pytest.approx(
        [20_000 + moved[0], 119_200 + moved[1], 277_600 + moved[2]], abs=4
    )


RELAXED = 2


def captured(world: World, mode: int, call, relaxed: bool) -> tuple[int, int]:
    """What `call` of another thread gives while this one captures, and how the capture ends."""
    cu, ffi = world.lib.cu, world.lib.ffi
    stream, graph, result = ffi.new("void **"), ffi.new("void **"), []

    def other() -> None:
        if relaxed:
            check(cu.cuThreadExchangeStreamCaptureMode(ffi.new("int *", RELAXED)))
        with world.on(0):
            result.append(call())

    with world.on(0):
        check(cu.cuStreamCreate(stream, 1))
        check(cu.cuStreamBeginCapture_v2(stream[0], mode))
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return result[0], cu.cuStreamEndCapture(stream[0], graph)


@pytest.mark.parametrize(
    ("name", "mode", "relaxed", "seen"),
    [
        ("query", 0, False, (900, 901)),
        ("query", 0, True, (0, 0)),
        ("query", 1, False, (0, 0)),
        ("query", 2, False, (0, 0)),
        ("info", 0, False, (0, 0)),
        ("prefetch", 0, False, (0, 0)),
    ],
)
def test_a_capture_forbids_other_threads_what_is_unsafe_unless_they_are_relaxed(
    world: World, name: str, mode: int, relaxed: bool, seen: tuple[int, int]
) -> None:
    cu, ffi = world.lib.cu, world.lib.ffi
    base, event = world.managed(0, 1), ffi.new("void **")
    with world.on(0):
        check(cu.cuEventCreate(event, 2))
    calls = {
        "query": lambda: cu.cuEventQuery(event[0]),
        "info": lambda: cu.cuMemGetInfo_v2(ffi.new("size_t *"), ffi.new("size_t *")),
        "prefetch": lambda: cu.cuMemPrefetchAsync(base, CHUNK, 0, ffi.NULL),
    }
    assert captured(world, mode, calls[name], relaxed) == seen


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("2,0", [2, 0]),
        ("GPU-fafafafa-fafa-fafa-fafa-fafafafafa03", [3]),
        ("1,9,2", [1]),
        ("", []),
    ],
)
def test_a_process_sees_the_gpus_that_are_visible_in_their_order(
    monkeypatch: pytest.MonkeyPatch, text: str, gpus: list[int]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    with World(gpu_bytes=SMALL) as world:
        cu, ffi = world.lib.cu, world.lib.ffi
        count, uuid = ffi.new("int *"), ffi.new("unsigned char[16]")
        check(cu.cuDeviceGetCount(count))
        seen = []
        for ordinal in range(count[0]):
            check(cu.cuDeviceGetUuid_v2(uuid, ordinal))
            seen.append(uuid[15])
        assert seen == gpus
        assert cu.cuDeviceGetUuid_v2(uuid, len(gpus)) == 101
        if gpus:
            base = world.managed(0, 1)
            prefetch(world, base, 0)
            assert cu.fg_residency(base) == 1 << gpus[0]


def test_managed_memory_is_not_shared_with_other_processes_by_a_handle(world: World) -> None:
    handle = world.lib.ffi.new("char[64]")
    assert world.lib.cu.cuIpcGetMemHandle(handle, device_memory(world, 0, 1)) == 0
    assert world.lib.cu.cuIpcGetMemHandle(handle, world.managed(0, 1)) == 1


def test_reads_in_place_share_the_link_with_a_copy_and_do_not_wait_for_it(world: World) -> None:
    cu, ffi = world.lib.cu, world.lib.ffi
    cu.fg_set_manual(1)
    base = world.managed(0, 9)
    with world.on(0):
        check(cu.cuMemPrefetchAsync(base, 9 * CHUNK, -1, ffi.NULL))
        world.advance(0)
        advise(world, base, PREFERRED, -1)
        advise(world, base, ACCESSED_BY, 0)

        def read() -> float:
            world.advance(0)
            status = ffi.new("int *")
            start = cu.fg_now()
            end = cu.fg_kernel(0, base, CHUNK, 0, 0, 0, start, ffi.NULL, status)
            check(status[0])
            world.advance(end - start)
            return float(end - start)

        assert read() == pytest.approx(1500 + CHUNK / 12, abs=4)
        check(cu.cuMemPrefetchAsync(base + CHUNK, 8 * CHUNK, 0, ffi.NULL))
        assert read() == pytest.approx(1500 + 2 * CHUNK / 12, abs=4)
