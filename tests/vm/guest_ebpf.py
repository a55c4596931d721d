# SPDX-License-Identifier: Apache-2.0
"""Checks of the eBPF sources; run as root, in a lab guest or on a host.

    guest_ebpf.py TOUCH [--way bcc|prebuilt] [CHECK ...]

Prints one JSON line a check, {"check": name, "ok": bool, ...}; exits with 0 only if all
are ok. TOUCH is the program of tests/workloads/touch.c. Every check has a right answer
known beforehand (pages, counts, the kernel's own counters); times are printed only.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tierd.core import bounds

sys.path.insert(0, str(Path(__file__).resolve().parent))

from guest_ebpf_counts import Counts
from guest_ebpf_ground import Result
from guest_ebpf_mishaps import Mishaps
from guest_ebpf_moves import Moves


class Checks(Counts, Moves, Mishaps):
    """One method a check; each returns its result with "ok"."""


def names() -> list[str]:
    """All checks."""
    rooms = (Counts, Moves, Mishaps)
    return [n for room in rooms for n in vars(room) if not n.startswith("_") and n != "fallback"]


def main() -> int:
    """Run the checks that were asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("touch")
    parser.add_argument("--way", default="bcc")
    parser.add_argument("checks", nargs="*")
    args = parser.parse_intermixed_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for folder, kind in (("/sys/kernel/tracing", "tracefs"), ("/sys/fs/bpf", "bpf")):
        if not any(Path(folder).iterdir()):
            subprocess.run(["mount", "-t", kind, kind, folder], check=False)
    # An emulated guest on a busy host needs minutes to compile; a service gives up sooner.
    bounds.BPF_HELPER_TIMEOUT_S = 1200.0
    checks = Checks(args.touch, args.way)
    failed = 0
    for name in args.checks or names():
        check: Callable[[], Result] = getattr(checks, name)
        begin = time.monotonic()
        try:
            result = check()
        except Exception as error:
            result = {"ok": False, "error": repr(error), "where": traceback.format_exc()[-600:]}
        result["seconds"] = round(time.monotonic() - begin, 1)
        print(json.dumps({"check": name, **result}), flush=True)
        failed += not result["ok"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
