# SPDX-License-Identifier: Apache-2.0
"""`make demo`: a virtual machine with DRAM and CXL-like memory, without and with tierd.

Boots the machine, runs the workload inside it (`guest.py`), shows progress on standard
error and a table on standard output, whose last line is one JSON object. Two runs,
without and with tierd, and with `--compare` a second machine, where each source of accesses
has a run; or with `--source` runs with these sources only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import run_figures

from tierd.lab import LabResult, Machine, run
from tierd.lab.host import find_kernel

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 600
COMPARISON = {
    "machine": "dram-cxl-card",
    "layout": "scattered",
    "leave_free": "135M",
    "without_seconds": 0,
    "with_seconds": 12,
    "source": ["damon", "scan", "neoprof"],
}
"""What `--compare` changes."""


@dataclass
class Story:
    """What the guest has told so far."""

    reports: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"without": [], "with": []}
    )
    tierd: dict[str, dict[str, Any]] = field(default_factory=dict)
    tierd_before_move: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last totals before the hot set moved."""
    notes: dict[tuple[str, str], Any] = field(default_factory=dict)
    """By event and the phase it is of (empty: of none)."""
    begun: float = field(default_factory=time.monotonic)

    def take(self, line: str) -> None:
        """One line of the guest's output."""
        if not line.startswith("{"):
            print(line, file=sys.stderr)
            return
        event = json.loads(line)
        if "tierd" in event:
            self.tierd[event["phase"]] = event["tierd"]
        elif "phase" in event:
            self.reports.setdefault(event["phase"], []).append(event)
            if event["event"] == "hot_set_moved" and event["phase"] in self.tierd:
                self.tierd_before_move[event["phase"]] = self.tierd[event["phase"]]
            self.show(event)
        else:
            self.notes[event["event"], event.get("of", "")] = event

    def show(self, event: dict[str, Any]) -> None:
        """One line of progress."""
        if "fast_share" not in event:
            return
        bar = "#" * round(40 * event["fast_share"])
        print(
            f"[{time.monotonic() - self.begun:5.0f} s] {event['phase']:>7}: "
            f"guest second {event['t']:5.1f}: served by DRAM {event['fast_share']:6.1%} "
            f"|{bar:<40}|",
            file=sys.stderr,
            flush=True,
        )

    def scanner(self, phase: str) -> dict[str, Any]:
        """What the module's scanner did in a phase; empty without the module."""
        told = self.notes.get(("scanner", phase), {})
        return {k: v for k, v in told.items() if k not in ("event", "of")}


def result_of(story: Story) -> dict[str, Any]:
    """The figures of a finished demo."""
    without, with_ = story.reports["without"], story.reports["with"]
    started = story.notes["handed_over", "with"]["clock"]
    tierd = story.tierd["with"]
    shares = [r for r in with_ if "fast_share" in r]
    after = [r for r in shares if r["clock"] > started]
    to_90 = [r["clock"] - started for r in after if r["fast_share"] >= 0.90]
    to_95 = [r["clock"] for r in after if r["fast_share"] >= 0.95]
    held = [r["fast_share"] for r in after if to_95 and r["clock"] >= to_95[0]]
    end = with_[-1]
    checksums = [r["checksum_ok"] for r in (without[-1:] + with_[-1:]) if r["event"] == "end"]
    moves = tierd["promoted_pages"] + tierd["demoted_pages"]
    return {
        "fast_share_before": (without or with_)[-1 if without else 0]["fast_share"],
        "fast_share_after": end["fast_share"],
        "fast_share_lowest_after_95": min(held) if held else None,
        "seconds_to_90_percent": round(to_90[0], 2) if to_90 else None,
        "seconds_to_95_percent": round(to_95[0] - started, 2) if to_95 else None,
        "promoted_pages": tierd["promoted_pages"],
        "demoted_pages": tierd["demoted_pages"],
        "hot_pages": end["hot_pages"],
        "moves_per_hot_page": round(moves / end["hot_pages"], 3),
        "samples_lost": tierd["lost_samples"],
        "move_seconds": round(tierd["move_seconds"], 2),
        "move_cpu_seconds": round(tierd["move_cpu_seconds"], 2),
        "scanner": story.scanner("with"),
        "tierd_cpu_seconds": round(story.notes["tierd_cpu", "with"]["seconds"], 2),
        "updates_per_second_without": _rate(without),
        "updates_per_second_with": _rate(with_),
        "checksum_ok": bool(checksums) and all(checksums),
        "tierd_exit": story.notes["tierd_exit", "with"]["code"],
        "tlbtick_us": story.notes["tlbtick", ""]["period_us"],
    }


