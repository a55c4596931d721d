# SPDX-License-Identifier: Apache-2.0
"""Commands that follow each other without a look at what is pending, and a bus that is reset."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge, Timer

from bench import ALL, PAGE, Bench, BusError, pairs_of
from neoprof import regs

CLEAR = regs.VENDOR_COMMAND_CLEAR_MASK
SNAPSHOT = regs.VENDOR_COMMAND_SNAPSHOT_MASK
ALWAYS_ON = 1 << regs.CHMU0_CFG1_MODE_SHIFT


@cocotb.test()
async def an_access_at_any_clock_after_a_reset_is_answered(dut: Any) -> None:
    """The bus takes nothing while its inner reset is held, which ends clocks after the pin's."""
    bench = Bench(dut)
    await bench.start()
    for clocks in range(6):
        for early_ps in (100, 4100):
            dut.rst_ni.value = 0
            await ClockCycles(dut.reg_clk_i, 3)
            await Timer(early_ps, unit="ps")
            dut.rst_ni.value = 1
            if clocks:
                await ClockCycles(dut.reg_clk_i, clocks)
            assert await bench.bus_read(regs.VENDOR_ID) == bench.model.read(regs.VENDOR_ID)
            dut.rst_ni.value = 0
            await ClockCycles(dut.reg_clk_i, 3)
            await Timer(early_ps, unit="ps")
            dut.rst_ni.value = 1
            if clocks:
                await ClockCycles(dut.reg_clk_i, clocks)
            await bench.bus_write(regs.CHMU0_CFG2, 7)
            assert await bench.bus_read(regs.CHMU0_CFG2) == 7


@cocotb.test()
async def nothing_is_taken_while_reset_is_held(dut: Any) -> None:
    """No ready in reset: a master that waits for one keeps its address."""
    bench = Bench(dut)
    await bench.start()
    dut.rst_ni.value = 0
    await Timer(100, unit="ps")
    for _ in range(8):
        await RisingEdge(dut.reg_clk_i)
        for ready in (dut.axil_awready_o, dut.axil_wready_o, dut.axil_arready_o):
            assert not int(ready.value)
    await bench.reset()


@cocotb.test()
async def a_disable_and_an_enable_behind_another_command_are_two(dut: Any) -> None:
    """What is configured in between is in force afterwards."""
    bench = Bench(dut)
    await bench.start()
    for first in ((regs.VENDOR_COMMAND, SNAPSHOT), (regs.VENDOR_COMMAND, CLEAR | SNAPSHOT), None):
        await bench.configure(3)
        bench.stop_memory_clock()
        enable = 3 | regs.CHMU0_CFG0_ENABLE_MASK | 3 << regs.CHMU0_CFG0_THRESHOLD_SHIFT
        disable = enable & ~regs.CHMU0_CFG0_ENABLE_MASK
        for address, data in (
            *([first] if first else []),
            (regs.CHMU0_CFG0, disable),
            (regs.CHMU0_CFG1, 21 | ALWAYS_ON),
            (regs.CHMU0_CFG0, enable),
            (regs.CHMU0_CFG0, disable),
            (regs.CHMU0_CFG0, enable),
        ):
            await bench.bus_write(address, data)
            bench.model_write(address, data)
        operation = await bench.bus_read(regs.CHMU0_STATUS) >> 16 & 0xFFFF
        assert operation == 2, "the disable is in progress"
        bench.start_memory_clock()
        await bench.settle()
        assert await bench.same(regs.CHMU0_STATUS) & regs.CHMU0_STATUS_ENABLED_MASK
        lines = [(unit << 21) + line * PAGE for unit in range(4) for line in range(8)]
        await bench.push(pairs_of(lines))
        await bench.snapshot_same()
        assert await bench.hotlist_same() == 4


@cocotb.test()
async def an_enable_that_is_taken_back_while_on_its_way_ends_disabled(dut: Any) -> None:
    """Enable, disable, perhaps enable with something else, all before the first is done."""
    bench = Bench(dut)
    await bench.start()
    for again in (False, True):
        await bench.write(regs.CHMU0_CFG0, regs.CHMU0_CFG0_RESET_MASK)
        await bench.write(regs.RANGE_BITMAP, ALL)
        await bench.write(regs.CHMU0_CFG1, 12 | ALWAYS_ON)
        bench.stop_memory_clock()
        on = 3 | regs.CHMU0_CFG0_ENABLE_MASK | 1 << regs.CHMU0_CFG0_THRESHOLD_SHIFT
        off = on & ~regs.CHMU0_CFG0_ENABLE_MASK
        writes = [(regs.CHMU0_CFG0, on), (regs.CHMU0_CFG0, off)]
        if again:
            writes += [(regs.CHMU0_CFG1, 21 | ALWAYS_ON), (regs.CHMU0_CFG0, on)]
        for address, data in writes:
            await bench.bus_write(address, data)
            bench.model_write(address, data)
        bench.start_memory_clock()
        await bench.settle()
        status = await bench.same(regs.CHMU0_STATUS)
        assert bool(status & regs.CHMU0_STATUS_ENABLED_MASK) is again
        await bench.push(pairs_of([unit * PAGE for unit in range(8)]))
        await bench.snapshot_same()
        assert await bench.hotlist_same() == again


