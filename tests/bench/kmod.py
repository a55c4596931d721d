# SPDX-License-Identifier: Apache-2.0
"""The kernel module's figures, in the lab.

Speed of a scan against /proc/PID/pagemap, how well the CPU budget is kept, cost of a frame
lookup and of its alternatives, and the demo's loop with the scan source beside DAMON's.
Prints one JSON line a figure; fails where the project's own bounds are not held: a scan at
least 5 times faster than pagemap, the budget kept within a tenth.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tierd_lab import Guest
from tierd_lab.host import find_kernel

ROOT = Path(__file__).resolve().parents[2]
GUEST = ROOT / "tests/vm"
RUNS = (
    ("guest_kmod_scan.py", "speed"),
    ("guest_kmod_scan.py", "budget_long"),
    ("guest_kmod_scan.py", "accuracy_large"),
    ("guest_kmod_resolve.py", "alternatives"),
    ("guest_kmod_loop.py", "scan"),
    ("guest_kmod_loop.py", "damon"),
)


def main() -> int:
    """Run all in one boot; 0 if every bound is held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", help="release (default: the newest installed)")
    args = parser.parse_args()
    kernel = find_kernel(args.kernel)
    subprocess.run(["make", "-s", "-C", str(ROOT / "kmod"), f"KERNEL={kernel.version}"], check=True)
    subprocess.run(["make", "-s", "-C", str(ROOT / "tests/workloads")], check=True)
    ok = True
    with Guest("dram-cxl", kernel=kernel.version) as guest:
        for script, name in RUNS:
            result = guest.run([sys.executable, str(GUEST / script), name], timeout=900)
            print(result.stdout.strip() or result.stderr.strip()[-2000:], flush=True)
            ok = ok and result.status == 0
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
