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
import zlib
from pathlib import Path

CONFIG = Path("/tmp/record.toml")
OUTPUT = Path("/tmp/guest.rec")
SETTINGS = """
[targets]
match = { exe = "hotset" }
[loop]
targets_refresh = "500ms"
cpu = "60%"
[sources.damon]
cpu = "30%"
[policy]
min_residency = "3s"
[budget]
cpu = "60%"
"""


def main() -> int:
    """Record; 0 if the recording ended by itself and the workload is unharmed."""
    parser = argparse.ArgumentParser()
    for name in ("hotset", "tlbtick", "tierd"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    CONFIG.write_text(SETTINGS)
    OUTPUT.unlink(missing_ok=True)
    command = [args.hotset, "--size", "240M", "--seconds", "600", "--rate", "100000"]
    command += ["--fast-node", "0", "--slow-node", "1", "--interval", "2"]
    with (
        subprocess.Popen([args.tlbtick, "4000"]) as tick,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as workload,
    ):
        assert workload.stdout is not None
        workload.stdout.readline()
        tierd = [args.tierd, "record", "--config", str(CONFIG), "--json", "-o", str(OUTPUT)]
        done = subprocess.run(
            [*tierd, "--duration", "20s", "--size", "32MiB"],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        workload.terminate()
        end = [json.loads(line) for line in workload.stdout if '"end"' in line]
        tick.kill()
    data = OUTPUT.read_bytes()
    result = {
        "exit": done.returncode,
        "stderr": done.stderr[-3000:],
        "totals": json.loads(done.stdout.splitlines()[-1]),
        "checksum_ok": end[0]["checksum_ok"],
        "bytes": len(data),
        "recording": base64.b64encode(zlib.compress(data, 9)).decode(),
    }
    print(json.dumps(result))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
