# SPDX-License-Identifier: Apache-2.0
"""`tierd trial` on a load that placement helps, or on one that it cannot help; in modelled time.

usage: guest_trial.py --hotset PATH --tierd PATH --module FILE --case gain|nothing [--pairs N]
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup/tiered")
CONFIG = """
[targets]
match = { cgroup = "/tiered" }
refresh_interval = "500ms"
[policy]
# Pages that an undo has moved may come back within the time to settle.
migration_cooldown = "500ms"
"""
CASES = {
    # The hot pages lie in CXL memory, and would find room in DRAM.
    "gain": ["--size", "300M", "--slow-node", "1"],
    # All lies in DRAM.
    "nothing": ["--size", "100M", "--slow-node", "0"],
}
MEASURE = """tail -n 2 {file} | awk -F'[:,]' -v now=$(cut -d' ' -f1 /proc/uptime) '
NR == 1 {{ clock = $6; updates = $8 }}
END {{ printf "%.0f", $8 + ($8 - updates) / ($6 - clock) * (now - $6) }}'"""
"""The load's updates until now, from its last two reports."""


def main() -> int:
    """Print what the trial says; 0 if the service ended well."""
    parser = argparse.ArgumentParser()
    for name in ("hotset", "tierd", "module"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--pairs", default="6")
    args = parser.parse_args()
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    subprocess.run(["insmod", args.module], check=True)
    CGROUP.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp())
    (folder / "tierd.toml").write_text(CONFIG)
    reports = folder / "reports"
    command = [args.hotset, "--seconds", "100000", "--rate", "0", "--no-check", "--scattered"]
    command += ["--fast-node", "0", "--leave-free", "100M", "--interval", "0.2"]
    with (
        reports.open("wb") as out,
        subprocess.Popen([*command, *CASES[args.case]], stdout=out) as load,
        subprocess.Popen(
            [args.tierd, "run", "--config", str(folder / "tierd.toml"), "--log-level", "warning"]
        ) as service,
    ):
        while reports.read_bytes().count(b"\n") < 2:
            time.sleep(0.05)
        (CGROUP / "cgroup.procs").write_text(str(load.pid))
        while not Path("/run/tierd/control.sock").exists():
            time.sleep(0.05)
        options = ["--measure", MEASURE.format(file=reports), "--counter", "--pairs", args.pairs]
        options += ["--window", "2s", "--settle", "4s", "--wash-out", "200ms", "--seed", "1"]
        options += ["--worthwhile", "0.05"]
        done = subprocess.run(
            [args.tierd, "trial", "--json", *options], stdout=subprocess.PIPE, check=False
        )
        told = json.loads(done.stdout or b"null")
        print(json.dumps({"case": args.case, "status": done.returncode, "trial": told}), flush=True)
        load.kill()
        service.send_signal(signal.SIGTERM)
    subprocess.run(["rmmod", "tierd"], check=True)
    return service.returncode


if __name__ == "__main__":
    sys.exit(main())
