# SPDX-License-Identifier: Apache-2.0
"""Checks of the simulated cards from inside a guest, without a driver.

usage: guest_card.py registers | profile THRESHOLD COMMAND... | gone

Prints JSON objects, one a line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# The registers' numbers alone: an emulated guest takes seconds to import the package.
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "fpga/python/neoprof")]

import regs  # noqa: E402
from card_window import N, Window, WindowError  # noqa: E402

FIXED = (
    "CHMU_CAP0",
    "CHMU_CAP1",
    "CHMU0_CAP0",
    "CHMU0_CAP1",
    "VENDOR_ID",
    "VENDOR_GEOMETRY",
    "VENDOR_TIMEBASE",
)
"""Registers whose value no program changes."""


def node_blocks() -> dict[str, list[int]]:
    """Guest-physical addresses of each node's memory blocks, ascending."""
    system = Path("/sys/devices/system")
    size = int((system / "memory/block_size_bytes").read_text(), 16)
    return {
        node.name.removeprefix("node"): sorted(
            int((block / "phys_index").read_text(), 16) * size
            for block in node.glob("memory[0-9]*")
        )
        for node in sorted((system / "node").glob("node[0-9]*"))
    } | {"block": [size]}


def error_of(action: Any) -> int:
    """The errno with which `action` fails, 0 if it does not."""
    try:
        action()
    except WindowError as error:
        return error.errno or 0
    return 0


def registers(window: Window) -> None:
    """Identity of the window and its cards, and how mistakes are answered."""
    cards = []
    for card in range(window.cards):
        values = {name: window.read(card, getattr(regs, name)) for name in FIXED}
        block = window.read_block(card, regs.VENDOR_ID, 3)
        halves = [window.read(card, regs.VENDOR_ID + 4 * i, 4) for i in range(2)]
        cards.append(
            {
                "values": values,
                "block": block,
                "halves": halves,
                "hdm": window.hdm(card).hex(),
                "errors": {
                    "misaligned": error_of(lambda c=card: window.read(c, 0x1004, 8)),
                    "no_such_register": error_of(lambda c=card: window.read(c, 0x3FF0)),
                    "read_only": error_of(lambda c=card: window.write(c, regs.VENDOR_ID, 1)),
                    "size": error_of(lambda c=card: window.read(c, 0x1000, 3)),
                    "block_too_long": error_of(
                        lambda c=card: window._post(c, N["NPW_OP_READ_BLOCK"], 0x1000, 8, 513)
                    ),
                    "no_such_op": error_of(lambda c=card: window._post(c, 77, 0x1000, 8)),
                },
            }
        )
    print(
        json.dumps(
            {
                "alive": window.alive,
                "version": window.version,
                "cards": cards,
                "nodes": node_blocks(),
                "watching": window.watching,
                "no_such_lab_op": error_of(lambda: _lab_nonsense(window)),
            }
        )
    )


def _lab_nonsense(window: Window) -> None:
    window._words[N["NPW_LAB_OP"] // 4] = 99
    window._ring(N["NPW_LAB_DOORBELL"], N["NPW_LAB_STATUS"], "nonsense")


def settle(window: Window, card: int) -> None:
    """Wait until no operation is in progress or pending."""
    while window.read(card, regs.CHMU0_STATUS) & regs.CHMU0_STATUS_OPERATION_MASK or window.read(
        card, regs.VENDOR_STATUS
    ):
        pass


def start(window: Window, card: int, threshold: int) -> None:
    """Reset a card and let it count everything, conservatively, in always-on mode."""
    window.write(card, regs.CHMU0_CFG0, regs.CHMU0_CFG0_RESET_MASK)
    settle(window, card)
    for offset in range(0, regs.RANGE_BITMAP_BYTES, 8):
        window.write(card, regs.RANGE_BITMAP + offset, 2**64 - 1)
    window.write(card, regs.VENDOR_CONFIG, regs.VENDOR_CONFIG_CONSERVATIVE_MASK)
    window.write(card, regs.CHMU0_CFG1, 12 | 1 << regs.CHMU0_CFG1_MODE_SHIFT)
    window.write(
        card,
        regs.CHMU0_CFG0,
        3 | regs.CHMU0_CFG0_ENABLE_MASK | threshold << regs.CHMU0_CFG0_THRESHOLD_SHIFT,
    )
    settle(window, card)
    assert window.read(card, regs.CHMU0_STATUS) & regs.CHMU0_STATUS_ENABLED_MASK


def result(window: Window, card: int) -> dict[str, Any]:
    """A card's statistics and its hot list."""
    settle(window, card)
    window.write(card, regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
    settle(window, card)
    names = ("CYCLES", "READ_BEATS", "WRITE_BEATS", "OFFERED", "COUNTED", "REPORTS")
    names += ("REPORTS_REFUSED", "SKIPPED_TYPE", "SKIPPED_RANGE", "SKIPPED_SAMPLE", "SATURATED")
    snapshot = {name: window.read(card, getattr(regs, f"SNAPSHOT_{name}")) for name in names}
    slots = window.read(card, regs.CHMU0_CAP0) >> regs.CHMU0_CAP0_HOTLIST_SIZE_SHIFT
    pointers = window.read(card, regs.CHMU0_HOTLIST, 4)
    head, tail = pointers & 0xFFFF, pointers >> regs.CHMU0_HOTLIST_TAIL_SHIFT
    if tail >= head:
        entries = window.read_block(card, regs.HOTLIST + 8 * head, tail - head)
    else:
        entries = window.read_block(card, regs.HOTLIST + 8 * head, slots - head)
        entries += window.read_block(card, regs.HOTLIST, tail)
    window.write(card, regs.CHMU0_HOTLIST, tail, 2)
    return {"snapshot": snapshot, "hot": [entry >> 16 for entry in entries]}


def profile(window: Window, threshold: int, command: list[str]) -> None:
    """Count a command's memory traffic: cards and exact counts see the same requests."""
    window.lab("STOP")
    for card in range(window.cards):
        start(window, card, threshold)
    window.lab("CLEAR")
    print(json.dumps({"before_ns": window.guest_ns}), flush=True)
    window.lab("START")
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    watched = window.watching
    window.lab("STOP")
    window.lab("DUMP")
    print(
        json.dumps(
            {
                "watched": watched,
                "after_ns": window.guest_ns,
                "said": done.stdout[-1500:],
                "cards": [result(window, card) for card in range(window.cards)],
            }
        )
    )


def gone(window: Window) -> None:
    """Read a register until the window's host goes; say how that was noticed."""
    window.read(0, regs.VENDOR_ID)
    print(json.dumps({"ready": True}), flush=True)
    error = 0
    while not error:
        error = error_of(lambda: window.read(0, regs.VENDOR_ID))
    again = error_of(lambda: window.read(0, regs.VENDOR_ID))
    print(json.dumps({"error": error, "again": again, "alive": window.alive}))


def main() -> int:
    """Run one check."""
    parser = argparse.ArgumentParser()
    parser.add_argument("check", choices=("registers", "profile", "gone"))
    parser.add_argument("threshold", type=int, nargs="?", default=100)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    window = Window(timeout_s=300)
    if args.check == "registers":
        registers(window)
    elif args.check == "profile":
        profile(window, args.threshold, args.command)
    else:
        gone(window)
    return 0


if __name__ == "__main__":
    sys.exit(main())
