# SPDX-License-Identifier: Apache-2.0
"""`make demo`: a virtual machine with DRAM and CXL-like memory, without and with tierd.

Boots the machine, runs the workload twice inside it (`guest.py`), shows progress on
standard error and a table on standard output, whose last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tierd.lab import Machine, run

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 600


@dataclass
class Story:
    """What the guest has told so far."""

    reports: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"without": [], "with": []}
    )
    tierd: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)

    def take(self, line: str) -> None:
        """One line of the guest's output."""
        if not line.startswith("{"):
            print(line, file=sys.stderr)
            return
        event = json.loads(line)
        if "tierd" in event:
            self.tierd = event["tierd"]
        elif "phase" in event:
            self.reports[event["phase"]].append(event)
            self.show(event)
        else:
            self.notes[event["event"]] = event

    def show(self, event: dict[str, Any]) -> None:
        """One line of progress."""
        if "fast_share" not in event:
            return
        bar = "#" * round(40 * event["fast_share"])
        print(
            f"[{time.monotonic() - self.begun:5.0f} s] {event['phase']:>7} tierd, "
            f"guest second {event['t']:5.1f}: served by DRAM {event['fast_share']:6.1%} "
            f"|{bar:<40}|",
            file=sys.stderr,
            flush=True,
        )


def result_of(story: Story) -> dict[str, Any]:
    """The figures of a finished demo."""
    without, with_ = story.reports["without"], story.reports["with"]
    started = story.notes["handed_over"]["clock"]
    shares = [r for r in with_ if "fast_share" in r]
    after = [r for r in shares if r["clock"] > started]
    to_90 = [r["clock"] - started for r in after if r["fast_share"] >= 0.90]
    to_95 = [r["clock"] for r in after if r["fast_share"] >= 0.95]
    held = [r["fast_share"] for r in after if to_95 and r["clock"] >= to_95[0]]
    end = with_[-1]
    checksums = [r["checksum_ok"] for r in (without[-1:] + with_[-1:]) if r["event"] == "end"]
    moves = story.tierd["promoted_pages"] + story.tierd["demoted_pages"]
    return {
        "fast_share_before": (without or with_)[-1 if without else 0]["fast_share"],
        "fast_share_after": end["fast_share"],
        "fast_share_lowest_after_95": min(held) if held else None,
        "seconds_to_90_percent": round(to_90[0], 2) if to_90 else None,
        "seconds_to_95_percent": round(to_95[0] - started, 2) if to_95 else None,
        "promoted_pages": story.tierd["promoted_pages"],
        "demoted_pages": story.tierd["demoted_pages"],
        "hot_pages": end["hot_pages"],
        "moves_per_hot_page": round(moves / end["hot_pages"], 3),
        "samples_lost": story.tierd["lost_samples"],
        "move_seconds": round(story.tierd["move_seconds"], 2),
        "move_cpu_seconds": round(story.tierd["move_cpu_seconds"], 2),
        "scanner": {k: v for k, v in story.notes.get("scanner", {}).items() if k != "event"},
        "tierd_cpu_seconds": round(story.notes["tierd_cpu"]["seconds"], 2),
        "updates_per_second_without": _rate(without),
        "updates_per_second_with": _rate(with_),
        "checksum_ok": bool(checksums) and all(checksums),
        "tierd_exit": story.notes["tierd_exit"]["code"],
        "tlbtick_us": story.notes["tlbtick"]["period_us"],
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


def pass_errors(stream: str, data: bytes) -> None:
    """Show what the guest's programs say on standard error."""
    if stream == "stderr":
        sys.stderr.write(data.decode(errors="replace"))


def main() -> int:
    """Run the demo; 0 if all went through."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", default="dram-cxl")
    parser.add_argument("--layout", choices=("contiguous", "scattered"), default="contiguous")
    parser.add_argument("--hot-share", type=float, default=0.1)
    parser.add_argument("--without-seconds", type=float, default=15)
    parser.add_argument("--with-seconds", type=float, default=60)
    parser.add_argument("--config", type=Path, default=ROOT / "tests/demo/tierd.toml")
    parser.add_argument("--log-level", default="warning")
    parser.add_argument("--module", help="tierd.ko for the guest's kernel; else DAMON is used")
    args = parser.parse_args()

    story = Story()
    print(f"Booting the virtual machine {args.machine} ...", file=sys.stderr, flush=True)
    tools = ROOT / "build/workloads"
    command = [sys.executable, str(ROOT / "tests/demo/guest.py")]
    command += ["--hotset", str(tools / "hotset"), "--tlbtick", str(tools / "tlbtick")]
    command += ["--tierd", str(Path(sys.executable).with_name("tierd"))]
    command += ["--config", str(args.config), "--layout", args.layout]
    command += ["--hot-share", str(args.hot_share)]
    command += ["--without-seconds", str(args.without_seconds)]
    command += ["--with-seconds", str(args.with_seconds), "--log-level", args.log_level]
    command += ["--module", args.module] if args.module else []
    outcome = run(
        Machine.load(args.machine),
        command,
        timeout_s=TIMEOUT_S,
        on_line=story.take,
        on_output=pass_errors,
    )
    if outcome.exit_status != 0:
        print(f"the guest ended with status {outcome.exit_status}", file=sys.stderr)
        if not story.reports["with"]:
            return 1
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
