# SPDX-License-Identifier: Apache-2.0
"""Requests, counters, hot list and epochs against the model, bit for bit."""

from __future__ import annotations

import os
import random
from itertools import pairwise
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles

from bench import (
    ALL,
    CYCLES_PER_100US,
    PAGE,
    RING,
    Bench,
    pairs_of,
    random_pairs,
)
from neoprof import regs
from neoprof.card import NONE, WRITE

ROUNDS = int(os.environ.get("NP_ROUNDS", "12"))
SEED = int(os.environ.get("NP_SEED", "1"))
ALWAYS_ON = 1 << regs.CHMU0_CFG1_MODE_SHIFT


@cocotb.test()
async def random_streams_equal_the_model(dut: Any) -> None:
    """Random streams over few pages, every mode, compared after every step."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED)
    reports = 0
    for step in range(ROUNDS):
        if step % 3 == 0:
            await bench.configure(
                rng.randrange(1, 40),
                what=rng.randrange(1, 7),
                cfg1=rng.randrange(12, 22) | ALWAYS_ON | rng.choice((0, 0, 1, 3)) << 32,
                conservative=step // 3 % 2,
                coalesce=rng.randrange(2),
                random_sampling=rng.randrange(2),
            )
        await bench.push(random_pairs(rng, 800, pages=rng.choice((3, 24, 400))))
        await bench.snapshot_same()
        reports += await bench.drain()
    assert reports > ROUNDS


@cocotb.test()
async def hazards_at_every_distance(dut: Any) -> None:
    """Two units of one group of counters and one unit alone, 0 to 6 cycles apart, each channel."""
    bench = Bench(dut)
    await bench.start()
    for conservative in (0, 1):
        await bench.configure(3, conservative=conservative)
        units = [0, 1, 2, 5]
        for distance in range(7):
            for first in (0, 1):
                for second in (0, 1):
                    for other in units:
                        pairs = [[NONE, NONE] for _ in range(distance + 1)]
                        pairs[0][first] = 0
                        if pairs[distance][second] == NONE:
                            pairs[distance][second] = other * PAGE
                        await _gather(bench, [(a, b) for a, b in pairs])
        await _flush(bench)
        await bench.snapshot_same()
        await bench.drain()


_pending: list[tuple[int, int]] = []


async def _gather(bench: Bench, pairs: list[tuple[int, int]]) -> None:
    """Play short scripts together, the memories' read latency apart."""
    _pending.extend(pairs)
    _pending.extend([(NONE, NONE)] * 8)


async def _flush(bench: Bench) -> None:
    await bench.push(list(_pending))
    _pending.clear()


@cocotb.test()
async def both_channels_on_one_entry_every_clock(dut: Any) -> None:
    """One unit from both channels, each clock, until the counter stops at its maximum."""
    bench = Bench(dut)
    await bench.start()
    await bench.configure(60000)
    for _ in range(3):
        await bench.push([(7 * PAGE, 7 * PAGE)] * 11000)
        await bench.snapshot_same()
    assert bench.model.snapshot().saturated == 2 * (66000 - 65535)
    await bench.bus_write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
    await bench.settle()
    assert await bench.same(regs.SNAPSHOT_COUNTED) == 66000
    assert await bench.same(regs.HISTOGRAM_BIN + 8 * 63) == 1


