# SPDX-License-Identifier: Apache-2.0
"""A report as one self-contained HTML page: no network, no script."""

from __future__ import annotations

import base64
import html
import math
import struct
import zlib
from collections.abc import Sequence

import numpy as np

from tierd.core.pagekey import F64Array
from tierd.core.units import format_size
from tierd.report.analysis import SHARES, Report
from tierd.report.text import address, notes, target_name, title, totals

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
COLUMNS, ROWS = 240, 120
_DECADES = 3
_STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1c1c1e; --soft: #6b6b70;
  --plot: #f3f3f5; --grid: #d9d9de; --a: #c8374b; --b: #1f78a4; --c: #d99a1c; --d: #3f8f5f; }
@media (prefers-color-scheme: dark) { :root { --back: #17181c; --text: #ececf0;
  --soft: #a0a0a8; --plot: #0b0b0e; --grid: #35363d; --a: #e4616f; --b: #57a9d3;
  --c: #eebc55; --d: #6cc08d; } }
body { font: 15px/1.45 system-ui, sans-serif; background: var(--back); color: var(--text);
  max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; } h3 { font-size: .95rem; }
p { color: var(--soft); margin: .2rem 0 .6rem; } svg { width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
.plot { fill: var(--plot); } .grid { stroke: var(--grid); } .tick { stroke: var(--soft); }
.a { fill: var(--a); } .b { fill: var(--b); } .c { fill: var(--c); } .d { fill: var(--d); }
.la, .lb, .lc, .ld { fill: none; stroke-width: 1.6; } .la { stroke: var(--a); }
.lb { stroke: var(--b); } .lc { stroke: var(--c); } .ld { stroke: var(--d); }
table { border-collapse: collapse; } td, th { padding: .15rem 1.2rem .15rem 0;
  text-align: left; } td + td { font-variant-numeric: tabular-nums; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px;
  margin: 0 .35em 0 1em; } .ka { background: var(--a); } .kb { background: var(--b); }
.kc { background: var(--c); } .kd { background: var(--d); }
.bar { height: .8em; width: 12em; display: inline-block; border-radius: 2px;
  vertical-align: middle; margin: 0 .5em; }
"""


def render(report: Report) -> str:
    """The page."""
    width = float(report.seconds[1])
    parts = [
        f"<p>{html.escape(title(report))}, tierd {html.escape(report.meta.version)}</p>",
        *(f"<p>Note: {html.escape(note)}.</p>" for note in notes(report)),
        table(("", "whole recording"), totals(report)),
        "<h2>Heat map</h2>",
        *_heat_map(report),
        "<h2>Accesses served, by tier</h2>",
        legend(report.tiers[:-1]),
        _served(report),
        "<h2>Working set</h2>",
        f"<p>Memory of the hottest pages that hold a share of the accesses seen in {width:.3g} s."
        "</p>",
        legend([f"{share:.0%}" for share in SHARES]),
        _working_set(report),
        "<h2>Migrations</h2>",
        legend(("promoted", "demoted")),
        _migrations(report),
        "<h2>Targets</h2>",
        _targets(report),
    ]
    return document("tierd recording", parts)


def document(title: str, parts: Sequence[str]) -> str:
    """A whole page with a title, of parts in HTML."""
    head = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
    ]
    return "\n".join([*head, *parts, "</body></html>"]) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts."""
    lines = ["<table><tr>" + "".join(f"<th>{html.escape(each)}</th>" for each in head) + "</tr>"]
    for row in rows:
        lines.append("<tr>" + "".join(f"<td>{html.escape(each)}</td>" for each in row) + "</tr>")
    return "\n".join([*lines, "</table>"])


def _letter(index: int) -> str:
    return "abcd"[index % 4]


def legend(names: Sequence[str]) -> str:
    """What the colours of curves and areas mean, in order."""
    keys = (
        f'<span class="key k{_letter(index)}"></span>{html.escape(name)}'
        for index, name in enumerate(names)
    )
    return f"<p>{''.join(keys)}</p>"


def _heat_map(report: Report) -> list[str]:
    if report.shown is None or not report.areas:
        return ["<p>No access was seen.</p>"]
    top = float(report.heat.max())
    seen = report.heat > 0
    share = np.zeros(report.heat.shape)
    if top > 0:
        share[seen] = np.clip(1 + np.log10(report.heat[seen] / top) / _DECADES, 0.04, 1)
    alpha = np.where(seen, 255, 0).astype(np.uint8)[..., None]
    picture = png(np.concatenate([colours(share), alpha], axis=-1))
    height = 420
    row = height / report.heat.shape[0]
    labels = [(each * row, text) for each, text in _address_marks(report, 12)]
    ramp = ", ".join(f"rgb({r},{g},{b})" for r, g, b in colours(np.linspace(0, 1, 9)).tolist())
    name = html.escape(target_name(report, report.shown))
    return [
        f"<p>{name}; address down, time across. Accesses a second and 4 KiB page: "
        f'{top / 10**_DECADES:.3g}<span class="bar" '
        f'style="background:linear-gradient(90deg, {ramp})"></span>{top:.3g}, logarithmic.</p>',
        chart(
            image(picture, height),
            height,
            float(report.seconds[-1]),
            _apart(labels),
            lines=False,
        ),
    ]


def _apart(labels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Labels that would lie on each other lose their text."""
    kept: list[tuple[float, str]] = []
    last = -100.0
    for y, text in labels:
        kept.append((y, text if y - last >= 12 else ""))
        last = y if y - last >= 12 else last
    return kept


def _served(report: Report) -> str:
    height, low, body = 150, np.zeros(len(report.seconds) - 1), []
    for index, share in enumerate(np.nan_to_num(report.shares)):
        style = _letter(index)
        body.append(steps(report.seconds, low, low + share, height, style))
        low = low + share
    labels = [(height * (1 - each / 100), f"{each} %") for each in (0, 25, 50, 75, 100)]
    return chart("\n".join(body), height, float(report.seconds[-1]), labels)


def _working_set(report: Report) -> str:
    height, top = 150, max(float(report.working_set.max()), 1.0) * 1.05
    body = [
        curve(report.seconds, values / top, height, f"l{_letter(index)}")
        for index, values in enumerate(report.working_set)
    ]
    return chart("\n".join(body), height, float(report.seconds[-1]), _sizes(top, height, ""))


def _sizes(top: float, height: float, after: str) -> list[tuple[float, str]]:
    mib = top / 2**20
    return [
        (height * (1 - tick / mib), f"{format_size(tick * 2**20)}{after}")
        for tick in nice_ticks(mib, 5)
    ]


def _migrations(report: Report) -> str:
    half = 75
    top = max(float(report.promoted.max()), float(report.demoted.max()), 1.0) * 1.05
    middle = np.full(len(report.promoted), 0.5)

    def part(values: F64Array) -> F64Array:
        return values / top / 2

    body = [
        steps(report.seconds, middle, middle + part(report.promoted), 2 * half, "a"),
        steps(report.seconds, middle - part(report.demoted), middle, 2 * half, "b"),
    ]
    up = _sizes(top, half, "/s")
    down = [(2 * half - y, text) for y, text in up[1:]]
    return chart("\n".join(body), 2 * half, float(report.seconds[-1]), [*up, *down])


def _targets(report: Report) -> str:
    total = sum(report.accesses.values()) or 1.0
    ranked = sorted(report.accesses.items(), key=lambda item: -item[1])[:50]
    return table(
        ("target", "share of the accesses"),
        [(target_name(report, number), f"{held / total:.1%}") for number, held in ranked],
    )


def _address_marks(report: Report, most: int) -> list[tuple[int, str]]:
    """Row edges of the heat map to label, and their addresses; about `most`."""
    rows = report.areas[-1].last_row
    marks = []
    for area in report.areas:
        parts = max(1, round(most * (area.last_row - area.first_row) / rows))
        for part in range(parts):
            row = area.first_row + (area.last_row - area.first_row) * part // parts
            vpn = area.start + (row - area.first_row) * area.pages_a_row
            marks.append((row, address(vpn)))
    return [*marks, (rows, address(report.areas[-1].end))]


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
    across: str = "time [s]",
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
    out.append(f'<text x="{LEFT + PLOT / 2}" y="{base + 31}" text-anchor="middle">{across}</text>')
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
