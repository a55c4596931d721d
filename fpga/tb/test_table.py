# SPDX-License-Identifier: Apache-2.0
"""The tagged table against its model and against what is promised of it, on a card that has it."""

from __future__ import annotations

import os
import random
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles

from bench import CYCLES_PER_100US, LINE, LOG2_WIDTH, PAGE, RING, Bench, pairs_of, random_pairs
from neoprof import Card, regs
from neoprof.card import NONE

ROUNDS = int(os.environ.get("NP_ROUNDS", "12"))
SEED = int(os.environ.get("NP_SEED", "1"))
ALWAYS_ON = 1 << regs.CHMU0_CFG1_MODE_SHIFT
WAYS = 8
SETS = (1 << LOG2_WIDTH) // WAYS


def of_one_set(count: int) -> list[int]:
    """Return pages of one set: those whose count a model of its own keeps beside that of page 0."""
    pages = [0]
    with Card("model-table", log2_width=LOG2_WIDTH, ring_size=RING) as card:
        card.start(100)
        for page in range(1, 64 * SETS):
            card.write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_CLEAR_MASK)
            card.push([0, page * PAGE])
            # The hash is linear: page 0 is in set 0, and takes its first entry.
            if card.peek(0, 1):
                pages.append(page)
            if len(pages) == count:
                return pages
    raise AssertionError(f"there are no {count} pages in one set")


async def _snapshot_counted(bench: Bench) -> int:
    await bench.snapshot_same()
    return await bench.same(regs.SNAPSHOT_COUNTED)


@cocotb.test()
async def the_card_says_that_it_has_a_table(dut: Any) -> None:
    """Kind, ways and parts; one row of so many entries."""
    bench = Bench(dut)
    await bench.start()
    assert await bench.same(regs.VENDOR_TRACKER) == 1 | WAYS << 8 | 64 << 16
    geometry = await bench.same(regs.VENDOR_GEOMETRY)
    assert geometry & 0xFFFF == 1 | LOG2_WIDTH << 8


@cocotb.test()
async def random_streams_equal_the_model(dut: Any) -> None:
    """Random streams over few pages and over more than there are entries, every mode."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED)
    reports = displaced = merged = 0
    for step in range(2 * ROUNDS):
        if step % 3 == 0:
            await bench.configure(
                rng.randrange(0, 20),
                what=rng.randrange(1, 7),
                cfg1=rng.choice((12, 12, 13, 18, 21)) | ALWAYS_ON | rng.choice((0, 0, 1)) << 32,
                coalesce=rng.randrange(2),
                by_parts=step // 3 % 2,
                random_sampling=rng.randrange(2),
            )
        pages = rng.choice((3, 24, 400, 3000))
        await bench.push(random_pairs(rng, 800, pages=pages, idle=step % 2 * 0.3))
        await bench.snapshot_same()
        displaced += await bench.same(regs.SNAPSHOT_DISPLACED)
        merged += await bench.same(regs.SNAPSHOT_SKIPPED_RUN)
        reports += await bench.drain()
    assert reports > ROUNDS
    assert displaced > 100 < merged


@cocotb.test()
async def hazards_at_every_distance(dut: Any) -> None:
    """Units of one set and a unit alone, 0 to 6 cycles apart, on each channel, set full or not."""
    bench = Bench(dut)
    await bench.start()
    for by_parts in (0, 1):
        await bench.configure(3, by_parts=by_parts)
        pages = of_one_set(WAYS + 3)
        pairs: list[tuple[int, int]] = []
        for distance in range(7):
            for first in (0, 1):
                for second in (0, 1):
                    for other in (*pages[: WAYS + 2], 1):
                        script = [[NONE, NONE] for _ in range(distance + 1)]
                        script[0][first] = pages[WAYS + 2] * PAGE + other % 3 * LINE
                        if script[distance][second] == NONE:
                            script[distance][second] = other * PAGE + distance * 9 * LINE
                        pairs += [(a, b) for a, b in script] + [(NONE, NONE)] * 8
        await bench.push(pairs)
        await bench.snapshot_same()
        await bench.drain()


@cocotb.test()
async def one_set_from_both_channels_every_clock(dut: Any) -> None:
    """More units than the set has entries, at full load, in all orders: nothing is lost."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 3)
    pages = of_one_set(WAYS + 6)
    for step in range(ROUNDS):
        await bench.configure(rng.randrange(1, 30), by_parts=step % 2)
        weights = [rng.random() ** 4 for _ in pages]
        requests = [
            page * PAGE + rng.randrange(64) * LINE for page in rng.choices(pages, weights, k=3000)
        ]
        await bench.push(pairs_of(requests))
        await bench.snapshot_same()
        await bench.drain()
        counted = await bench.same(regs.SNAPSHOT_COUNTED)
        assert counted + await bench.same(regs.SNAPSHOT_SKIPPED_RUN) == 3000


