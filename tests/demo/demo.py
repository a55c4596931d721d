# SPDX-License-Identifier: Apache-2.0
"""`make demo`: a virtual machine with DRAM and CXL-like memory, without and with tierd.

Boots the machine, runs the workload inside it (`guest.py`), shows progress on standard
error and a table on standard output, whose last line is one JSON object. Two runs,
without and with tierd; or with `--source` one run for each source, side by side.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import run_figures

from tierd.lab import LabResult, Machine, run
from tierd.lab.host import find_kernel

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 600


@dataclass
class Story:
    """What the guest has told so far."""

    reports: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"without": [], "with": []}
    )
    tierd: dict[str, dict[str, Any]] = field(default_factory=dict)
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


SOURCE_ROWS = {
    "share served by DRAM at the end": "fast_share_after",
    "seconds until 90 %": "seconds_to_90_percent",
    "seconds until 95 % of its steady state": "seconds_to_95_percent_of_steady",
    "steady state": "steady_share",
    "share right after the hot set moved": "fast_share_after_move_at_first",
    "seconds until 90 % after the move": "seconds_to_90_percent_after_move",
    "pages promoted": "promoted_pages",
    "pages demoted": "demoted_pages",
    "moves per hot page": "moves_per_hot_page",
    "pages bounced (back within 5 s)": "bounced_pages",
    "tierd's CPU seconds (emulated)": "tierd_cpu_seconds",
    "updates per second": "updates_per_second",
    "memory checksum right": "checksum_ok",
}


def print_sources(story: Story, args: argparse.Namespace, outcome: LabResult) -> int:
    """The sources side by side, in seconds of guest time; 0 if all went through."""
    sources: dict[str, dict[str, Any]] = {}
    for source in args.source:
        if ("tierd_exit", source) not in story.notes:
            print(f"the run with {source} did not end", file=sys.stderr)
            continue
        sources[source] = run_figures(
            story.reports[source],
            story.tierd[source],
            story.notes["handed_over", source]["clock"],
        )
        sources[source]["tierd_cpu_seconds"] = round(story.notes["tierd_cpu", source]["seconds"], 2)
    print(f"\n  {'':<42}" + "".join(f"{source:>16}" for source in sources))
    for name, key in SOURCE_ROWS.items():
        if any(figures.get(key) is not None for figures in sources.values()):
            cells = (str(figures.get(key, "-")) for figures in sources.values())
            print(f"  {name:<42}" + "".join(f"{cell:>16}" for cell in cells))
    print()
    result = {"machine": args.machine, "layout": args.layout, "kernel": outcome.kernel}
    result["accelerator"] = outcome.accelerator
    print(json.dumps({**result, "move_after": args.move_after, "sources": sources}), flush=True)
    good = all(figures["checksum_ok"] for figures in sources.values())
    return 0 if outcome.exit_status == 0 and good and len(sources) == len(args.source) else 1


def pass_errors(stream: str, data: bytes) -> None:
    """Show what the guest's programs say on standard error."""
    if stream == "stderr":
        sys.stderr.write(data.decode(errors="replace"))


def build_module() -> Path:
    """The kernel module for the guest's kernel, built if it is not yet."""
    release = find_kernel().version
    subprocess.run(["make", "-s", "-C", ROOT / "kmod", f"KERNEL={release}"], check=True)
    return ROOT / f"build/kmod/{release}/tierd.ko"


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
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S)
    parser.add_argument("--config", type=Path, default=ROOT / "tests/demo/tierd.toml")
    parser.add_argument("--log-level", default="warning")
    parser.add_argument("--module", help="tierd.ko for the guest's kernel; else DAMON is used")
    args = parser.parse_args()
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
        if not story.reports["with"] and not args.source:
            return 1
    if args.source:
        return print_sources(story, args, outcome)
    result = result_of(story)
    result["machine"] = args.machine
    result["layout"] = args.layout
    result["kernel"] = outcome.kernel
    result["accelerator"] = outcome.accelerator
    print_table(result)
    print(json.dumps(result), flush=True)
    return 0 if outcome.exit_status == 0 and result["checksum_ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
