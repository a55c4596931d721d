# SPDX-License-Identifier: Apache-2.0
"""What software meets: every register, the standard's start sequence, and what is wrong with it."""

from __future__ import annotations

import random
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from bench import ALL, PAGE, RING, Bench, BusError, pairs_of
from neoprof import regs

REGISTERS = (
    regs.CHMU_CAP0, regs.CHMU_CAP1, regs.CHMU0_CAP0, regs.CHMU0_CAP1,
    regs.CHMU0_RANGE_BITMAP_OFFSET, regs.CHMU0_HOTLIST_OFFSET, regs.CHMU0_CFG0, regs.CHMU0_CFG1,
    regs.CHMU0_CFG2, regs.CHMU0_STATUS, regs.CHMU0_HOTLIST, regs.VENDOR_ID, regs.VENDOR_GEOMETRY,
    regs.VENDOR_TIMEBASE, regs.VENDOR_CONFIG, regs.VENDOR_COMMAND, regs.VENDOR_STATUS,
    regs.VENDOR_CONFIG_ERROR, regs.VENDOR_ERROR_RANK, regs.VENDOR_ERROR_BOUND,
    regs.VENDOR_BUS_ERRORS, regs.VENDOR_THRESHOLD_IN_FORCE, regs.VENDOR_TRACKER, regs.RANGE_GUARD,
)  # fmt: skip
READ_ONLY = (
    regs.CHMU_CAP0, regs.CHMU_CAP1, regs.CHMU0_CAP0, regs.CHMU0_CAP1,
    regs.CHMU0_RANGE_BITMAP_OFFSET, regs.CHMU0_HOTLIST_OFFSET, regs.VENDOR_ID,
    regs.VENDOR_GEOMETRY, regs.VENDOR_TIMEBASE, regs.VENDOR_STATUS, regs.VENDOR_ERROR_BOUND,
    regs.VENDOR_THRESHOLD_IN_FORCE, regs.VENDOR_TRACKER, regs.HOTLIST,
    regs.HOTLIST + regs.HOTLIST_BYTES - 8,
)  # fmt: skip
ALWAYS_ON = 1 << regs.CHMU0_CFG1_MODE_SHIFT


async def _all_same(bench: Bench) -> None:
    for address in REGISTERS:
        await bench.same(address)


@cocotb.test()
async def every_register_after_reset_and_after_random_writes(dut: Any) -> None:
    """All registers equal the model's, reads change nothing, any bytes may be written."""
    bench = Bench(dut)
    await bench.start()
    await _all_same(bench)
    await _all_same(bench)
    rng = random.Random(3)
    strobes = (0xFF, 0x0F, 0xF0, 0x03, 0x0C, 0x30, 0xC0, *(1 << byte for byte in range(8)))
    for _ in range(150):
        address = rng.choice(REGISTERS)
        data = rng.choice((0, ALL, rng.getrandbits(64)))
        if address == regs.CHMU0_CFG0:
            data &= ~regs.CHMU0_CFG0_ENABLE_MASK
        await bench.write(address, data, rng.choice(strobes))
        await bench.same(address)
    await _all_same(bench)
    for offset in range(0, regs.RANGE_BITMAP_BYTES, 8):
        await bench.write(regs.RANGE_BITMAP + offset, rng.getrandbits(64), rng.choice(strobes))
    for offset in range(0, regs.RANGE_BITMAP_BYTES, 8):
        await bench.same(regs.RANGE_BITMAP + offset)


