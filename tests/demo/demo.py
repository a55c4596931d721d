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
from pathlib import Path
from typing import Any

from figures import result_of, source_figures
from page import page
from story import Story
from tables import print_sources, print_table, table_rows

from tierd_lab import GuestError, LabResult, Machine, run
from tierd_lab.host import find_kernel

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 3600
"""Only a guest that hangs is ended: a slow host makes the demo slow, not red."""
COMPARISON = {
    "machine": "dram-cxl-card",
    "layout": "scattered",
    "leave_free": "160M",
    "without_seconds": 0,
    "with_seconds": 10,
    "source": ["neoprof", "scan", "damon"],
}
"""What `--compare` changes."""


def pass_errors(stream: str, data: bytes) -> None:
    """Show what the guest's programs say on standard error."""
    if stream == "stderr":
        sys.stderr.write(data.decode(errors="replace"))


def build_module() -> Path:
    """The kernel module for the guest's kernel, built if it is not yet."""
    release = find_kernel().version
    subprocess.run(["make", "-s", "-C", ROOT / "kmod", f"KERNEL={release}"], check=True)
    return ROOT / f"build/kmod/{release}/tierd.ko"


def boot(args: argparse.Namespace) -> tuple[Story, LabResult | None]:
    """Run the guest's side in its machine: what it told, and how it ended; None if it died."""
    if (args.source and not args.module) or args.module == "auto":
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
    command += ["--report-every", str(args.report_every)]
    command += [] if args.source else ["--map"]
    command += ["--until", str(args.until)] if args.until else []
    for source in args.source or []:
        command += ["--source", source]
    try:
        outcome = run(
            Machine.load(args.machine),
            command,
            timeout_s=args.timeout,
            on_line=story.take,
            on_output=pass_errors,
        )
    except GuestError as error:
        # What it told until then is not lost.
        print(error, file=sys.stderr)
        return story, None
    if outcome.timed_out:
        print(f"the guest was ended after {args.timeout:g} s", file=sys.stderr)
    elif outcome.exit_status != 0:
        print(f"the guest ended with status {outcome.exit_status}", file=sys.stderr)
    return story, outcome


def described(args: argparse.Namespace, outcome: LabResult | None) -> dict[str, Any]:
    """What a result says of its machine."""
    return {
        "machine": args.machine,
        "layout": args.layout,
        "leave_free": args.leave_free,
        "move_after": args.move_after,
        "kernel": outcome.kernel if outcome else None,
        "accelerator": outcome.accelerator if outcome else None,
        "host_seconds": round(outcome.duration_s, 1) if outcome else None,
    }


def compare(args: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """One boot, a run for each source; the figures, and whether all went through."""
    story, outcome = boot(args)
    sources = source_figures(story, args.source)
    for name in args.source:
        if name not in sources:
            print(f"the run with {name} did not end", file=sys.stderr)
    print_sources(sources)
    right = all(each["checksum_ok"] and each["tierd_exit"] == 0 for each in sources.values())
    ended = outcome is not None and outcome.exit_status == 0
    good = ended and right and len(sources) == len(args.source)
    return {**described(args, outcome), "sources": sources}, good


def without_and_with(args: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """One boot, the workload without tierd and with it; the figures, and whether all is well."""
    story, outcome = boot(args)
    if not story.ended("with"):
        return {}, False
    result = {**result_of(story), **described(args, outcome)}
    rows = table_rows(result)
    print_table(rows)
    machine = f"Virtual machine {args.machine}, Linux {outcome.kernel if outcome else 'unknown'}"
    args.page.parent.mkdir(parents=True, exist_ok=True)
    args.page.write_text(page(story, rows, machine))
    print(f"  A picture of it: {args.page}\n", flush=True)
    ended = outcome is not None and outcome.exit_status == 0
    return result, ended and result["checksum_ok"]


def main() -> int:
    """Run the demo; 0 if all went through."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", default="dram-cxl")
    parser.add_argument("--layout", choices=("contiguous", "scattered"), default="contiguous")
    parser.add_argument("--leave-free", default="100M", help="DRAM left free when it begins")
    parser.add_argument("--hot-share", type=float, default=0.1)
    parser.add_argument("--without-seconds", type=float, default=10)
    parser.add_argument("--with-seconds", type=float, default=60)
    parser.add_argument("--move-after", type=float, default=0, help="another hot set then")
    parser.add_argument("--report-every", type=float, default=1, help="seconds of guest time")
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
    parser.add_argument("--page", type=Path, default=ROOT / "build/demo/index.html")
    parser.add_argument("--until", type=float, help="end once DRAM serves this share for 10 s")
    parser.add_argument(
        "--module", help="tierd.ko for the guest's kernel, auto: build it; else DAMON is used"
    )
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