def _rate(reports: list[dict[str, Any]]) -> int | None:
    return round(reports[-1]["updates"] / reports[-1]["t"]) if reports else None


def print_table(result: dict[str, Any]) -> None:
    """The result for people."""

    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    rows = [
        ("", "without tierd", "with tierd"),
        (
            "accesses served by DRAM, at the end",
            share(result["fast_share_before"]),
            share(result["fast_share_after"]),
        ),
        (
            "lowest share after it first reached 95 %",
            "",
            share(result["fast_share_lowest_after_95"]),
        ),
        ("seconds until 90 % (guest time)", "never", str(result["seconds_to_90_percent"])),
        (
            "pages promoted / demoted",
            "0 / 0",
            f"{result['promoted_pages']} / {result['demoted_pages']}",
        ),
        ("moves per hot page", "0", str(result["moves_per_hot_page"])),
        (
            "updates per second",
            str(result["updates_per_second_without"]),
            str(result["updates_per_second_with"]),
        ),
        ("tierd's CPU seconds (emulated)", "", str(result["tierd_cpu_seconds"])),
        ("samples lost", "", str(result["samples_lost"])),
        ("memory checksum", "", "right" if result["checksum_ok"] else "WRONG"),
    ]
    if result["scanner"]:
        share, budget = result["scanner"]["cpu_share"], result["scanner"]["budget"]
        rows.insert(-1, ("kernel scanner's CPU, of its budget", "", f"{share:.1%} of {budget:.1%}"))
    print()
    for name, left, right in rows:
        print(f"  {name:<42}{left:>16}{right:>18}")
    print()


COLUMNS = {
    "at the end": "fast_share_after",
    "to 90 %": "seconds_to_90_percent",
    "to 95 % of steady": "seconds_to_95_percent_of_steady",
    "moved: first": "fast_share_after_move_at_first",
    "moved: to 90 %": "seconds_to_90_percent_after_move",
    "promoted": "promoted_pages",
    "demoted": "demoted_pages",
    "a hot page": "moves_per_hot_page",
    "first set": "moves_per_hot_page_before_move",
    "bounced": "bounced_pages",
    "CPU": "tierd_cpu_seconds",
}
"""Headings of the table of sources, and the figures below them."""
LEGEND = (
    "Shares are of the accesses that DRAM serves; seconds are the guest's. At the end; until "
    "90 %, and until 95 % of its own steady state; after the hot set moved, at first and until "
    "90 % again; pages promoted and demoted, both per hot page (where the hot set moved, of the "
    "first set as well), and back within 5 s; CPU seconds of the service."
)


def source_figures(story: Story, sources: list[str]) -> dict[str, dict[str, Any]]:
    """The figures of each source whose run ended."""
    found: dict[str, dict[str, Any]] = {}
    for source in sources:
        if ("tierd_exit", source) not in story.notes:
            print(f"the run with {source} did not end", file=sys.stderr)
            continue
        found[source] = run_figures(
            story.reports[source],
            story.tierd[source],
            story.notes["handed_over", source]["clock"],
            story.tierd_before_move.get(source),
        )
        found[source]["tierd_cpu_seconds"] = round(story.notes["tierd_cpu", source]["seconds"], 2)
        found[source]["tierd_exit"] = story.notes["tierd_exit", source]["code"]
    return found