@cocotb.test()
async def unknown_offsets_and_read_only_registers(dut: Any) -> None:
    """Each gets an error answer, changes nothing, is counted, and the next access works."""
    bench = Bench(dut)
    await bench.start()
    errors = 0
    holes = (0x80, 0x48, 0x70 + 0x10, 0x800, 0x1060, 0x1190, 0x1400, 0x1FF8, 0x2208, 0x7FF8)
    for address in holes:
        for access in (bench.bus_read(address), bench.bus_write(address, ALL)):
            try:
                await access
            except BusError:
                errors += 1
            else:
                raise AssertionError(f"0x{address:x} was answered without an error")
    for address in READ_ONLY:
        before = await bench.bus_read(address)
        try:
            await bench.bus_write(address, ALL)
        except BusError:
            errors += 1
        else:
            raise AssertionError(f"write of 0x{address:x} was answered without an error")
        assert await bench.bus_read(address) == before
    # Snapshot and histogram: ignored and counted.
    for address in (regs.SNAPSHOT_OFFERED, regs.HISTOGRAM_BIN):
        before = await bench.bus_read(address)
        await bench.bus_write(address, ALL)
        errors += 1
        assert await bench.bus_read(address) == before
    assert await bench.bus_read(regs.VENDOR_BUS_ERRORS) == errors
    await bench.bus_write(regs.VENDOR_BUS_ERRORS, 0)
    assert await bench.bus_read(regs.VENDOR_BUS_ERRORS) == 0
    # Low address bits select nothing: bytes are chosen by strobes.
    assert await bench.bus_read(regs.VENDOR_ID + 5) == await bench.bus_read(regs.VENDOR_ID)


@cocotb.test()
async def configuration_out_of_range_is_refused_with_a_reason(dut: Any) -> None:
    """Enable falls back to 0, the unit stays off, the error bit says why; then it starts."""
    bench = Bench(dut)
    await bench.start()
    cases = [
        (0, 12 | ALWAYS_ON, 5, regs.VENDOR_CONFIG_ERROR_WHAT_MASK),
        (7, 12 | ALWAYS_ON, 5, regs.VENDOR_CONFIG_ERROR_WHAT_MASK),
        (3, 11 | ALWAYS_ON, 5, regs.VENDOR_CONFIG_ERROR_UNIT_SIZE_MASK),
        (3, 22 | ALWAYS_ON, 5, regs.VENDOR_CONFIG_ERROR_UNIT_SIZE_MASK),
        (3, 12 | ALWAYS_ON | 16 << 32, 5, regs.VENDOR_CONFIG_ERROR_DOWNSAMPLING_MASK),
        (3, 12 | 2 << 40, 5, regs.VENDOR_CONFIG_ERROR_MODE_MASK),
        (3, 12 | 0 << 48 | 1 << 52, 5, regs.VENDOR_CONFIG_ERROR_EPOCH_MASK),
        (3, 12 | 6 << 48 | 1 << 52, 5, regs.VENDOR_CONFIG_ERROR_EPOCH_MASK),
        (3, 12 | 1 << 48 | 0 << 52, 5, regs.VENDOR_CONFIG_ERROR_EPOCH_MASK),
        (3, 12 | ALWAYS_ON, 65536, regs.VENDOR_CONFIG_ERROR_THRESHOLD_MASK),
    ]
    for what, cfg1, threshold, reason in cases:
        await bench.write(regs.CHMU0_CFG1, cfg1)
        await bench.write(regs.CHMU0_CFG0, what | regs.CHMU0_CFG0_ENABLE_MASK | threshold << 32)
        assert await bench.same(regs.VENDOR_CONFIG_ERROR) == reason
        assert not await bench.same(regs.CHMU0_CFG0) & regs.CHMU0_CFG0_ENABLE_MASK
        assert not await bench.same(regs.CHMU0_STATUS) & regs.CHMU0_STATUS_ENABLED_MASK
        await bench.write(regs.VENDOR_CONFIG_ERROR, reason)
        assert await bench.same(regs.VENDOR_CONFIG_ERROR) == 0
    for scale in range(1, 6):
        await bench.write(regs.CHMU0_CFG1, 12 | scale << 48 | 4095 << 52)
        await bench.write(regs.CHMU0_CFG0, 3 | regs.CHMU0_CFG0_ENABLE_MASK | 5 << 32)
        assert await bench.same(regs.CHMU0_STATUS) & regs.CHMU0_STATUS_ENABLED_MASK
        await bench.write(regs.CHMU0_CFG0, 3)
    await bench.configure(5)
    # Running: a threshold that does not fit keeps the old one in force and says so.
    await bench.write(regs.CHMU0_CFG0, 3 | regs.CHMU0_CFG0_ENABLE_MASK | 65536 << 32)
    assert await bench.same(regs.VENDOR_THRESHOLD_IN_FORCE) == 5
    assert await bench.same(regs.VENDOR_CONFIG_ERROR) == regs.VENDOR_CONFIG_ERROR_THRESHOLD_MASK
    await bench.write(regs.CHMU0_CFG0, 3 | regs.CHMU0_CFG0_ENABLE_MASK | 6 << 32)
    assert await bench.same(regs.VENDOR_THRESHOLD_IN_FORCE) == 6
    # Running: the range bitmap is locked.
    before = await bench.bus_read(regs.RANGE_BITMAP)
    await bench.write(regs.RANGE_BITMAP, 0)
    assert await bench.same(regs.RANGE_BITMAP) == before
    errors = await bench.same(regs.VENDOR_CONFIG_ERROR)
    assert errors & regs.VENDOR_CONFIG_ERROR_RANGE_LOCKED_MASK


