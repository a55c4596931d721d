# SPDX-License-Identifier: Apache-2.0
"""The service measures nodes that stay as they are, beside a workload; in modelled time.

usage: guest_false_alarms.py --tierd PATH --interval SECONDS --seconds SECONDS COMMAND...

The command begins after what is usual was learned, and again whenever it ends. Prints one JSON
object: what the service said of nodes, the measurements of each, and the command's runs that ended.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from guest_tier_health import CONFIG, SOCKET, USUAL_PROBES, begun

from tierd.control.protocol import Client


def beside(command: list[str], seconds: float) -> int:
    """Run a command again and again; how many times it has ended."""
    end, ended = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as work:
            try:
                assert work.wait(left) == 0
                ended += 1
            except subprocess.TimeoutExpired:
                work.kill()
    return ended


def observe(service: subprocess.Popen[str], args: argparse.Namespace) -> dict[str, Any]:
    """What the service says of the nodes."""
    window, events = begun(service)
    time.sleep(USUAL_PROBES * args.interval)
    ended = beside(args.command, args.seconds)
    with Client(SOCKET) as client:
        told = client.ask("status")["probe_cpu_ns"]
    window.lab("STOP")
    return {
        "ended": ended,
        "probes": {node: each["count"] for node, each in told.items()},
        "said": [events.waiting.get()[1] for _ in range(events.waiting.qsize())],
    }


def main() -> int:
    """Print the findings; the service's exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tierd", required=True)
    parser.add_argument("--interval", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    exe = Path(args.command[0]).name
    file = Path(tempfile.mkdtemp()) / "tierd.toml"
    file.write_text(CONFIG.format(source="damon", exe=exe, interval=args.interval, cpu_limit="10%"))
    command = [args.tierd, "run", "--wait", "--config", str(file), "--log-level", "debug"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
        try:
            found = observe(service, args)
        finally:
            service.terminate()
        service.wait()
    print(json.dumps(found))
    return service.returncode


if __name__ == "__main__":
    sys.exit(main())
