# SPDX-License-Identifier: Apache-2.0
"""Small charts in SVG, and a heat map as an embedded PNG, from the standard library alone."""

from __future__ import annotations

import base64
import html
import math
import struct
import zlib
from collections.abc import Sequence

import numpy as np

from tierd.report.areas import F64Array

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960, 132, 20, 10, 34
PLOT = WIDTH - LEFT - RIGHT
# Black through purple and orange to pale yellow, perceptually even (after matplotlib's
# inferno at tenths; a public-domain table).
_INFERNO = np.array(
    [
        (0, 0, 4), (22, 11, 57), (66, 10, 104), (106, 23, 110), (147, 38, 103), (188, 55, 84),
        (221, 81, 58), (243, 120, 25), (252, 165, 10), (246, 215, 70), (252, 255, 164),
    ],
    np.float64,
)  # fmt: skip


def colours(share: F64Array) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """RGB, uint8[..., 3], of values from 0 to 1."""
    place = np.clip(share, 0.0, 1.0) * (len(_INFERNO) - 1)
    low = np.minimum(place.astype(np.int64), len(_INFERNO) - 2)
    part = (place - low)[..., None]
    mixed: F64Array = _INFERNO[low] * (1 - part) + _INFERNO[low + 1] * part
    return mixed.round().astype(np.uint8)


def png(rgba: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    """A PNG (ISO/IEC 15948) of uint8[rows, columns, 4]."""
    rows, columns, _ = rgba.shape
    lines = b"".join(b"\0" + row.tobytes() for row in rgba)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def image(picture: bytes, height: int) -> str:
    """A PNG over the whole plot of a chart."""
    data = base64.b64encode(picture).decode()
    return (
        f'<image x="{LEFT}" y="{TOP}" width="{PLOT}" height="{height}" '
        f'preserveAspectRatio="none" style="image-rendering:pixelated" '
        f'href="data:image/png;base64,{data}"/>'
    )


def nice_ticks(top: float, most: int = 6) -> list[float]:
    """Round numbers from 0 to `top`."""
    if top <= 0:
        return [0.0]
    step = 10.0 ** math.floor(math.log10(top / most))
    for factor in (1, 2, 5, 10):
        if top / (step * factor) <= most:
            step *= factor
            break
    return [step * index for index in range(int(top / step + 1e-9) + 1)]


def chart(
    body: str,
    height: int,
    end_s: float,
    labels: Sequence[tuple[float, str]],
    *,
    lines: bool = True,
) -> str:
    """A chart: `body` in its plot, a time axis below, labels (y from the top, text) left.

    With `lines` each label's line goes through the plot.
    """
    right = LEFT + PLOT if lines else LEFT
    out = [
        f'<svg viewBox="0 0 {WIDTH} {TOP + height + BOTTOM}" role="img" '
        'xmlns="http://www.w3.org/2000/svg">',
        f'<rect class="plot" x="{LEFT}" y="{TOP}" width="{PLOT}" height="{height}"/>',
        body,
    ]
    for y, text in labels:
        at = TOP + y
        out.append(f'<line class="grid" x1="{LEFT - 4}" x2="{right}" y1="{at}" y2="{at}"/>')
        out.append(
            f'<text x="{LEFT - 8}" y="{at + 4}" text-anchor="end">{html.escape(text)}</text>'
        )
    base = TOP + height
    for tick in nice_ticks(end_s, 10):
        x = LEFT + PLOT * tick / end_s
        out.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{base}" y2="{base + 4}"/>')
        out.append(f'<text x="{x:.1f}" y="{base + 17}" text-anchor="middle">{tick:g}</text>')
    out.append(f'<text x="{LEFT + PLOT / 2}" y="{base + 31}" text-anchor="middle">time [s]</text>')
    return "\n".join([*out, "</svg>"])


def _x(seconds: F64Array) -> F64Array:
    return LEFT + PLOT * (seconds / float(seconds[-1]))


def steps(seconds: F64Array, low: F64Array, high: F64Array, height: int, style: str) -> str:
    """The area between two stepped curves; shares of the height, from the bottom."""
    x = np.repeat(_x(seconds), 2)[1:-1]
    up = TOP + height * (1 - np.repeat(np.nan_to_num(high), 2))
    down = TOP + height * (1 - np.repeat(np.nan_to_num(low), 2))
    points = [*zip(x, up, strict=True), *reversed([*zip(x, down, strict=True)])]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    return f'<polygon class="{style}" points="{path}"/>'


def curve(seconds: F64Array, share: F64Array, height: int, style: str) -> str:
    """A line through the middles of the columns; shares of the height, from the bottom."""
    middle = _x(seconds)
    x = (middle[:-1] + middle[1:]) / 2
    path = " ".join(f"{a:.1f},{TOP + height * (1 - b):.1f}" for a, b in zip(x, share, strict=True))
    return f'<polyline class="{style}" points="{path}"/>'
