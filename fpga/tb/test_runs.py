# SPDX-License-Identifier: Apache-2.0
"""Runs of requests that count once, against the model and against what a run is."""

from __future__ import annotations

import os
import random
from typing import Any

import cocotb

from bench import CYCLES_PER_100US, LINE, PAGE, Bench, pages_of, pairs_of, run_pairs
from neoprof import regs
from neoprof.card import NONE

ROUNDS = int(os.environ.get("NP_ROUNDS", "12"))
SEED = int(os.environ.get("NP_SEED", "1"))
ALWAYS_ON = 1 << regs.CHMU0_CFG1_MODE_SHIFT


async def _uses(bench: Bench, pairs: list[tuple[int, int]], **settings: int) -> int:
    """Requests that are counted of these, on a card that begins with them."""
    await bench.configure(9, coalesce=1, **settings)
    await bench.push(pairs)
    await bench.snapshot_same()
    shot = bench.model.snapshot()
    await bench.bus_write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
    await bench.settle()
    assert shot.offered == shot.counted + shot.skipped_run
    return shot.counted


@cocotb.test()
async def a_run_is_counted_once(dut: Any) -> None:
    """Steps of 4 lines and less are one use, up or down, on either channel; others are each one."""
    bench = Bench(dut)
    await bench.start()
    up = list(range(64))
    for lines, uses, page in (
        (up, 1, 0),
        (up[::-1], 1, 77),
        (up[::4], 1, (63 << 16) + 5),
        (up[::5], len(up[::5]), 2),
        ([7] * 10, 10, 3),
        ([0, 1, 2, 40, 41, 38, 1], 3, 5),
    ):
        requests = [page * PAGE + line * LINE for line in lines]
        for pairs in (
            pairs_of(requests),
            [(request, NONE) for request in requests],
            [(NONE, request) for request in requests],
            [pair for request in requests for pair in ((request, NONE), (NONE, NONE))],
        ):
            assert await _uses(bench, pairs) == uses


@cocotb.test()
async def a_run_ends_with_its_page(dut: Any) -> None:
    """A reader that goes from page to page uses each, also where neighbours share both entries."""
    bench = Bench(dut)
    await bench.start()
    for first in (0x7FFF, 0x17FFF, 0xFF, 0x12):
        lines = [first * PAGE + line * LINE for line in range(3 * 64)]
        assert await _uses(bench, pairs_of(lines)) == 3
        assert await _uses(bench, pairs_of(lines[::-1])) == 3


@cocotb.test()
async def pages_that_share_one_entry_do_not_end_each_others_runs(dut: Any) -> None:
    """Only those do that share both, whatever the distance: of the others each is one use."""
    bench = Bench(dut)
    await bench.start()
    both, one = pages_of((9, 9), 2), [*pages_of((9, 9), 1), *pages_of((9, 10), 1)]
    for pages, ends in ((both, True), (one, False), (one[::-1], False)):
        for apart in range(4):
            pairs = []
            for line in range(20):
                for page in pages:
                    request = page * PAGE + line * LINE
                    pairs += [(request, NONE), *[(NONE, NONE)] * apart]
            assert await _uses(bench, pairs) == (40 if ends else 2)
        first, second = (page * PAGE for page in pages)
        together = [(first + line * LINE, second + line * LINE) for line in range(20)]
        assert await _uses(bench, together) == (40 if ends else 2)


@cocotb.test()
async def interleaved_runs_equal_the_model(dut: Any) -> None:
    """Runs that meet at entries of the tables, at every distance, with the other filters."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED + 7)
    for step in range(ROUNDS):
        await bench.configure(
            rng.randrange(1, 20),
            what=rng.choice((1, 3)),
            cfg1=12 | ALWAYS_ON | rng.choice((0, 0, 1)) << 32,
            coalesce=1,
        )
        await bench.push(run_pairs(rng, 800, idle=step % 3 * 0.3))
        await bench.snapshot_same()
        shot = bench.model.snapshot()
        await bench.bus_write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
        await bench.settle()
        skipped = shot.skipped_type + shot.skipped_sample + shot.skipped_run
        assert shot.offered == shot.counted + skipped
        assert shot.skipped_run > 20 < shot.counted
        await bench.drain()


@cocotb.test()
async def runs_are_forgotten_when_the_unit_is_enabled(dut: Any) -> None:
    """What a run of before would go on with is counted after a new start."""
    bench = Bench(dut)
    await bench.start()
    for _ in range(8):
        assert await _uses(bench, [(5 * PAGE, 5 * PAGE + LINE)]) == 1


@cocotb.test()
async def all_runs_end_by_the_clock(dut: Any) -> None:
    """A page that nobody pushes out is counted once a window, not once for ever."""
    bench = Bench(dut, reg_ps=2300)
    await bench.start()
    for window in (1, 3):
        await bench.configure(9, coalesce=1, run_window=window)
        cycles = 10 * window * CYCLES_PER_100US
        await bench.play([(PAGE, PAGE + LINE)] * cycles)
        await bench.played()
        await bench.bus_write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
        await bench.settle()
        counted = await bench.bus_read(regs.SNAPSHOT_COUNTED)
        # Where in a window the requests begin is not known.
        assert 10 <= counted <= 11
        assert await bench.bus_read(regs.SNAPSHOT_SKIPPED_RUN) == 2 * cycles - counted
