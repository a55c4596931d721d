# SPDX-License-Identifier: Apache-2.0
"""The stand-in keeps the documented rules of the driver ("CUDA Driver API" reference)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
from standin import CHUNK, HOST_BIT, LOST_BIT, DriverError, World, check

SMALL = 16 * CHUNK
READ_MOSTLY, UNSET_READ_MOSTLY, PREFERRED, ACCESSED_BY = 1, 2, 3, 5


@pytest.fixture
def world() -> Iterator[World]:
    with World(gpu_bytes=SMALL) as made:
        yield made


def prefetch(world: World, addr: int, to: int, chunks: int = 1, gpu: int = 0) -> None:
    with world.on(gpu):
        check(world.lib.cu.cuMemPrefetchAsync(addr, chunks * CHUNK, to, world.lib.ffi.NULL))
        check(world.lib.cu.cuStreamSynchronize(world.lib.ffi.NULL))


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
    assert world.lib.cu.fg_now() - start == pytest.approx(2 * (1300 + CHUNK / 48), abs=4)
    start = world.lib.cu.fg_now()
    prefetch(world, base + 2 * CHUNK, -1, 1)
    assert world.lib.cu.fg_now() - start == pytest.approx(1500 + CHUNK / 12, abs=4)


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
        check(cu.cuMemPrefetchAsync(base, CHUNK, 1, streams[0]))
        check(cu.cuEventRecord(event[0], streams[0]))
        check(cu.cuStreamWaitEvent(streams[1], event[0], 0))
        assert cu.cuEventQuery(event[0]) == 600
        assert cu.cuStreamQuery(streams[1]) == 600
        cu.fg_set_now(cu.fg_now() + 1_000_000)
        assert cu.cuEventQuery(event[0]) == 0
        assert cu.cuStreamQuery(streams[1]) == 0
    assert cu.fg_residency(base) == 2


def test_read_mostly_prefetches_copy_and_a_write_leaves_one(world: World) -> None:
    base = world.managed(0, 1)
    world.kernel(0, base, write=7)
    advise(world, base, READ_MOSTLY, 0)
    prefetch(world, base, -1)
    prefetch(world, base, 2)
    assert world.lib.cu.fg_residency(base) == 1 | 4 | HOST_BIT
    world.kernel(0, base, write=8)
    assert world.lib.cu.fg_residency(base) == 1
    assert world.kernel(2, base) == world.lib.cu.fg_hash_of(8)


def test_unsetting_read_mostly_keeps_the_copy_at_the_preferred_location(world: World) -> None:
    base = world.managed(0, 1)
    world.kernel(0, base, write=7)
    advise(world, base, READ_MOSTLY, 0)
    prefetch(world, base, -1)
    advise(world, base, PREFERRED, -1)
    free = world.stats(0).free_bytes
    advise(world, base, UNSET_READ_MOSTLY, 0)
    assert world.lib.cu.fg_residency(base) == HOST_BIT
    assert world.stats(0).free_bytes == free + CHUNK


def test_a_block_with_a_host_copy_is_evicted_without_a_transfer(world: World) -> None:
    base = world.managed(1, 1)
    world.kernel(1, base, write=7)
    advise(world, base, READ_MOSTLY, 0)
    prefetch(world, base, -1, gpu=1)
    before = world.lib.cu.fg_now()
    device_memory(world, 1, 16)
    assert world.lib.cu.fg_now() == before
    assert world.stats(1).evict_free == 1
    assert world.kernel(0, base) == world.lib.cu.fg_hash_of(7)


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
        check(cu.cuMemPrefetchAsync(base, CHUNK, 3, ffi.NULL))
        cu.fg_set_now(cu.fg_now() + 20_000)
        assert cu.fg_link_set(0, 3, 0) == 0
        assert cu.cuStreamSynchronize(ffi.NULL) == 220
    assert cu.fg_residency(base) == 1
    assert world.kernel(0, base) == cu.fg_hash_of(9)
    assert world.stats(3).free_bytes == SMALL


def test_a_lost_device_takes_what_only_it_had(world: World) -> None:
    base = world.managed(0, 2)
    for chunk in range(2):
        world.kernel(0, base + chunk * CHUNK, write=chunk)
    advise(world, base, READ_MOSTLY, 0)
    prefetch(world, base, -1)
    prefetch(world, base, 1, 2)
    advise(world, base, UNSET_READ_MOSTLY, 0)
    prefetch(world, base, 1, 2)
    advise(world, base, READ_MOSTLY, 0)
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