@cocotb.test()
async def one_unit_until_its_counter_stops(dut: Any) -> None:
    """One unit from both channels, each clock: 65,535 and what was not added."""
    bench = Bench(dut)
    await bench.start()
    await bench.configure(60000)
    for _ in range(3):
        await bench.push([(7 * PAGE, 7 * PAGE)] * 11000)
        await bench.snapshot_same()
    assert await bench.same(regs.SNAPSHOT_SATURATED) == 66000 - 65535
    assert await bench.same(regs.SNAPSHOT_COUNTED) == 66000
    assert await bench.same(regs.HISTOGRAM_BIN + 8 * 63) == 1


@cocotb.test()
async def a_unit_without_room_lowers_the_smallest_count(dut: Any) -> None:
    """It takes the entry when one is left of it; the unit that lost it may be reported again."""
    bench = Bench(dut)
    await bench.start()
    await bench.configure(2)
    pages = of_one_set(WAYS + 1)
    for page in pages[:WAYS]:
        await bench.push([(page * PAGE, page * PAGE)] * (2 if page == pages[3] else 5))
    assert await bench.drain() == WAYS
    late = pages[WAYS]
    await bench.push([(late * PAGE, NONE)] * 3)
    await bench.snapshot_same()
    assert await bench.same(regs.SNAPSHOT_DISPLACED) == 3
    # The entry had 4 and has 1; the next request takes it, and two more report its unit.
    await bench.push([(late * PAGE, NONE)] * 3)
    await bench.snapshot_same()
    assert await bench.same(regs.SNAPSHOT_DISPLACED) == 4
    assert await bench.hotlist_same() == 1
    assert await bench.same(regs.HOTLIST + 8 * (WAYS % RING)) == late << 16 | 3
    await bench.push([(pages[3] * PAGE, NONE)] * 6)
    await bench.snapshot_same()
    assert await bench.hotlist_same() == 2


