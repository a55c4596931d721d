# SPDX-License-Identifier: Apache-2.0
"""Records the service at work on a workload whose hot pages are on the slow node.

usage: guest_record.py --hotset PATH --tlbtick PATH --tierd PATH

Prints one JSON object: how `tierd record` ended, its totals, and the recording itself,
packed and in base64, for the host to replay.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

CONFIG = Path("/tmp/record.toml")
OUTPUT = Path("/tmp/guest.rec")
TICKS = 20
MOVES = 1000
DEADLINE_S = 240
SETTINGS = """
[targets]
match = { exe = "hotset" }
[loop]
targets_refresh = "500ms"
cpu = "60%"
[sources]
order = ["damon"]
[sources.damon]
cpu = "30%"
[policy]
min_residency = "3s"
[budget]
cpu = "60%"
"""


def record(command: list[str]) -> tuple[int, dict[str, Any], str]:
    """Record until enough was decided and moved; exit status, last totals, log."""
    log = Path("/tmp/record.log")
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        assert process.stdout is not None
        totals: dict[str, Any] = {}
        end = time.monotonic() + DEADLINE_S
        stopped = False
        for line in process.stdout:
            totals = json.loads(line)
            enough = totals.get("ticks", 0) >= TICKS and totals.get("promoted_pages", 0) >= MOVES
            if not stopped and (enough or time.monotonic() > end):
                process.terminate()
                stopped = True
        status = process.wait()
    return status, totals, log.read_text()


def main() -> int:
    """Record; 0 if the recording ended by itself and the workload is unharmed."""
    parser = argparse.ArgumentParser()
    for name in ("hotset", "tlbtick", "tierd"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    CONFIG.write_text(SETTINGS)
    OUTPUT.unlink(missing_ok=True)
    command = [args.hotset, "--size", "120M", "--seconds", "600", "--rate", "100000"]
    command += ["--fast-node", "0", "--slow-node", "1", "--interval", "2"]
    with (
        subprocess.Popen([args.tlbtick, "4000"]) as tick,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as workload,
    ):
        assert workload.stdout is not None
        workload.stdout.readline()
        tierd = [args.tierd, "record", "--config", str(CONFIG), "--json", "-o", str(OUTPUT)]
        status, totals, stderr = record([*tierd, "--size", "32MiB"])
        workload.terminate()
        end = [json.loads(line) for line in workload.stdout if '"end"' in line]
        tick.kill()
    data = OUTPUT.read_bytes()
    result = {
        "exit": status,
        "stderr": stderr[-3000:],
        "totals": totals,
        "workload": end[0],
        "checksum_ok": end[0]["checksum_ok"],
        "bytes": len(data),
        "recording": base64.b64encode(zlib.compress(data, 9)).decode(),
    }
    print(json.dumps(result))
    return status


if __name__ == "__main__":
    sys.exit(main())