def source_table(sources: dict[str, dict[str, Any]]) -> list[str]:
    """The sources side by side, a row each; columns that none has a figure for are left out."""
    columns = {
        heading: key
        for heading, key in COLUMNS.items()
        if any(figures.get(key) is not None for figures in sources.values())
    }
    rows = [["source", *columns]]
    for source, figures in sources.items():
        cells = (figures.get(key) for key in columns.values())
        rows.append([source, *("never" if cell is None else str(cell) for cell in cells)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + row[0].ljust(widths[0])
        + "".join(f"  {c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]


def print_sources(sources: dict[str, dict[str, Any]]) -> None:
    """The table of sources, for people."""
    print()
    for line in source_table(sources):
        print(line)
    print()
    for line in textwrap.wrap(LEGEND, 96, initial_indent="  ", subsequent_indent="  "):
        print(line)
    print(flush=True)


def pass_errors(stream: str, data: bytes) -> None:
    """Show what the guest's programs say on standard error."""
    if stream == "stderr":
        sys.stderr.write(data.decode(errors="replace"))


def build_module() -> Path:
    """The kernel module for the guest's kernel, built if it is not yet."""
    release = find_kernel().version
    subprocess.run(["make", "-s", "-C", ROOT / "kmod", f"KERNEL={release}"], check=True)
    return ROOT / f"build/kmod/{release}/tierd.ko"


def boot(args: argparse.Namespace) -> tuple[Story, LabResult]:
    """Run the guest's side in its machine; what it told."""
    if args.source and not args.module:
        args.module = str(build_module())
    story = Story()
    print(f"Booting the virtual machine {args.machine} ...", file=sys.stderr, flush=True)
    tools = ROOT / "build/workloads"
    command = [sys.executable, str(ROOT / "tests/demo/guest.py")]
    command += ["--hotset", str(tools / "hotset"), "--tlbtick", str(tools / "tlbtick")]
    command += ["--tierd", str(Path(sys.executable).with_name("tierd"))]
    command += ["--config", str(args.config), "--layout", args.layout]
    command += ["--leave-free", args.leave_free, "--hot-share", str(args.hot_share)]
    command += ["--without-seconds", str(args.without_seconds)]
    command += ["--with-seconds", str(args.with_seconds), "--log-level", args.log_level]
    command += ["--module", args.module] if args.module else []
    command += ["--size", args.size, "--move-after", str(args.move_after)]
    for source in args.source or []:
        command += ["--source", source]
    outcome = run(
        Machine.load(args.machine),
        command,
        timeout_s=args.timeout,
        on_line=story.take,
        on_output=pass_errors,
    )
    if outcome.exit_status != 0:
        print(f"the guest ended with status {outcome.exit_status}", file=sys.stderr)
    return story, outcome


def compare(args: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """One boot, a run for each source; the figures, and whether all went through."""
    story, outcome = boot(args)
    sources = source_figures(story, args.source)
    print_sources(sources)
    right = all(each["checksum_ok"] and each["tierd_exit"] == 0 for each in sources.values())
    result = {
        "machine": args.machine,
        "layout": args.layout,
        "kernel": outcome.kernel,
        "accelerator": outcome.accelerator,
        "leave_free": args.leave_free,
        "move_after": args.move_after,
        "sources": sources,
    }
    return result, outcome.exit_status == 0 and right and len(sources) == len(args.source)


def without_and_with(args: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """One boot, the workload without tierd and with it; the figures, and whether all is well."""
    story, outcome = boot(args)
    if outcome.exit_status != 0 and not story.reports["with"]:
        return {}, False
    result = result_of(story)
    result["machine"] = args.machine
    result["layout"] = args.layout
    result["kernel"] = outcome.kernel
    result["accelerator"] = outcome.accelerator
    print_table(result)
    return result, outcome.exit_status == 0 and result["checksum_ok"]


def main() -> int:
    """Run the demo; 0 if all went through."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", default="dram-cxl")
    parser.add_argument("--layout", choices=("contiguous", "scattered"), default="contiguous")
    parser.add_argument("--leave-free", default="100M", help="DRAM left free when it begins")
    parser.add_argument("--hot-share", type=float, default=0.1)
    parser.add_argument("--without-seconds", type=float, default=15)
    parser.add_argument("--with-seconds", type=float, default=60)
    parser.add_argument("--move-after", type=float, default=0, help="another hot set then")
    parser.add_argument("--size", default="1200M")
    parser.add_argument(
        "--source",
        action="append",
        help="one run with this source only; give several to compare them",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="then the sources side by side, scattered, in the machine with a card",
    )
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S)
    parser.add_argument("--config", type=Path, default=ROOT / "tests/demo/tierd.toml")
    parser.add_argument("--log-level", default="warning")
    parser.add_argument("--module", help="tierd.ko for the guest's kernel; else DAMON is used")
    args = parser.parse_args()
    if args.source:
        result, good = compare(args)
    else:
        result, good = without_and_with(args)
    if args.compare and not args.source and result:
        beside = argparse.Namespace(**{**vars(args), **COMPARISON})
        compared, right = compare(beside)
        result["compared"] = compared
        good = good and right
    if not result:
        return 1
    print(json.dumps(result), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
