# SPDX-License-Identifier: Apache-2.0
"""What half and twice the value of each tuning constant changes in replays of recordings.

Every constant that the replay of a recording reads is replayed with half and with twice its value.
The figure of a recording is the largest share that differs from what was recorded: of the 4 KiB
pages of plans those that are in one plan only, of the fast path's steps those from the first that
chose otherwise, and of each other part's decisions those that are others.

usage: sensitivity.py [--json | --write] [--recording FILE ...] [CONSTANT ...]
  --json   print the share of each part
  --write  make daemon/tierd/core/tuning/measured.py and sensitivity.md of the benchmarks anew
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import golden
import golden_cards

from tierd.core import tuning
from tierd.core.errors import TierdError
from tierd.core.migration import MigrationPlan
from tierd.engine.build import make_policy
from tierd.observe.recording.reader import Recording
from tierd.replay.fast_path import DIFFERED
from tierd.replay.policy import Replay, shared_moves

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "daemon/tierd/core/tuning/measured.py"
TABLE = ROOT / "docs/research/benchmarks/sensitivity.md"
FACTORS = {"half": 0.5, "twice": 2.0}
FAILED = "fails"
HEAD = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
# What half and twice the value of a tuning constant changes

The golden recordings (`tests/fixtures/recordings`, of made-up hosts: accessed bits, cards, the
policy `cost`, and the rules alone) are replayed with half and with twice the value of each
constant. A cell has the share of decisions that differ from the recorded ones with half / with
twice the value: the largest of the pages of plans, the fast path's steps, and each other part's
decisions. "-" means that the replay does not read the constant; "0" that no decision differs.

Shares say how much a constant decides, not whether its value is good. The recordings are small,
so that a constant which changes none of them may still matter on a large host. {unread} of the
{all} constants are read by no replay, and are not listed.

Made by `.venv/bin/python tests/bench/sensitivity.py --write`.

"""
Shares = dict[str, float]


def planned_pages(plan: MigrationPlan) -> int:
    """4 KiB pages that a plan moves."""
    return int((1 << plan.order.astype(np.int64)).sum())


