# SPDX-License-Identifier: Apache-2.0
"""The service pages out a target's cold memory to zram, in a lab guest; prints one JSON line.

usage: guest_page_out.py --tierd PATH [--hot MIB] [--cold MIB] [--random MIB] [--written MIB]
                         [--rounds N]

A round waits until nine tenths of the cold memory are paged out, has the target read all of it, and
waits until the service knows that it came back.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab

from tierd.control.protocol import Client

SOCKET = Path("/run/tierd/control.sock")
CONFIG = """
[targets]
match = { cmdline = "cold_half" }
[sources]
order = ["scan"]
[sources.scan]
# Half of the interval is the whole of it: accesses are seen at any time.
min_sampling_interval = "400ms"
[loop]
cpu_limit = "100%"
[page_out]
enabled = true
min_age = "5s"
cpu_limit = "50%"
rate_limit = "1GB/s"
"""
KINDS = ("hot", "cold", "random", "written")
MOST_S = 900


def swap_on(size: str) -> None:
    """A zram device as the only swap."""
    subprocess.run(["modprobe", "zram"], check=True)
    folder = Path("/sys/block/zram0")
    (folder / "disksize").write_text(size)
    subprocess.run(["mkswap", "/dev/zram0"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["swapon", "/dev/zram0"], check=True)


def swapped(pid: int, span: tuple[int, int]) -> float:
    """The share of a region that is paged out."""
    start, end = span[0] // 4096, span[1] // 4096
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as file:
        entries = np.frombuffer(os.pread(file.fileno(), (end - start) * 8, start * 8), np.uint64)
    return float(np.count_nonzero(entries & np.uint64(1 << 62)) / len(entries))


def status() -> dict[str, Any]:
    """Of the service, about page-outs."""
    with Client(SOCKET) as client:
        found: dict[str, Any] = client.ask("status")["page_out"]
    return found


def until(done: Any, seconds: float = MOST_S) -> bool:
    """Wait in guest time until something is so; whether it is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if done():
            return True
        time.sleep(0.5)
    return False


def one_round(work: subprocess.Popen[str], where: dict[str, Any]) -> dict[str, Any]:
    """Cold memory goes and is read again."""
    found: dict[str, Any] = {}
    begun = time.monotonic()
    found["went"] = until(lambda: swapped(work.pid, where["cold"]) > 0.9)
    found["seconds"] = round(time.monotonic() - begun, 1)
    found["swapped"] = {kind: round(swapped(work.pid, where[kind]), 4) for kind in KINDS}
    found["status"] = status()
    work.send_signal(signal.SIGUSR1)
    assert work.stdout is not None
    rates = []
    for line in work.stdout:
        told = json.loads(line)
        if told["event"] == "read":
            found["right"] = told["right"]
            break
        rates.append(told["rate"])
    found["rates"] = rates[-20:]
    found["after"] = round(swapped(work.pid, where["cold"]), 4)
    return found


def main() -> int:
    """Print the findings; the service's exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tierd", required=True)
    for kind, mib in zip(KINDS, (32, 128, 16, 16), strict=True):
        parser.add_argument(f"--{kind}", type=int, default=mib)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    swap_on("2G")
    folder = Path(tempfile.mkdtemp())
    # Pages that come back again and again go again all the same.
    often = args.rounds > 1
    (folder / "tierd.toml").write_text(CONFIG + 'max_lost_time = "100%"\n' * often)
    tierd = [args.tierd, "run", "--config", str(folder / "tierd.toml")]
    tierd += ["--set", "internal.page_out.most_refaults=1"] * often
    script = str(Path(__file__).with_name("cold_half.py"))
    sizes = [word for kind in KINDS for word in (f"--{kind}", str(getattr(args, kind)))]
    told: dict[str, Any] = {}
    with (
        lab.module(),
        lab.tlbtick(),
        subprocess.Popen(
            [sys.executable, script, *sizes], stdout=subprocess.PIPE, text=True
        ) as work,
        subprocess.Popen(tierd, stderr=sys.stderr) as service,
    ):
        assert work.stdout is not None
        where = json.loads(work.stdout.readline())
        if not until(lambda: SOCKET.exists() or service.poll() is not None) or service.poll():
            work.kill()
            return 1
        told["rounds"] = [one_round(work, where) for _ in range(args.rounds)]
        told["back"] = until(lambda: status()["pages"].get("back", 0) > 0)
        told["status"] = status()
        work.terminate()
        told["end"] = next(json.loads(line) for line in work.stdout if '"end"' in line)
        service.terminate()
        told["exit"] = service.wait()
    told["dmesg"] = lab.splats()[:5]
    print(json.dumps(told))
    return int(told["exit"])


if __name__ == "__main__":
    sys.exit(main())
