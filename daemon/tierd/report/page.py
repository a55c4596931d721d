# SPDX-License-Identifier: Apache-2.0
"""A report as one self-contained HTML page: no network, no script."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

from tierd.core.units import format_size
from tierd.report import svg
from tierd.report.analysis import SHARES, Report
from tierd.report.areas import F64Array
from tierd.report.words import address_marks, notes, target_name, title, totals

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
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
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
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><title>tierd recording</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style></head><body>",
        "<h1>tierd recording</h1>",
        f"<p>{html.escape(title(report))}, tierd {html.escape(report.meta.version)}</p>",
        *(f"<p>Note: {html.escape(note)}.</p>" for note in notes(report)),
        _table(("", "whole recording"), totals(report)),
        "<h2>Heat map</h2>",
        *_heat_map(report),
        "<h2>Accesses served, by tier</h2>",
        _legend(report.tiers[:-1]),
        _served(report),
        "<h2>Working set</h2>",
        f"<p>Memory of the hottest pages that hold a share of the accesses seen in {width:.3g} s."
        "</p>",
        _legend([f"{share:.0%}" for share in SHARES]),
        _working_set(report),
        "<h2>Migrations</h2>",
        _legend(("promoted", "demoted")),
        _migrations(report),
        "<h2>Targets</h2>",
        _targets(report),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{html.escape(each)}</th>" for each in head) + "</tr>"]
    for row in rows:
        lines.append("<tr>" + "".join(f"<td>{html.escape(each)}</td>" for each in row) + "</tr>")
    return "\n".join([*lines, "</table>"])


def _letter(index: int) -> str:
    return "abcd"[index % 4]


def _legend(names: Sequence[str]) -> str:
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
    picture = svg.png(np.concatenate([svg.colours(share), alpha], axis=-1))
    height = 420
    row = height / report.heat.shape[0]
    labels = [(each * row, text) for each, text in address_marks(report, 12)]
    ramp = ", ".join(f"rgb({r},{g},{b})" for r, g, b in svg.colours(np.linspace(0, 1, 9)).tolist())
    name = html.escape(target_name(report, report.shown))
    return [
        f"<p>{name}; address down, time across. Accesses a second and 4 KiB page: "
        f'{top / 10**_DECADES:.3g}<span class="bar" '
        f'style="background:linear-gradient(90deg, {ramp})"></span>{top:.3g}, logarithmic.</p>',
        svg.chart(
            svg.image(picture, height),
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
        body.append(svg.steps(report.seconds, low, low + share, height, style))
        low = low + share
    labels = [(height * (1 - each / 100), f"{each} %") for each in (0, 25, 50, 75, 100)]
    return svg.chart("\n".join(body), height, float(report.seconds[-1]), labels)


def _working_set(report: Report) -> str:
    height, top = 150, max(float(report.working_set.max()), 1.0) * 1.05
    body = [
        svg.curve(report.seconds, values / top, height, f"l{_letter(index)}")
        for index, values in enumerate(report.working_set)
    ]
    return svg.chart("\n".join(body), height, float(report.seconds[-1]), _sizes(top, height, ""))


def _sizes(top: float, height: float, after: str) -> list[tuple[float, str]]:
    mib = top / 2**20
    return [
        (height * (1 - tick / mib), f"{format_size(tick * 2**20)}{after}")
        for tick in svg.nice_ticks(mib, 5)
    ]


def _migrations(report: Report) -> str:
    half = 75
    top = max(float(report.promoted.max()), float(report.demoted.max()), 1.0) * 1.05
    middle = np.full(len(report.promoted), 0.5)

    def part(values: F64Array) -> F64Array:
        return values / top / 2

    body = [
        svg.steps(report.seconds, middle, middle + part(report.promoted), 2 * half, "a"),
        svg.steps(report.seconds, middle - part(report.demoted), middle, 2 * half, "b"),
    ]
    up = _sizes(top, half, "/s")
    down = [(2 * half - y, text) for y, text in up[1:]]
    return svg.chart("\n".join(body), 2 * half, float(report.seconds[-1]), [*up, *down])


def _targets(report: Report) -> str:
    total = sum(report.accesses.values()) or 1.0
    ranked = sorted(report.accesses.items(), key=lambda item: -item[1])[:50]
    return _table(
        ("target", "share of the accesses"),
        [(target_name(report, number), f"{held / total:.1%}") for number, held in ranked],
    )
