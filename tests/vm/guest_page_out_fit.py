# SPDX-License-Identifier: Apache-2.0
"""How large a target grows until tasks wait for memory, with page-outs and with the kernel's alone.

usage: guest_page_out_fit.py {page_out,kernel} --tierd PATH --most MIB [--step MIB] [--seconds S]
                             [--wait SHARE]

The service runs in both cases, and watches the target; with `kernel` it does not page out.

Prints one JSON line: for each size the share of time that tasks waited for memory (PSI, some), the
target's rate, and what is in swap; and the largest size before they waited for more than --wait at
two sizes in a row.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
from guest_page_out import CONFIG, SOCKET, status, swap_on, until

MORE = """
[residency]
interval = "2s"
"""
PSI = Path("/proc/pressure/memory")


def waited_s() -> float:
    """Seconds in which some task waited for memory, since boot."""
    found = re.search(r"some .*total=(\d+)", PSI.read_text())
    assert found
    return int(found[1]) / 1e6


def swapped_mib(pid: int) -> int:
    """Of a process."""
    found = re.search(r"VmSwap:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) >> 10 if found else 0


@contextlib.contextmanager
def service(tierd: str, *, enabled: bool) -> Any:
    """tierd, with page-outs or without, for the length of a block."""
    folder = Path(tempfile.mkdtemp())
    config = CONFIG.replace("cold_half", "growing")
    config = config.replace("enabled = true", f"enabled = {str(enabled).lower()}")
    (folder / "tierd.toml").write_text(config + MORE)
    command = [tierd, "run", "--config", str(folder / "tierd.toml")]
    with lab.module(), lab.tlbtick(), subprocess.Popen(command, stderr=sys.stderr) as process:
        assert until(lambda: SOCKET.exists() or process.poll() is not None)
        yield
        process.terminate()


def grow(args: argparse.Namespace) -> dict[str, Any]:
    """Grow until it is enough."""
    script = str(Path(__file__).with_name("growing.py"))
    sizes, fits, over = [], 0, 0
    with subprocess.Popen(
        [sys.executable, script, "--step", str(args.step), "--most", str(args.most)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as work:
        assert work.stdin is not None
        assert work.stdout is not None
        Path(f"/proc/{work.pid}/oom_score_adj").write_text("1000")
        while over < 2 and (not sizes or sizes[-1]["mib"] < args.most):
            with contextlib.suppress(BrokenPipeError):
                work.stdin.write("\n")
                work.stdin.flush()
            begun, before, rates = time.monotonic(), waited_s(), []
            told: dict[str, Any] = {}
            while time.monotonic() < begun + args.seconds and (line := work.stdout.readline()):
                told = json.loads(line)
                rates.append(told["rate"])
            if work.poll() is not None or not told:
                break
            waited = (waited_s() - before) / (time.monotonic() - begun)
            told |= {"waited": round(waited, 4), "rate": round(sum(rates) / len(rates))}
            told["swapped_mib"] = swapped_mib(work.pid)
            told["page_out"] = status()
            print(json.dumps(told), file=sys.stderr, flush=True)
            sizes.append(told)
            over = over + 1 if waited > args.wait else 0
            fits = told["mib"] if not over else fits
        with contextlib.suppress(BrokenPipeError):
            work.stdin.close()
        last = work.stdout.read().splitlines()[-1:]
        killed = work.wait()
    right = [json.loads(line).get("right") for line in last]
    return {"sizes": sizes, "fits_mib": fits, "right": right == [True], "exit": killed}


def main() -> int:
    """Print the findings."""
    parser = argparse.ArgumentParser()
    parser.add_argument("who", choices=("page_out", "kernel"))
    parser.add_argument("--tierd", required=True)
    parser.add_argument("--most", type=int, required=True)
    parser.add_argument("--step", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--wait", type=float, default=0.01)
    args = parser.parse_args()
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    swap_on("2G")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    with service(args.tierd, enabled=args.who == "page_out"):
        found = grow(args)
        found["page_out"] = status()
    print(json.dumps({"who": args.who, "memory_mib": memory, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