@cocotb.test()
async def a_snapshot_with_a_clear_is_of_all_before(dut: Any) -> None:
    """In one write both act at one moment; in two writes they act in their order."""
    bench = Bench(dut)
    await bench.start()
    traffic = pairs_of([unit * PAGE for unit in range(40) for _ in range(unit + 1)])
    for writes, counted in (
        ([CLEAR | SNAPSHOT], True),
        ([SNAPSHOT, CLEAR], True),
        ([CLEAR, SNAPSHOT], False),
    ):
        await bench.configure(1000)
        await bench.push(traffic)
        bench.stop_memory_clock()
        # A command that is on its way keeps the others waiting.
        await bench.bus_write(regs.CHMU0_CFG0, 3)
        bench.model_write(regs.CHMU0_CFG0, 3)
        for data in writes:
            await bench.bus_write(regs.VENDOR_COMMAND, data)
            bench.model_write(regs.VENDOR_COMMAND, data)
        bench.start_memory_clock()
        await bench.settle()
        await bench.visible_same()
        above = 0
        for bin_ in range(1, regs.HISTOGRAM_BIN_COUNT):
            above += await bench.same(regs.HISTOGRAM_BIN + 8 * bin_)
        assert (above > 0) is counted
        # The next snapshot is of the new epoch in any case.
        await bench.write(regs.VENDOR_COMMAND, SNAPSHOT)
        for bin_ in range(1, regs.HISTOGRAM_BIN_COUNT):
            assert await bench.same(regs.HISTOGRAM_BIN + 8 * bin_) == 0


@cocotb.test()
async def refusals_that_end_in_one_clock_are_all_counted(dut: Any) -> None:
    """A refused read whose answer is taken late, in any clock around a write that is ignored."""
    bench = Bench(dut)
    await bench.start()
    await ClockCycles(dut.reg_clk_i, 80)  # the range bitmap is zeroed, and blocks wait for that
    for late in range(12):
        before = await bench.bus_read(regs.VENDOR_BUS_ERRORS)
        dut.axil_araddr_i.value = 0x1400  # no register
        dut.axil_arvalid_i.value = 1
        await bench._until(dut.axil_arready_o)
        dut.axil_arvalid_i.value = 0
        dut.axil_awaddr_i.value = regs.SNAPSHOT_OFFERED  # read-only
        dut.axil_wdata_i.value, dut.axil_wstrb_i.value = 0, 0xFF
        dut.axil_awvalid_i.value = dut.axil_wvalid_i.value = dut.axil_bready_i.value = 1
        await bench._until(dut.axil_awready_o)
        dut.axil_awvalid_i.value = dut.axil_wvalid_i.value = 0
        if late:
            await ClockCycles(dut.reg_clk_i, late)
        dut.axil_rready_i.value = 1
        await bench._until(dut.axil_rvalid_o)
        dut.axil_rready_i.value = 0
        await ClockCycles(dut.reg_clk_i, 12)
        dut.axil_bready_i.value = 0
        assert await bench.bus_read(regs.VENDOR_BUS_ERRORS) - before == 2, late


@cocotb.test()
async def a_write_of_no_bytes_changes_nothing(dut: Any) -> None:
    """Nor does one of other bytes clear the count of refusals."""
    bench = Bench(dut)
    await bench.start()
    try:
        await bench.bus_read(0x1400)
    except BusError:
        pass
    else:
        raise AssertionError("no register was answered without an error")
    for data, strobe in ((0, 0), (0, 0xF0), (ALL, 0xFF)):
        await bench.bus_write(regs.VENDOR_BUS_ERRORS, data, strobe)
        assert await bench.bus_read(regs.VENDOR_BUS_ERRORS) == 1
    await bench.bus_write(regs.VENDOR_BUS_ERRORS, 0, 0x0F)
    assert await bench.bus_read(regs.VENDOR_BUS_ERRORS) == 0


@cocotb.test()
async def the_largest_threshold_is_never_passed(dut: Any) -> None:
    """Counters end there; one below is passed, once."""
    bench = Bench(dut)
    await bench.start()
    for threshold, entries in ((65535, 0), (65534, 1)):
        await bench.configure(threshold)
        await bench.push(pairs_of([7 * PAGE] * 65600))
        assert await bench.hotlist_same() == entries


@cocotb.test()
async def each_interrupt_has_its_own_enable(dut: Any) -> None:
    """Of the two conditions, only the one that is enabled drives the pin."""
    bench = Bench(dut)
    await bench.start()
    overflow, fill = regs.CHMU0_CFG0_OVERFLOW_INT_ENABLE_MASK, regs.CHMU0_CFG0_FILL_INT_ENABLE_MASK
    on = 3 | regs.CHMU0_CFG0_ENABLE_MASK | 1 << regs.CHMU0_CFG0_THRESHOLD_SHIFT
    await bench.configure(1)
    await bench.write(regs.CHMU0_CFG2, 2)
    await bench.push(pairs_of([unit * PAGE for unit in range(4) for _ in range(2)]))
    await bench.settle()
    for enabled, high in ((0, 0), (overflow, 0), (fill, 1), (overflow | fill, 1)):
        await bench.write(regs.CHMU0_CFG0, on | enabled)
        assert int(dut.irq_o.value) == high
    await bench.write(regs.CHMU0_CFG2, 0)
    await bench.push(pairs_of([unit * PAGE for unit in range(10, 60) for _ in range(2)]))
    await bench.settle()
    await bench.bus_write(regs.CHMU0_STATUS, regs.CHMU0_STATUS_FILL_MASK)
    for enabled, high in ((0, 0), (fill, 0), (overflow, 1)):
        await bench.bus_write(regs.CHMU0_CFG0, on | enabled)
        await bench.settle()
        assert int(dut.irq_o.value) == high
