# SPDX-License-Identifier: Apache-2.0
"""What the cocotb benches share: the card under test beside its reference model.

Requests are played by np_tb from a file, a pair a clock, while the bench works on the registers.
Where a command fell in the stream is read from the card itself (``offered`` and ``applied_at``);
the model then gets the same requests up to there.
"""

from __future__ import annotations

import os
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, Timer

from neoprof import Card, regs
from neoprof.card import NONE, WRITE

TABLE = "NP_TABLE" in os.environ
LOG2_WIDTH = 8
RING = 16
CYCLES_PER_100US = 40
ALL = (1 << 64) - 1
PAGE = 4096
LINE = 64

Pair = tuple[int, int]


class BusError(Exception):
    """The card answered with an error."""


class Bench:
    """One card and its model."""

    def __init__(self, dut: Any, mem_ps: int = 2500, reg_ps: int = 8000) -> None:
        self.dut = dut
        self.mem_ps, self.reg_ps = mem_ps, reg_ps
        self.model = Card(
            "model-table" if TABLE else "model",
            log2_width=LOG2_WIDTH,
            ring_size=RING,
            cycles_per_100us=CYCLES_PER_100US,
        )
        self.script = Path(os.environ["NP_SCRIPT"])
        self.mem_clock: Any = None

    # ------------------------------------------------------------ pins
    async def start(self) -> None:
        """Start the clocks and leave reset."""
        dut = self.dut
        for name in ("awvalid", "wvalid", "arvalid", "bready", "rready"):
            getattr(dut, f"axil_{name}_i").value = 0
        dut.axil_awaddr_i.value = dut.axil_araddr_i.value = 0
        dut.axil_wdata_i.value = dut.axil_wstrb_i.value = 0
        dut.load_i.value = dut.play_i.value = dut.play_count_i.value = 0
        dut.rst_ni.value = 1
        self.start_memory_clock()
        Clock(dut.reg_clk_i, self.reg_ps, unit="ps").start()
        await self.reset()

    def start_memory_clock(self) -> None:
        """Run the memory clock; `stop_memory_clock` ends it."""
        self.mem_clock = Clock(self.dut.mem_clk_i, self.mem_ps, unit="ps")
        self.mem_clock.start()

    def stop_memory_clock(self) -> None:
        """Freeze the memory side."""
        self.mem_clock.stop()

    async def reset(self, wait: bool = True) -> None:
        """Pulse the hardware reset, of card and model."""
        self.dut.rst_ni.value = 0
        await Timer(3 * max(self.mem_ps, self.reg_ps) + 700, unit="ps")
        self.dut.rst_ni.value = 1
        self.dut.play_i.value = 0
        for name in ("awvalid", "wvalid", "arvalid", "bready", "rready"):
            getattr(self.dut, f"axil_{name}_i").value = 0
        await ClockCycles(self.dut.reg_clk_i, 4)
        self.model.reset()
        if wait:
            await self.settle()

    # ------------------------------------------------------------ bus
    async def _until(self, signal: Any, limit: int = 200) -> None:
        for _ in range(limit):
            await RisingEdge(self.dut.reg_clk_i)
            if int(signal.value):
                return
        raise AssertionError(f"{signal._name} did not rise in {limit} register clocks")

    async def bus_read(self, address: int) -> int:
        """Make one 64-bit read; raise BusError on an error answer."""
        dut = self.dut
        dut.axil_araddr_i.value = address
        dut.axil_arvalid_i.value = 1
        dut.axil_rready_i.value = 1
        await self._until(dut.axil_arready_o)
        dut.axil_arvalid_i.value = 0
        await self._until(dut.axil_rvalid_o)
        response, data = int(dut.axil_rresp_o.value), int(dut.axil_rdata_o.value)
        dut.axil_rready_i.value = 0
        if response:
            raise BusError(f"read at 0x{address:x}: response {response}")
        return data

    async def bus_write(self, address: int, data: int, strobe: int = 0xFF) -> None:
        """Make one write with byte strobes; raise BusError on an error answer."""
        dut = self.dut
        dut.axil_awaddr_i.value = address
        dut.axil_awvalid_i.value = 1
        dut.axil_wdata_i.value = data
        dut.axil_wstrb_i.value = strobe
        dut.axil_wvalid_i.value = 1
        dut.axil_bready_i.value = 1
        await self._until(dut.axil_awready_o)
        dut.axil_awvalid_i.value = 0
        dut.axil_wvalid_i.value = 0
        await self._until(dut.axil_bvalid_o)
        response = int(dut.axil_bresp_o.value)
        dut.axil_bready_i.value = 0
        if response:
            raise BusError(f"write at 0x{address:x}: response {response}")

    async def settle(self, limit: int = 400) -> None:
        """Wait until no operation is in progress or pending, and the tail has come over."""
        for _ in range(limit):
            status = await self.bus_read(regs.CHMU0_STATUS)
            vendor = await self.bus_read(regs.VENDOR_STATUS)
            if not status & regs.CHMU0_STATUS_OPERATION_MASK and not vendor:
                slowest = max(self.mem_ps, self.reg_ps)
                await Timer(40 * slowest, unit="ps")
                return
        raise AssertionError(f"still busy: status 0x{status:x}, vendor status 0x{vendor:x}")

    async def write(self, address: int, data: int, strobe: int = 0xFF) -> None:
        """Write to card and model, and settle. Both must agree whether it is an error."""
        mask_bytes = [byte for byte in range(8) if strobe >> byte & 1]
        failed = False
        try:
            await self.bus_write(address, data, strobe)
        except BusError:
            failed = True
        await self.settle()
        self.model_write(address, data, mask_bytes, failed)

    def model_write(
        self, address: int, data: int, mask_bytes: list[int] | None = None, failed: bool = False
    ) -> None:
        """Write to the model alone; a write of some bytes goes as one access of their size."""
        from neoprof import CardError

        mask_bytes = list(range(8)) if mask_bytes is None else mask_bytes
        first, size = mask_bytes[0], len(mask_bytes)
        part = data >> 8 * first & ((1 << 8 * size) - 1)
        try:
            self.model.write(address + first, part, size)
            model_failed = False
        except CardError:
            model_failed = True
        assert failed == model_failed, f"0x{address:x}: card {failed}, model {model_failed}"

    async def same(self, address: int) -> int:
        """Read card and model, which must agree; return the value."""
        card, model = await self.bus_read(address), self.model.read(address)
        assert card == model, f"0x{address:x}: card 0x{card:x}, model 0x{model:x}"
        return card

    # ------------------------------------------------------------ requests
    async def play(self, pairs: list[Pair]) -> None:
        """Play pairs to the card and return at once."""
        self.script.write_text("".join(f"{c1:016x}{c0:016x}\n" for c0, c1 in pairs))
        self.dut.play_count_i.value = len(pairs)
        self.dut.load_i.value = 1
        await Timer(1, unit="ps")
        self.dut.load_i.value = 0
        self.dut.play_i.value = 1
        await RisingEdge(self.dut.playing_o)

    async def played(self) -> None:
        """Wait until the player is done and the pipeline empty."""
        while int(self.dut.playing_o.value):
            await ClockCycles(self.dut.mem_clk_i, 16)
        self.dut.play_i.value = 0
        await ClockCycles(self.dut.mem_clk_i, 40)

    async def push(self, pairs: list[Pair]) -> None:
        """Give pairs to card and model."""
        if not pairs:
            return
        await self.play(pairs)
        await self.played()
        self.model.push([request for pair in pairs for request in pair])

    # ------------------------------------------------------------ checks
    async def configure(
        self,
        threshold: int = 5,
        *,
        what: int = 3,
        cfg1: int = 12 | 1 << regs.CHMU0_CFG1_MODE_SHIFT,
        conservative: int = 0,
        coalesce: int = 0,
        run_window: int = 0,
        by_parts: int = 0,
        use_window: int = 0,
        random_sampling: int = 0,
        ranges: int = ALL,
    ) -> None:
        """Reset the unit and enable it; always-on mode unless told otherwise."""
        await self.write(regs.CHMU0_CFG0, regs.CHMU0_CFG0_RESET_MASK)
        await self.write(regs.RANGE_BITMAP, ranges)
        await self.write(
            regs.VENDOR_CONFIG,
            conservative
            | coalesce << regs.VENDOR_CONFIG_COALESCE_SHIFT
            | run_window << regs.VENDOR_CONFIG_RUN_WINDOW_SHIFT
            | by_parts << regs.VENDOR_CONFIG_BY_PARTS_SHIFT
            | use_window << regs.VENDOR_CONFIG_USE_WINDOW_SHIFT,
        )
        await self.write(regs.CHMU0_CFG1, cfg1)
        await self.write(
            regs.CHMU0_CFG0,
            what
            | random_sampling << regs.CHMU0_CFG0_RANDOM_DOWNSAMPLING_SHIFT
            | regs.CHMU0_CFG0_ENABLE_MASK
            | threshold << regs.CHMU0_CFG0_THRESHOLD_SHIFT,
        )
        status = await self.same(regs.CHMU0_STATUS)
        assert status & regs.CHMU0_STATUS_ENABLED_MASK

    async def snapshot_same(self) -> None:
        """Take a snapshot of both and compare everything that software can see."""
        await self.settle()
        await self.write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
        await self.visible_same()

    async def visible_same(self, first: int = regs.SNAPSHOT_BUSY_CYCLES) -> None:
        """Compare snapshot, histogram, error bound, status and hot list of both."""
        for address in range(first, regs.SNAPSHOT_DISPLACED + 8, 8):
            await self.same(address)
        total = 0
        for bin_ in range(regs.HISTOGRAM_BIN_COUNT):
            total += await self.same(regs.HISTOGRAM_BIN + 8 * bin_)
        assert total == 1 << LOG2_WIDTH
        await self.same(regs.VENDOR_ERROR_BOUND)
        await self.same(regs.VENDOR_CONFIG_ERROR)
        await self.same(regs.VENDOR_THRESHOLD_IN_FORCE)
        await self.hotlist_same()

    async def hotlist_same(self) -> int:
        """Compare the hot list between head and tail; return the number of entries."""
        pointers = await self.same(regs.CHMU0_HOTLIST)
        head, tail = pointers & 0xFFFF, pointers >> 16
        count = 0
        while head != tail:
            await self.same(regs.HOTLIST + 8 * head)
            head = (head + 1) % RING
            count += 1
        return count

    async def drain(self) -> int:
        """Compare the hot list, then empty it."""
        count = await self.hotlist_same()
        tail = (await self.same(regs.CHMU0_HOTLIST)) >> 16
        await self.write(regs.CHMU0_HOTLIST, tail, 0x03)
        return count

    async def end_epoch_under_load(self, pairs: list[Pair]) -> None:
        """Right after `configure`: snapshot and clear in one write while pairs are played.

        The snapshot must be of the requests before the new epoch, which has all others.
        """
        both = regs.VENDOR_COMMAND_CLEAR_MASK | regs.VENDOR_COMMAND_SNAPSHOT_MASK
        await self.play(pairs)
        await ClockCycles(self.dut.mem_clk_i, random.randrange(40))
        await self.bus_write(regs.VENDOR_COMMAND, both)
        await self.settle()
        assert int(self.dut.playing_o.value), "the stream ended before the command: too short"
        first = _starts(pairs)[await self.bus_read(regs.SNAPSHOT_OFFERED)]
        self._model_push(pairs[:first])
        self.model.write(regs.VENDOR_COMMAND, both)
        for register in range(regs.SNAPSHOT_READ_BEATS, regs.SNAPSHOT_DISPLACED + 8, 8):
            if register != regs.SNAPSHOT_APPLIED_AT:
                await self.same(register)
        for bin_ in range(regs.HISTOGRAM_BIN_COUNT):
            await self.same(regs.HISTOGRAM_BIN + 8 * bin_)
        await self.played()
        self._model_push(pairs[first:])
        await self.snapshot_same()

    async def command_under_load(self, pairs: list[Pair], address: int, data: int) -> None:
        """Write one command while pairs are played, snapshot still under load, compare both.

        The card says which request was the first to see the command; it must be the first of a
        clock.
        """
        before = self.model.snapshot().offered
        await self.bus_write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
        await self.settle()  # the same number of snapshots
        await self.play(pairs)
        await ClockCycles(self.dut.mem_clk_i, random.randrange(40))
        await self.bus_write(address, data)
        await self.settle()
        await self.bus_write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
        await self.settle()
        assert int(self.dut.playing_o.value), "the stream ended before the command: too short"
        applied = await self.bus_read(regs.SNAPSHOT_APPLIED_AT) - before
        taken = await self.bus_read(regs.SNAPSHOT_OFFERED) - before
        starts = _starts(pairs)
        assert 0 < applied <= taken
        first, second = starts[applied], starts[taken]
        self._model_push(pairs[:first])
        self.model.write(address, data)
        self._model_push(pairs[first:second])
        self.model.write(regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
        # Beats on the wires are counted when offered here: the player sends while enabled.
        for register in range(regs.SNAPSHOT_READ_BEATS, regs.SNAPSHOT_DISPLACED + 8, 8):
            await self.same(register)
        for bin_ in range(regs.HISTOGRAM_BIN_COUNT):
            await self.same(regs.HISTOGRAM_BIN + 8 * bin_)
        await self.played()
        self._model_push(pairs[second:])
        await self.snapshot_same()

    def _model_push(self, pairs: list[Pair]) -> None:
        self.model.push([request for pair in pairs for request in pair])


def _starts(pairs: list[Pair]) -> dict[int, int]:
    """Map the number of requests before a pair to the pair's index; idle pairs map to the last."""
    starts, count = {0: 0}, 0
    for index, pair in enumerate(pairs):
        count += sum(not request & NONE for request in pair)
        starts[count] = index + 1
    assert all(a <= b for a, b in pairwise(starts.values()))
    return starts


def pairs_of(requests: list[int]) -> list[Pair]:
    """Split a list of requests into pairs, channel 0 first."""
    if len(requests) % 2:
        requests = [*requests, NONE]
    return list(zip(requests[::2], requests[1::2], strict=True))


def slot_of(page: int, table: int) -> int:
    """Return the entry of a page in a table of runs: np_coalesce.sv."""
    slot = 0
    for byte in range(4):
        part, turn = page >> 8 * byte & 0xFF, table * byte * 3 % 8
        slot ^= (part << turn | part >> (8 - turn)) & 0xFF
    return slot


def pages_of(entries: tuple[int, int], count: int) -> list[int]:
    """Return pages that have the same entry in both tables."""
    found = (page for page in range(1 << 26) if (slot_of(page, 0), slot_of(page, 1)) == entries)
    return [next(found) for _ in range(count)]


def run_pairs(rng: random.Random, count: int, idle: float = 0.2) -> list[Pair]:
    """Return pairs over pages of few entries, of which some share one, some both, some none.

    The same page comes again mostly: both channels and neighbouring clocks meet at one entry.
    """
    pages = [0x100, 0x201, 0x302, 0x403, *pages_of((7, 7), 3), *pages_of((7, 8), 2)]
    page = pages[0]

    def one() -> int:
        nonlocal page
        if rng.random() < idle:
            return NONE
        page = page if rng.random() < 0.5 else rng.choice(pages)
        address = page * PAGE + rng.randrange(8) * LINE + rng.randrange(LINE)
        return address | (WRITE if rng.random() < 0.1 else 0)

    return [(one(), one()) for _ in range(count)]


def random_pairs(rng: random.Random, count: int, pages: int = 24, idle: float = 0.2) -> list[Pair]:
    """Return pairs over few pages, so that requests meet at every distance."""
    base = rng.randrange(1 << 20)
    skew = rng.choice((0.5, 1.0, 3.0))

    def one() -> int:
        if rng.random() < idle:
            return NONE
        page = base + int(pages * rng.random() ** skew)
        return page * PAGE | (WRITE if rng.random() < 0.3 else 0) | rng.randrange(PAGE)

    return [(one(), one()) for _ in range(count)]