@cocotb.test()
async def lines_in_any_order_are_one_use(dut: Any) -> None:
    """A page read from end to end counts once: late channels, reordered lines, several readers."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 5)
    up = list(range(64))
    orders = [up, up[::-1], [*up[::2], *up[1::2]], [line ^ 7 for line in up]]
    orders += [
        [line for first in up[::8] for line in rng.sample(range(first, first + 8), 8)]
        for _ in range(2)
    ]
    for lines in orders:
        await bench.configure(9, by_parts=1)
        for page in range(4):
            await bench.push(pairs_of([page * PAGE + line * LINE for line in lines]))
        assert await _snapshot_counted(bench) == 4
    # Channel 1 is late, and the next page comes before the last one is done.
    for late in (1, 2, 3, 8):
        await bench.configure(9, by_parts=1)
        count = 4 * 32
        pairs = [
            (
                2 * clock * LINE if clock < count else NONE,
                (2 * (clock - late) + 1) * LINE if clock >= late else NONE,
            )
            for clock in range(count + late)
        ]
        await bench.push(pairs)
        assert await _snapshot_counted(bench) == 4
    # Read twice is used twice; one line again and again is used each time.
    await bench.configure(9, by_parts=1)
    await bench.push(pairs_of([line * LINE for line in up * 2]))
    assert await _snapshot_counted(bench) == 2
    await bench.configure(9, by_parts=1)
    await bench.push([(PAGE, PAGE)] * 10)
    assert await _snapshot_counted(bench) == 20


@cocotb.test()
async def a_unit_without_room_is_one_use_too(dut: Any) -> None:
    """A page that is read past a full set lowers one count by one, not by 64."""
    bench = Bench(dut)
    await bench.start()
    await bench.configure(100, by_parts=1)
    pages = of_one_set(WAYS + 2)
    for page in pages[:WAYS]:
        await bench.push([(page * PAGE, page * PAGE)] * 5)
    for done in range(1, 4):
        await bench.push(pairs_of([pages[WAYS] * PAGE + line * LINE for line in range(64)]))
        await bench.snapshot_same()
        assert await bench.same(regs.SNAPSHOT_DISPLACED) == done
    # Two such pages in turn push each other out of the place beside the set.
    both = [page * PAGE + line * LINE for line in range(4) for page in pages[WAYS:]]
    await bench.push(pairs_of(both))
    await bench.snapshot_same()
    assert await bench.same(regs.SNAPSHOT_DISPLACED) == 3 + 8


@cocotb.test()
async def touched_parts_are_forgotten_by_the_clock(dut: Any) -> None:
    """A page that is touched all the time is one use a window."""
    bench = Bench(dut, reg_ps=2300)
    await bench.start()
    for window in (20, 60):
        await bench.configure(9, by_parts=1, use_window=window)
        cycles = 10 * window * (CYCLES_PER_100US // 20)
        # Lines 0 to 8 in turn are near each other; 64 requests would be a read page.
        await bench.play([(PAGE, PAGE + LINE), *[(NONE, NONE)] * 3] * (cycles // 4))
        await bench.played()
        await bench.bus_write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
        await bench.settle()
        counted = await bench.bus_read(regs.SNAPSHOT_COUNTED)
        # Where in a window the requests begin is not known; each 64 requests are a use as well.
        per_window = 1 + window * (CYCLES_PER_100US // 20) // 2 // 64
        assert 10 <= counted <= 11 * per_window
        merged = await bench.bus_read(regs.SNAPSHOT_SKIPPED_RUN)
        assert counted + merged == 2 * (cycles // 4)


@cocotb.test()
async def windows_end_under_full_load(dut: Any) -> None:
    """However the parts are forgotten, each request is counted or goes on."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 6)
    await bench.configure(9, by_parts=1, use_window=1)
    await bench.play(random_pairs(rng, 3000, pages=9, idle=0.0))
    await bench.played()
    await bench.bus_write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
    await bench.settle()
    counted = await bench.bus_read(regs.SNAPSHOT_COUNTED)
    assert counted + await bench.bus_read(regs.SNAPSHOT_SKIPPED_RUN) == 6000
    assert counted > 2000


@cocotb.test()
async def epoch_changes_under_full_load(dut: Any) -> None:
    """A clear while both channels are busy: exactly the requests before it are forgotten."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 1)
    for step in range(ROUNDS):
        await bench.configure(4, by_parts=step % 2)
        pairs = random_pairs(rng, 6000, pages=rng.choice((1, 2, 6, 600)), idle=0.0)
        await bench.command_under_load(pairs, regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_CLEAR_MASK)


@cocotb.test()
async def an_epoch_that_is_read_and_ended_under_full_load(dut: Any) -> None:
    """Each request is in exactly one of the epochs' snapshots."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 2)
    for step in range(ROUNDS // 2):
        await bench.configure(4, by_parts=step % 2)
        await bench.end_epoch_under_load(random_pairs(rng, 6000, pages=60, idle=0.0))


@cocotb.test()
async def a_full_list_refuses_and_reports_later(dut: Any) -> None:
    """A unit that was refused is reported when there is room again; two fit in a clock."""
    bench = Bench(dut)
    await bench.start()
    for first in range(4):
        await bench.configure(0)
        units = [unit * PAGE for unit in range(first, first + 2 * RING)]
        for _ in range(3):
            await bench.push(pairs_of(units))
            await bench.snapshot_same()
            assert await bench.drain() <= RING - 1
        assert await bench.same(regs.SNAPSHOT_REPORTS) == 2 * RING
        assert await bench.same(regs.SNAPSHOT_REPORTS_REFUSED) > 0


@cocotb.test()
async def a_hardware_reset_amid_traffic(dut: Any) -> None:
    """The card begins anew, whatever was on its way: no count is left."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 4)
    for _ in range(ROUNDS // 2):
        await bench.configure(3)
        await bench.play(random_pairs(rng, 2000, pages=60, idle=0.0))
        await ClockCycles(dut.mem_clk_i, rng.randrange(10, 400))
        await bench.reset()
        await bench.configure(3)
        await bench.push(random_pairs(rng, 200, pages=60))
        await bench.snapshot_same()