@cocotb.test()
async def epoch_changes_under_full_load(dut: Any) -> None:
    """A clear while both channels are busy: exactly the requests before it are forgotten."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 1)
    for step in range(ROUNDS // 2):
        await bench.configure(4, conservative=step % 2)
        pairs = random_pairs(rng, 6000, pages=rng.choice((1, 2, 6, 60)), idle=0.0)
        await bench.command_under_load(pairs, regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_CLEAR_MASK)


@cocotb.test()
async def an_epoch_that_is_read_and_ended_under_full_load(dut: Any) -> None:
    """Each request is in exactly one of the epochs' snapshots."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 7)
    for step in range(ROUNDS // 2):
        await bench.configure(4, conservative=step % 2)
        pairs = random_pairs(rng, 6000, pages=rng.choice((1, 2, 6, 60)), idle=0.0)
        await bench.end_epoch_under_load(pairs)


@cocotb.test()
async def threshold_changes_mid_stream_and_clears_nothing(dut: Any) -> None:
    """Counters stand, reports follow the new threshold from one request on."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 2)
    for _ in range(ROUNDS // 4 + 1):
        await bench.configure(400)
        pairs = random_pairs(rng, 6000, pages=12, idle=0.1)
        cfg0 = 3 | regs.CHMU0_CFG0_ENABLE_MASK | rng.randrange(2, 60) << 32
        await bench.command_under_load(pairs, regs.CHMU0_CFG0, cfg0)


@cocotb.test()
async def full_ring_refuses_counts_and_recovers(dut: Any) -> None:
    """Ring full: refused reports are counted, and the unit is reported once there is room."""
    bench = Bench(dut)
    await bench.start()
    await bench.configure(2)
    for start in range(0, 3 * RING, 10):
        requests = [(start + unit) * PAGE for unit in range(10) for _ in range(4)]
        rng = random.Random(start)
        rng.shuffle(requests)
        await bench.push(pairs_of(requests))
        await bench.snapshot_same()
    shot = bench.model.snapshot()
    await bench.bus_write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
    await bench.settle()
    assert shot.reports == RING - 1 and shot.reports_refused > 0
    status = await bench.same(regs.CHMU0_STATUS)
    assert status & regs.CHMU0_STATUS_OVERFLOW_MASK
    assert await bench.drain() == RING - 1
    # The refused units come at their next request; with each round the ring wraps.
    seen = 0
    for _ in range(4):
        await bench.push(pairs_of([unit * PAGE for unit in range(3 * RING)]))
        seen += await bench.drain()
    await bench.snapshot_same()
    assert seen == 3 * RING - (RING - 1)


@cocotb.test()
async def two_reports_a_clock_fill_and_wrap_the_ring(dut: Any) -> None:
    """Both channels report in one clock, at every position of the ring, odd and even."""
    bench = Bench(dut)
    await bench.start()
    unit = 0
    for start in range(2):
        await bench.configure(0)
        await bench.push([((1 << 20) * PAGE, NONE)] * start)
        for _ in range(12):
            pairs = [((unit + 2 * i) * PAGE, (unit + 2 * i + 1) * PAGE) for i in range(3)]
            unit += 6
            await bench.push(pairs)
            await bench.drain()
        await bench.snapshot_same()


@cocotb.test()
async def conservative_update_with_crowded_rows(dut: Any) -> None:
    """More units than counters: the rows differ, and only the smaller one is raised."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 6)
    await bench.configure(50, conservative=1)
    for _ in range(3):
        await bench.push(pairs_of([rng.randrange(600) * PAGE for _ in range(3000)]))
        await bench.snapshot_same()
        await bench.drain()


@cocotb.test()
async def reports_that_meet_an_epoch_change(dut: Any) -> None:
    """A report in every phase of the epoch, the cycle of the change included: none is lost."""
    bench = Bench(dut, reg_ps=1700)
    await bench.start()
    count = 3 * CYCLES_PER_100US
    await bench.bus_write(regs.RANGE_BITMAP, ALL)
    await bench.bus_write(regs.CHMU0_CFG1, 12 | 1 << 48 | 1 << 52)
    await bench.bus_write(regs.CHMU0_CFG0, 3 | regs.CHMU0_CFG0_ENABLE_MASK)
    await bench.settle()
    pairs = []
    for unit in range(count):
        request = (unit * PAGE, NONE) if unit % 2 else (unit * PAGE, unit * PAGE)
        pairs += [request, *[(NONE, NONE)] * CYCLES_PER_100US]
    await bench.play(pairs)
    found, head, last = [], 0, False
    while not last:
        last = not int(dut.playing_o.value)
        if last:
            await bench.played()
            await bench.settle()
        tail = await bench.bus_read(regs.CHMU0_HOTLIST) >> 16
        while head != tail:
            found.append(await bench.bus_read(regs.HOTLIST + 8 * head) >> 16)
            head = (head + 1) % RING
        await bench.bus_write(regs.CHMU0_HOTLIST, head, 0x03)
    # A unit whose two requests of one clock are never parted by an epoch is reported once.
    assert found == list(range(count))


@cocotb.test()
async def every_filter_counts_what_it_leaves_out(dut: Any) -> None:
    """Type, range, down-sampling: offered is the sum of counted and the three skipped."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 3)
    requests = [
        rng.choice((0, WRITE))
        | rng.choice((0, 1 << 28, 63 << 28, 1 << 34, 1 << 40, 1 << 43))
        | rng.randrange(8) * PAGE
        for _ in range(600)
    ]
    for what in (1, 2, 4, 5):
        for sampling in (0, 2):
            for random_sampling in (0, 1):
                await bench.configure(
                    9,
                    what=what,
                    cfg1=12 | ALWAYS_ON | sampling << 32,
                    random_sampling=random_sampling,
                    ranges=0x8000_0000_0000_0001,
                )
                await bench.push(pairs_of(requests))
                await bench.snapshot_same()
                shot = bench.model.snapshot()
                await bench.bus_write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
                await bench.settle()
                skipped = shot.skipped_type + shot.skipped_range + shot.skipped_sample
                assert shot.offered == len(requests) == shot.counted + skipped
                assert shot.skipped_type and shot.skipped_range
                assert bool(shot.skipped_sample) == bool(sampling)


@cocotb.test()
async def epochs_by_the_clock(dut: Any) -> None:
    """In epoch mode the counters are cleared every scale x multiplier, to the cycle."""
    bench = Bench(dut, reg_ps=2300)
    await bench.start()
    multiplier, scale = 3, 2
    period = multiplier * 10 ** (scale - 1) * CYCLES_PER_100US
    await bench.bus_write(regs.RANGE_BITMAP, ALL)
    await bench.bus_write(regs.CHMU0_CFG1, 12 | scale << 48 | multiplier << 52)
    await bench.bus_write(regs.CHMU0_CFG0, 3 | regs.CHMU0_CFG0_ENABLE_MASK | 5 << 32)
    await bench.settle()
    # One request a clock on each channel: epoch starts are counted in requests.
    await bench.play([(PAGE, PAGE)] * (4 * period))
    starts = []
    while int(dut.playing_o.value):
        await bench.bus_write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
        await bench.settle()
        start = await bench.bus_read(regs.SNAPSHOT_EPOCH_START)
        epoch = await bench.bus_read(regs.SNAPSHOT_EPOCH)
        if start and (epoch, start) not in starts:
            starts.append((epoch, start))
    assert len(starts) >= 3
    for (epoch, start), (next_epoch, next_start) in pairwise(starts):
        assert next_epoch == epoch + 1
        assert next_start - start == 2 * period
    await bench.played()


@cocotb.test()
async def hardware_reset_at_any_time(dut: Any) -> None:
    """Reset in the middle of traffic and of commands: afterwards all is as after power-on."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 4)
    for _ in range(ROUNDS // 2):
        await bench.configure(2)
        await bench.play(random_pairs(rng, 3000, pages=30))
        await ClockCycles(dut.mem_clk_i, rng.randrange(20, 900))
        await bench.bus_write(
            regs.VENDOR_COMMAND,
            rng.choice((0, regs.VENDOR_COMMAND_CLEAR_MASK, regs.VENDOR_COMMAND_SNAPSHOT_MASK)),
        )
        await ClockCycles(dut.mem_clk_i, rng.randrange(12))
        await bench.reset()
        for address in (
            regs.CHMU0_CFG0,
            regs.CHMU0_CFG1,
            regs.CHMU0_STATUS,
            regs.CHMU0_HOTLIST,
            regs.RANGE_BITMAP,
            regs.VENDOR_ERROR_RANK,
        ):
            await bench.same(address)
        await bench.configure(2)
        await bench.push(random_pairs(rng, 300, pages=30))
        await bench.snapshot_same()
        await bench.drain()


@cocotb.test()
async def disable_and_unit_reset_lose_nothing_they_should_keep(dut: Any) -> None:
    """Disabling keeps counters and drains the pipeline; CFG0.reset empties all."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 5)
    await bench.configure(6)
    await bench.push(random_pairs(rng, 500))
    await bench.write(regs.CHMU0_CFG0, 3 | 6 << 32)
    await bench.push(random_pairs(rng, 100))  # not offered, but on the wires
    await bench.snapshot_same()
    await bench.write(regs.CHMU0_CFG0, 3 | regs.CHMU0_CFG0_ENABLE_MASK | 6 << 32)
    await bench.push(random_pairs(rng, 500))
    await bench.snapshot_same()
    enabled_reset = 3 | regs.CHMU0_CFG0_ENABLE_MASK | regs.CHMU0_CFG0_RESET_MASK | 6 << 32
    await bench.write(regs.CHMU0_CFG0, enabled_reset)
    await bench.snapshot_same()
    assert await bench.same(regs.CHMU0_STATUS) & regs.CHMU0_STATUS_ENABLED_MASK
    assert await bench.same(regs.SNAPSHOT_OFFERED) == 0
    await bench.push(random_pairs(rng, 500))
    await bench.snapshot_same()
