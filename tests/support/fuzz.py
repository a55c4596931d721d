# SPDX-License-Identifier: Apache-2.0
"""How much the fuzz tests do, and changes that they all make to right inputs.

`make fuzz` runs all of it, over a million inputs; other runs a twentieth, the same every time.
"""

from __future__ import annotations

import os
import random

SHARE = float(os.environ.get("TIERD_FUZZ", "0.05"))
EDGES = (b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\0\0\0\x80")


def inputs(whole: int) -> int:
    """How many of `whole` inputs this run makes."""
    return max(1, int(whole * SHARE))


def mutated(data: bytes, draw: random.Random) -> bytes:
    """A few changes: bits, bytes that are edges of a range, pieces cut, doubled or swapped."""
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        at = draw.randrange(len(out) + 1)
        match draw.randrange(7):
            case 0 if at < len(out):
                out[at] ^= 1 << draw.randrange(8)
            case 1 if at < len(out):
                out[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                out[at : at + 4] = draw.choice(EDGES)
            case 3:
                del out[at : at + draw.randrange(1, 40)]
            case 4:
                out[at:at] = out[at : at + draw.randrange(1, 40)]
            case 5:
                out[at:at] = draw.randbytes(draw.randrange(1, 12))
            case 6:
                del out[at:]
    return bytes(out)
