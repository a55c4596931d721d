# SPDX-License-Identifier: Apache-2.0
"""Checks the coverage that the cocotb benches left: every functional point, lines >= 95 %.

``python tb/coverage.py DIR...`` reads each DIR/coverage-*.dat. Points are the ``cover property`` of
tb/np_cover.sv. Lines of the RTL that need not be covered are listed in EXCLUDED, each with its
reason; an exclusion that is covered after all is an error, so the list stays true.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

FPGA = Path(__file__).resolve().parent.parent
LINE_GOAL = 0.95

# (file, text of the source line) -> reason.
EXCLUDED: dict[tuple[str, str], str] = {
    ("np_core_ctrl.sv", "default: ;"): "no command has the eighth operation code",
    ("np_core_ctrl.sv", "default: state_d = StIdle;"): "all four states are listed before it",
    ("np_host_ctrl.sv", "default: state_d = StIdle;"): "all four states are listed before it",
}

Point = tuple[str, int, str, str]


def read(folders: list[Path]) -> dict[Point, int]:
    """Return hits by (file, line, page, comment), added over files and instances."""
    hits: dict[Point, int] = defaultdict(int)
    for data in sorted(path for folder in folders for path in folder.glob("coverage-*.dat")):
        for entry in data.read_text().splitlines():
            match = re.match(r"C '(.*)' (\d+)$", entry)
            if not match:
                continue
            fields = dict(
                part.split("\x02", 1) for part in match[1].split("\x01") if "\x02" in part
            )
            point = (
                Path(fields["f"]).name,
                int(fields["l"]),
                fields["page"].partition("/")[0],
                # A functional point counts by channels and distance, a line once. The two rows
                # are instances of one module, which Verilator counts as one.
                fields.get("o", "")
                + (
                    " in " + re.sub(r"gen_row\[\d\]", "gen_row", fields["h"])
                    if fields["page"].startswith("v_user")
                    else ""
                ),
            )
            hits[point] += int(match[2])
    return hits


def functional(hits: dict[Point, int]) -> tuple[int, list[str]]:
    """Return the number of functional points and those that were not seen."""
    points = {point: count for point, count in hits.items() if point[2] == "v_user"}
    missing = [f"{name}:{line} {what}" for (name, line, _, what), n in points.items() if not n]
    return len(points), missing


def lines(hits: dict[Point, int]) -> tuple[int, int, list[str], list[str]]:
    """Count lines and branches: return how many, how many covered, which not, wrong exclusions."""
    paths = {path.name: path for path in (FPGA / "rtl").rglob("*.sv")}
    uncovered, wrong, covered, total = [], [], 0, 0
    for (name, line, page, what), count in sorted(hits.items()):
        if page not in ("v_line", "v_branch") or name not in paths:
            continue
        text = paths[name].read_text().splitlines()[line - 1].strip()
        if (name, text) in EXCLUDED:
            if count:
                wrong.append(f"{name}:{line} is excluded but covered: {text}")
            continue
        total += 1
        covered += bool(count)
        if not count:
            uncovered.append(f"{name}:{line} ({what}) {text}")
    return total, covered, uncovered, wrong


def main() -> int:
    """Print the report; return 1 if a goal is missed."""
    folders = [Path(argument) for argument in sys.argv[1:]]
    hits = read(folders)
    if not hits:
        print(f"coverage: nothing in {folders}: run tb/run_cocotb.py first", file=sys.stderr)
        return 1
    points, missing = functional(hits)
    total, covered, uncovered, wrong = lines(hits)
    for title, found in (("not seen", missing), ("not covered", uncovered), ("wrong", wrong)):
        for item in found:
            print(f"{title}: {item}")
    share = covered / total if total else 0.0
    print(f"functional points: {points - len(missing)} of {points}")
    print(
        f"lines and branches: {covered} of {total} ({100 * share:.1f} %), {len(EXCLUDED)} excluded"
    )
    return 1 if missing or wrong or not points or share < LINE_GOAL else 0


if __name__ == "__main__":
    sys.exit(main())
