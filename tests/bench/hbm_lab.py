# SPDX-License-Identifier: Apache-2.0
"""A triad beside a pointer chase on DRAM, HBM and CXL in the lab's modelled time, in one boot.

First touch fills DRAM with the triad's arrays and leaves HBM to the chase, the wrong way round.
Nobody tells the daemon which is which. Prints, for static placements, for the cost policy and
for its ladder of latency, where the arrays ended and the milliseconds of a sweep: the median of
the last five, which run after the daemon has ended and so show what its placement is worth.

usage: hbm_lab.py [SWEEPS]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from hbmlab import CONFIG, DRAM, HBM, ROOT, HbmLab

MIB = 1 << 20
FREE = {DRAM: 26 * MIB, HBM: 34 * MIB}
"""The chase's 8 MiB and two of the triad's arrays of 8 MiB fit DRAM, all three of them HBM."""
MIXED = [str(ROOT / "build/workloads/mixed"), "--size", "32M", "--work"]
STATIC: dict[str, dict[str, int] | None] = {
    "triad in HBM, chase in DRAM": {"a": HBM, "b": HBM, "c": HBM, "chase": DRAM},
    "first touch": None,
    "one array in DRAM": {"a": DRAM, "b": HBM, "c": HBM, "chase": DRAM},
    "chase in HBM": {"a": DRAM, "b": DRAM, "c": HBM, "chase": HBM},
}


def main() -> int:
    """One line of JSON for each run."""
    sweeps = sys.argv[1] if len(sys.argv) > 1 else "330"
    subprocess.run(["make", "-s", "-C", ROOT / "fpga", "lab"], check=True)
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads", "all"], check=True)
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads/suite"], check=True)
    with HbmLab() as lab:
        for name, place in STATIC.items():
            figures = lab.run([*MIXED, "7"], free=FREE, place=place)
            print(json.dumps({"run": name, "ms": 1e3 * median(figures["sweeps"])}), flush=True)
        for ladder in ("time", "latency"):
            config = CONFIG.format(ladder=ladder)
            figures = lab.run([*MIXED, sweeps], free=FREE, config=config)
            told = {
                "run": f"tierd, {ladder}",
                "ms": 1e3 * median(figures["sweeps"][-5:]),
                "pages by node": {name: figures["last"][name] for name in ("a", "b", "c", "chase")},
                "moved pages": sum(figures["daemon"]["totals"]["fates"].values()),
                "lost samples": figures["daemon"]["lost"],
                "epochs": figures["daemon"]["epochs"],
                "alarms": figures["daemon"]["alarms"],
            }
            print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