@cocotb.test()
async def head_outside_the_list_is_refused(dut: Any) -> None:
    """Head moves to anywhere from head to tail and nowhere else, whole or by bytes."""
    bench = Bench(dut)
    await bench.start()
    await bench.configure(1)
    await bench.push(pairs_of([unit * PAGE for unit in range(6) for _ in range(2)]))
    assert (await bench.same(regs.CHMU0_HOTLIST)) >> 16 == 6
    for head, good in ((3, True), (7, False), (RING, False), (0x100, False), (2, False), (6, True)):
        await bench.write(regs.CHMU0_HOTLIST, head, 0x03)
        found = await bench.same(regs.CHMU0_HOTLIST) & 0xFFFF
        assert (found == head) == good
        errors = await bench.same(regs.VENDOR_CONFIG_ERROR)
        assert bool(errors & regs.VENDOR_CONFIG_ERROR_HEAD_MASK) == (not good)
        await bench.write(regs.VENDOR_CONFIG_ERROR, ALL)
    await bench.write(regs.CHMU0_HOTLIST, 0x0100, 0x02)  # upper byte of head alone
    assert await bench.same(regs.VENDOR_CONFIG_ERROR) == regs.VENDOR_CONFIG_ERROR_HEAD_MASK


async def _start_as_the_standard_says(bench: Bench, threshold: int) -> tuple[int, int, int]:
    """Return where the hot list is, its slots, and the width of a count."""
    instance = regs.CHMU0_CAP0
    await bench.bus_write(regs.CHMU0_CFG0, regs.CHMU0_CFG0_RESET_MASK)
    seen = set()
    while operation := (await bench.bus_read(regs.CHMU0_STATUS)) >> 16 & 0xFFFF:
        seen.add(operation)
    assert seen <= {3}
    bitmap = instance + await bench.bus_read(regs.CHMU0_RANGE_BITMAP_OFFSET)
    hotlist = instance + await bench.bus_read(regs.CHMU0_HOTLIST_OFFSET)
    ranges = 1 << 40 >> 28
    await bench.bus_write(regs.CHMU0_CFG1, 12 | ALWAYS_ON)
    # As the kernel's driver does when all is tracked: one word too many.
    for word in range(ranges // 64 + 1):
        await bench.bus_write(bitmap + 8 * word, ALL)
    size = await bench.bus_read(regs.CHMU0_CAP0) >> 48
    assert size == RING
    # A driver maps the common block and the instances by their length: all must be inside.
    length = await bench.bus_read(regs.CHMU_CAP1) & regs.CHMU_CAP1_INSTANCE_LENGTH_MASK
    assert bitmap + ranges // 8 < hotlist <= instance + length - 8 * size
    assert instance + length == regs.HOTLIST + regs.HOTLIST_BYTES
    assert await bench.bus_read(regs.VENDOR_BUS_ERRORS) == 0
    await bench.bus_write(regs.CHMU0_CFG2, size // 2)
    width = await bench.bus_read(regs.CHMU0_STATUS) >> 32 & 0xFF
    assert threshold < 1 << width
    interrupts = regs.CHMU0_CFG0_OVERFLOW_INT_ENABLE_MASK | regs.CHMU0_CFG0_FILL_INT_ENABLE_MASK
    await bench.bus_write(
        regs.CHMU0_CFG0, 3 | interrupts | regs.CHMU0_CFG0_ENABLE_MASK | threshold << 32
    )
    while (await bench.bus_read(regs.CHMU0_STATUS)) >> 16 & 0xFFFF:
        pass
    return hotlist, size, width


@cocotb.test()
async def the_standards_start_sequence(dut: Any) -> None:
    """Reset, wait, CFG1, ranges, CFG2, check, enable, wait; interrupts; list; disable."""
    bench = Bench(dut)
    await bench.start()
    threshold = 3
    hotlist, size, width = await _start_as_the_standard_says(bench, threshold)
    assert not int(dut.irq_o.value)
    units = [11 * unit + 5 for unit in range(size // 2)]
    await bench.play(pairs_of([unit * PAGE for unit in units for _ in range(threshold + 1)]))
    if not int(dut.irq_o.value):
        await RisingEdge(dut.irq_o)
    status = await bench.bus_read(regs.CHMU0_STATUS)
    assert status & regs.CHMU0_STATUS_FILL_MASK
    assert not status & regs.CHMU0_STATUS_OVERFLOW_MASK
    await bench.played()
    pointers = await bench.bus_read(regs.CHMU0_HOTLIST)
    found = []
    for slot in range(pointers & 0xFFFF, pointers >> 16):
        entry = await bench.bus_read(hotlist + 8 * slot)
        found.append((entry >> width, entry & ((1 << width) - 1)))
    assert found == [(unit, threshold + 1) for unit in units]
    # While the condition holds, clearing does not help; head first, then the status.
    await bench.bus_write(regs.CHMU0_STATUS, status)
    assert await bench.bus_read(regs.CHMU0_STATUS) & regs.CHMU0_STATUS_FILL_MASK
    await bench.bus_write(regs.CHMU0_HOTLIST, pointers >> 16, 0x03)
    await bench.bus_write(regs.CHMU0_STATUS, status)
    await bench.settle()
    assert not await bench.bus_read(regs.CHMU0_STATUS) & regs.CHMU0_STATUS_FILL_MASK
    assert not int(dut.irq_o.value)
    # Overflow: more units than the list holds.
    await bench.play(
        pairs_of([unit * PAGE for unit in range(100, 100 + 2 * RING) for _ in range(threshold + 1)])
    )
    await bench.played()
    await bench.settle()
    assert await bench.bus_read(regs.CHMU0_STATUS) & regs.CHMU0_STATUS_OVERFLOW_MASK
    assert int(dut.irq_o.value)
    cfg0 = await bench.bus_read(regs.CHMU0_CFG0)
    await bench.bus_write(regs.CHMU0_CFG0, cfg0 & ~regs.CHMU0_CFG0_ENABLE_MASK)
    while (await bench.bus_read(regs.CHMU0_STATUS)) >> 16 & 0xFFFF:
        pass
    assert not await bench.bus_read(regs.CHMU0_STATUS) & regs.CHMU0_STATUS_ENABLED_MASK


@cocotb.test()
async def the_bus_answers_without_a_memory_clock(dut: Any) -> None:
    """Nothing on the memory side can hang the bus: operations stay in progress, then complete."""
    bench = Bench(dut)
    await bench.start()
    await bench.configure(5)
    bench.stop_memory_clock()
    await bench.bus_write(regs.VENDOR_COMMAND, 3)
    await bench.bus_write(regs.VENDOR_COMMAND, 3)
    await bench.bus_write(regs.CHMU0_HOTLIST, 0, 0x03)
    await ClockCycles(dut.reg_clk_i, 10)
    await bench.bus_write(regs.CHMU0_CFG0, regs.CHMU0_CFG0_RESET_MASK)
    await ClockCycles(dut.reg_clk_i, 300)
    for address in (*REGISTERS, regs.SNAPSHOT_OFFERED, regs.HISTOGRAM_BIN, regs.RANGE_BITMAP,
                    regs.HOTLIST):  # fmt: skip
        await bench.bus_read(address)
    assert (await bench.bus_read(regs.CHMU0_STATUS)) >> 16 & 0xFFFF == 3
    assert await bench.bus_read(regs.VENDOR_STATUS) & regs.VENDOR_STATUS_CLEAR_PENDING_MASK
    bench.start_memory_clock()
    await bench.settle()
    assert not await bench.bus_read(regs.CHMU0_STATUS) & regs.CHMU0_STATUS_ENABLED_MASK


@cocotb.test()
async def a_slow_host_loses_no_answer(dut: Any) -> None:
    """An answer waits for the host's ready, and the address for the data, however late."""
    bench = Bench(dut)
    await bench.start()
    for delay in (0, 1, 2, 7):
        dut.axil_awaddr_i.value = regs.CHMU0_CFG2
        dut.axil_awvalid_i.value = 1
        await RisingEdge(dut.reg_clk_i)
        dut.axil_awvalid_i.value = 0
        await ClockCycles(dut.reg_clk_i, delay + 1)
        dut.axil_wdata_i.value = 40 + delay
        dut.axil_wstrb_i.value = 0xFF
        dut.axil_wvalid_i.value = 1
        await RisingEdge(dut.reg_clk_i)
        dut.axil_wvalid_i.value = 0
        # A read right behind it; neither answer is taken yet.
        dut.axil_araddr_i.value = regs.CHMU0_CFG2
        dut.axil_arvalid_i.value = 1
        await RisingEdge(dut.reg_clk_i)
        dut.axil_arvalid_i.value = 0
        await ClockCycles(dut.reg_clk_i, delay + 4)
        assert int(dut.axil_bvalid_o.value)
        dut.axil_bready_i.value = 1
        await RisingEdge(dut.reg_clk_i)
        dut.axil_bready_i.value = 0
        await ClockCycles(dut.reg_clk_i, delay + 4)
        assert int(dut.axil_rvalid_o.value)
        assert int(dut.axil_rdata_o.value) == 40 + delay
        dut.axil_rready_i.value = 1
        await RisingEdge(dut.reg_clk_i)
        dut.axil_rready_i.value = 0
        await ClockCycles(dut.reg_clk_i, 4)
        assert not int(dut.axil_rvalid_o.value) and not int(dut.axil_bvalid_o.value)


@cocotb.test()
async def clocks_of_any_relation(dut: Any) -> None:
    """The same traffic and commands with a register clock slower and faster than the memory's."""
    rng = random.Random(9)
    bench = Bench(dut, mem_ps=9700, reg_ps=1300)
    await bench.start()
    await bench.configure(3)
    for _ in range(3):
        await bench.push(pairs_of([rng.randrange(40) * PAGE for _ in range(400)]))
        await bench.snapshot_same()
        await bench.drain()


@cocotb.test()
async def error_bound_of_any_rank(dut: Any) -> None:
    """The bound is the bin of the rank-th largest counter; a rank that is none is refused."""
    bench = Bench(dut)
    await bench.start()
    await bench.configure(1000)
    rng = random.Random(4)
    await bench.push(pairs_of([int(300 * rng.random() ** 3) * PAGE for _ in range(6000)]))
    for rank in (1, 2, 20, 128, 255, 256, 0, 257, 1 << 31):
        await bench.write(regs.VENDOR_ERROR_RANK, rank)
        await bench.snapshot_same()
        bound = await bench.same(regs.VENDOR_ERROR_BOUND)
        assert bool(bound & regs.VENDOR_ERROR_BOUND_VALID_MASK) == (1 <= rank <= 256)
        errors = await bench.same(regs.VENDOR_CONFIG_ERROR)
        assert bool(errors & regs.VENDOR_CONFIG_ERROR_ERROR_RANK_MASK) == (not 1 <= rank <= 256)
        await bench.write(regs.VENDOR_CONFIG_ERROR, ALL)
