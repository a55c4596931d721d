# SPDX-License-Identifier: Apache-2.0
"""What a service costs that has nothing to do: CPU, memory, and the time to its first decision.

Starts the service with its endpoint and socket, and processes that hold memory and sleep.
The source and the second tier are made up (`tests/support/hostservice.py`), and the source
names no pages unless `--rate` is given.

Prints the CPU share of one core over `--seconds` of idling (all threads, user and system),
resident memory with and without the heat table, and wall and CPU time from the start of the
process to its first decision. Each figure comes with the bound it shall keep.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1


def sleeper(size: int) -> int:
    """A process with `size` bytes of memory; it ends with this one."""
    child = os.fork()
    if not child:
        try:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            memory = mmap.mmap(-1, size)
            for offset in range(0, size, 4096):
                memory[offset] = 1
            while True:
                signal.pause()
        finally:
            os._exit(0)
    return child


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """VmRSS."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024


def figures(url: str) -> dict[str, float]:
    """What the service says of itself."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {k: float(v) for k, _, v in (x.rpartition(" ") for x in lines if x[0] != "#")}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=100)
    parser.add_argument("--size", type=int, default=4 << 20, help="bytes of each")
    parser.add_argument("--rate", type=int, default=0, help="records a second")
    parser.add_argument("--settle", type=float, default=15)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--profile", metavar="FILE", help="write a cProfile of the service")
    args = parser.parse_args()

    for _ in range(args.targets):
        sleeper(args.size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "tierd.toml"
        config.write_text(
            '[targets]\nmatch = { cmdline = "service_idle" }\nmin_rss = "1MiB"\n'
            f"deny = [{{ pid = {os.getpid()} }}]\n"
            "[metrics]\nport = 0\n"
            f'[control]\nsocket = "{folder}/control.sock"\nstate = "{folder}"\n'
        )
        command = [sys.executable]
        command += ["-m", "cProfile", "-o", args.profile] if args.profile else []
        command += [str(ROOT / "tests/support/hostservice.py"), "--config", str(config)]
        command += ["--rate", str(args.rate), "--first"]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}/daemon:{ROOT}/tests/support"}
        begun = time.time()
        with (
            (folder / "log").open("w") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=environment
            ) as service,
        ):
            try:
                assert service.stdout is not None
                first = json.loads(service.stdout.readline())
                time.sleep(args.settle)
                url = (folder / "log").read_text().partition("metrics_listening url=")[2].split()[0]
                before, start = cpu_seconds(service.pid), time.monotonic()
                time.sleep(args.seconds)
                spent = cpu_seconds(service.pid) - before
                wall = time.monotonic() - start
                said = figures(url)
                resident = resident_bytes(service.pid)
            finally:
                service.terminate()
    heat = said["tierd_heat_memory_bytes"]
    print(
        json.dumps(
            {
                "bench": "service_idle",
                "targets": said["tierd_targets"],
                "records_per_s": args.rate,
                "ticks": said["tierd_ticks_total"],
                "idle_cpu_percent": round(100 * spent / wall, 3),
                "idle_cpu_percent_bound": 0.5,
                "resident_mib": round(resident / 2**20, 1),
                "heat_mib": round(heat / 2**20, 1),
                "resident_without_heat_mib": round((resident - heat) / 2**20, 1),
                "resident_without_heat_mib_bound": 80,
                "start_to_decision_s": round(first["first_decision"] - begun, 3),
                "start_to_decision_cpu_s": round(first["cpu_seconds"], 3),
                "start_to_decision_s_bound": 2,
                "load_average": os.getloadavg()[0],
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