def shares(path: Path, whole: dict[str, int]) -> tuple[Shares, dict[str, int]]:
    """Share of each part's decisions that differ from a recording, and the number of decisions.

    `whole`: decisions of each part in a replay without a difference.
    """
    replay = Replay(Recording(path), make_policy)
    either = apart = 0
    for each in replay:
        total = planned_pages(each.plan) + planned_pages(each.tick.plan)
        common = shared_moves(each.tick.plan, each.plan)
        size = max(1, total // max(1, len(each.plan) + len(each.tick.plan)))
        either += total - common * size
        apart += total - 2 * common * size
    found = {"plans": apart / either} if either else {}
    counts = {}
    for part in replay.decided.parts:
        counts[part.name] = part.decisions
        found[part.name] = part.differing / max(1, part.decisions)
        if part.ended == DIFFERED:
            found[part.name] = 1 - (part.decisions - 1) / whole.get(part.name, part.decisions)
    return found, counts


@contextlib.contextmanager
def watched(read: set[str]) -> Iterator[None]:
    """Add the names of all constants that are read meanwhile."""
    kinds = {name: type(section) for name, section in tuning.SECTIONS.items()}
    for name, kind in kinds.items():
        fields = {each.name for each in dataclasses.fields(kind)}

        def get(self: Any, field: str, name: str = name, fields: set[str] = fields) -> Any:
            if field in fields:
                read.add(f"{name}.{field}")
            return object.__getattribute__(self, field)

        watching = type(kind.__name__, (kind,), {"__slots__": (), "__getattribute__": get})
        tuning.SECTIONS[name].__class__ = watching
    try:
        yield
    finally:
        for name, kind in kinds.items():
            tuning.SECTIONS[name].__class__ = kind


def scaled(value: Any, factor: float) -> str:
    """The text of so many times a value, of its type."""
    if isinstance(value, tuple):
        return ",".join(scaled(each, factor) for each in value)
    return str(int(value * factor) if isinstance(value, int) else value * factor)


def measure(paths: list[Path], names: list[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Constant → recording → "half" and "twice" → the shares of parts, or that the replay fails."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    values = {each.name: each.value for each in tuning.fields()}
    for path in paths:
        read: set[str] = set()
        with watched(read):
            none, whole = shares(path, {})
        if any(none.values()):
            raise SystemExit(f"{path} does not replay as it was recorded: {none}")
        for name in sorted(read & set(names or read)):
            cells = found.setdefault(name, {}).setdefault(path.stem, {})
            for which, factor in FACTORS.items():
                try:
                    with tuning.overridden([f"{name}={scaled(values[name], factor)}"]):
                        cells[which] = shares(path, whole)[0]
                except (TierdError, ArithmeticError, ValueError, IndexError) as error:
                    cells[which] = f"{FAILED}: {type(error).__name__}"
    return found


def largest(cell: Any) -> float | None:
    """The largest share of a cell; None where the replay failed."""
    return None if isinstance(cell, str) else max(cell.values(), default=0.0)


def percent(share: float | None) -> str:
    """A share in percent, with two digits."""
    if share is None:
        return FAILED
    return f"{100 * share:.2g}" if share < 0.995 else "100"


def sentence(cells: dict[str, dict[str, Any]]) -> str:
    """What was measured of one constant."""
    worst = {
        name: max(1.0 if (each := largest(cell)) is None else each for cell in both.values())
        for name, both in cells.items()
    }
    told = [f"{name} {percent(share)} %" for name, share in sorted(worst.items()) if share > 0]
    return ", ".join(told) or "no decision differs"


def module(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The text of the module of sentences."""
    head = (
        "# SPDX-License-Identifier: Apache-2.0\n"
        '"""What half or twice the value of a constant changes in the golden recordings.\n\n'
        "Made by tests/bench/sensitivity.py --write, as docs/research/benchmarks/sensitivity.md.\n"
        '"""\n\nfrom __future__ import annotations\n\nfrom collections.abc import Mapping\n'
        "from typing import Final\n\nMEASURED: Final[Mapping[str, str]] = {\n"
    )
    rows = [f"    {json.dumps(name)}: {json.dumps(sentence(found[name]))},\n" for name in found]
    return head + "".join(sorted(rows)) + "}\n"


def table(found: dict[str, dict[str, dict[str, Any]]], paths: list[Path]) -> str:
    """The text of the published table."""
    columns = [path.stem for path in paths]
    known = [each.name for each in tuning.fields()]
    lines = [f"| constant | {' | '.join(columns)} |\n", "|---|" + "---:|" * len(columns) + "\n"]
    for name in known:
        if name in found:
            cells = [
                " / ".join(percent(largest(each)) for each in found[name][column].values()) + " %"
                if column in found[name]
                else "-"
                for column in columns
            ]
            lines.append(f"| `{name}` | {' | '.join(cells)} |\n")
    head = HEAD.format(unread=len(known) - len(found), all=len(known))
    return head + "".join(lines)


def main() -> int:
    """Measure, and print or write what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print the share of each part")
    output.add_argument("--write", action="store_true", help="make module and table anew")
    parser.add_argument("--recording", type=Path, action="append", help="instead of the golden")
    parser.add_argument("constant", nargs="*")
    args = parser.parse_args()
    if args.write and (args.constant or args.recording):
        parser.error("--write measures all constants in all golden recordings")
    paths = args.recording or sorted(golden.FOLDER.glob("*.rec"))
    with (
        tempfile.TemporaryDirectory() as folder,
        golden_cards.replaying_on(golden_cards.fake_native(Path(folder))),
    ):
        found = measure(paths, args.constant)
    if args.json:
        print(json.dumps(found, indent=1))
    elif args.write:
        MODULE.write_text(module(found))
        TABLE.write_text(table(found, paths))
    else:
        print(table(found, paths).partition("\n\n| ")[2].join(["| ", ""]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
