# SPDX-License-Identifier: Apache-2.0
"""Records the service at work on a workload whose hot pages are on the slow node.

usage: guest_record.py --hotset PATH --tlbtick PATH --tierd PATH

A rule caps what the workload may have of the fast node, where its cold pages start, at less.

Prints one JSON object: how `tierd record` ended, its totals, what the workload has on the fast
node in the end, and the recording itself, packed and in base64, for the host to replay.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import re
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
CAP = 0.06
SLACK_BYTES = 4 << 20
"""Pages that no rule counts: of the program's file, its stack, page tables."""
DEADLINE_S = 240
SETTINGS = """
[targets]
match = { exe = "hotset" }
refresh_interval = "500ms"
[loop]
cpu_limit = "60%"
[sources]
order = ["damon"]
[sources.damon]
cpu_limit = "30%"
[policy]
migration_cooldown = "3s"
[migration]
cpu_limit = "60%"
[[rule]]
name = "capped"
match = { exe = "hotset" }
fast_max = "6%"
"""


def fast_bytes(pid: int) -> int:
    """What a process has on the fast node (numa_maps, proc(5))."""
    text = Path(f"/proc/{pid}/numa_maps").read_text()
    return 4096 * sum(int(pages) for pages in re.findall(r" N0=(\d+)", text))


def cap_bytes() -> int:
    """What the rule leaves it."""
    text = Path("/sys/devices/system/node/node0/meminfo").read_text()
    total = re.search(r"MemTotal:\s+(\d+) kB", text)
    assert total is not None
    return int(CAP * int(total[1]) * 1024)


def record(command: list[str], workload: int, tlbtick: str) -> tuple[int, dict[str, Any], str]:
    """Record until enough was decided and moved; exit status, last totals, log."""
    log = Path("/tmp/record.log")
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
        contextlib.ExitStack() as stack,
    ):
        assert process.stdout is not None
        totals: dict[str, Any] = {}
        end = time.monotonic() + DEADLINE_S
        stopped = False
        process.stdout.readline()  # it has ticked
        # All that runs beside it takes three times as long: not while the service starts.
        tick = stack.enter_context(subprocess.Popen([tlbtick, "4000"]))
        stack.callback(tick.kill)
        for line in process.stdout:
            totals = json.loads(line)
            enough = totals.get("ticks", 0) >= TICKS and totals.get("promoted_pages", 0) >= MOVES
            enough = enough and fast_bytes(workload) <= cap_bytes() + SLACK_BYTES
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
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as workload:
        assert workload.stdout is not None
        workload.stdout.readline()
        tierd = [args.tierd, "record", "--config", str(CONFIG), "--json", "-o", str(OUTPUT)]
        status, totals, stderr = record([*tierd, "--size", "32MiB"], workload.pid, args.tlbtick)
        on_fast = fast_bytes(workload.pid)
        workload.terminate()
        end = [json.loads(line) for line in workload.stdout if '"end"' in line]
    data = OUTPUT.read_bytes()
    result = {
        "exit": status,
        "stderr": stderr[-3000:],
        "totals": totals,
        "workload": end[0],
        "fast_bytes": on_fast,
        "fast_bytes_allowed": cap_bytes() + SLACK_BYTES,
        "checksum_ok": end[0]["checksum_ok"],
        "bytes": len(data),
        "recording": base64.b64encode(zlib.compress(data, 9)).decode(),
    }
    print(json.dumps(result))
    return status


if __name__ == "__main__":
    sys.exit(main())
