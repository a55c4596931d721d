# SPDX-License-Identifier: Apache-2.0
"""How large a target grows until tasks wait for memory, with page-outs and with the kernel's alone.

usage: guest_page_out_fit.py {page_out,kernel} --tierd PATH --most MIB [--step MIB] [--seconds S]
                             [--wait SHARE]

The service runs in both cases, and watches the target; with `kernel` it does not page out.

Prints one JSON line: for each size the share of the time in which a task waited for memory (PSI,
some), the target's updates a second, and what of it is in swap; and the largest size before they
waited for more than --wait at two sizes in a row.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
from guest_page_out import CONFIG, SOCKET, status, swap_on, until

from tierd.core.errors import TierdError

PSI = Path("/proc/pressure/memory")
RESIDENCY = '[residency]\ninterval = "2s"\n'


def waited_s() -> float:
    """Seconds in which some task waited for memory, since boot."""
    found = re.search(r"some .*total=(\d+)", PSI.read_text())
    assert found
    return int(found[1]) / 1e6


def swapped_mib(pid: int) -> int:
    """Of a process."""
    found = re.search(r"VmSwap:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) >> 10 if found else 0


def told_of_page_outs() -> Any:
    """By the service; its error if it does not answer."""
    try:
        return status()
    except (TierdError, OSError) as error:
        return str(error)


@contextlib.contextmanager
def service(tierd: str, *, enabled: bool) -> Iterator[None]:
    """tierd, with page-outs or without, for the length of a block."""
    folder = Path(tempfile.mkdtemp())
    config = CONFIG.replace("cold_half", "growing")
    config = config.replace("enabled = true", f"enabled = {str(enabled).lower()}")
    (folder / "tierd.toml").write_text(config + RESIDENCY)
    command = [tierd, "run", "--config", str(folder / "tierd.toml")]
    with lab.module(), lab.tlbtick(), subprocess.Popen(command, stderr=sys.stderr) as process:
        try:
            assert until(lambda: SOCKET.exists() or process.poll() is not None)
            yield
            assert process.poll() is None
        finally:
            process.terminate()


def one_size(work: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    """Have the target grow, and watch it; nothing is found of a target that has ended."""
    assert work.stdin is not None
    assert work.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        work.stdin.write("\n")
        work.stdin.flush()
    begun, before, rates = time.monotonic(), waited_s(), []
    found: dict[str, Any] = {}
    while time.monotonic() < begun + seconds and (line := work.stdout.readline()):
        found = json.loads(line)
        rates.append(found["rate"])
    if work.poll() is not None or not found:
        return {}
    waited = (waited_s() - before) / (time.monotonic() - begun)
    found |= {"waited": round(waited, 4), "rate": round(sum(rates) / len(rates))}
    return found | {"swapped_mib": swapped_mib(work.pid), "page_out": told_of_page_outs()}


def grow(args: argparse.Namespace) -> dict[str, Any]:
    """Until tasks waited for too long at two sizes, or the target is as large as it may be."""
    script = str(Path(__file__).with_name("growing.py"))
    command = [sys.executable, script, "--step", str(args.step), "--most", str(args.most)]
    sizes: list[dict[str, Any]] = []
    fits = over = 0
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as work:
        assert work.stdin is not None
        assert work.stdout is not None
        Path(f"/proc/{work.pid}/oom_score_adj").write_text("1000")
        while over < 2 and (not sizes or sizes[-1]["mib"] < args.most):
            found = one_size(work, args.seconds)
            if not found:
                break
            print(json.dumps(found), file=sys.stderr, flush=True)
            sizes.append(found)
            over = over + 1 if found["waited"] > args.wait else 0
            fits = found["mib"] if not over else fits
        with contextlib.suppress(BrokenPipeError):
            work.stdin.close()
        last = work.stdout.read().splitlines()[-1:]
        ended = work.wait()
    right = [json.loads(line).get("right") for line in last] == [True]
    return {"sizes": sizes, "fits_mib": fits, "right": right, "exit": ended}


def main() -> int:
    """Print the findings."""
    parser = argparse.ArgumentParser()
    parser.add_argument("who", choices=("page_out", "kernel"))
    parser.add_argument("--tierd", required=True)
    parser.add_argument("--most", type=int, required=True)
    parser.add_argument("--step", type=int, default=96)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--wait", type=float, default=0.01)
    args = parser.parse_args()
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    swap_on("2G")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    with service(args.tierd, enabled=args.who == "page_out"):
        found = grow(args)
    print(json.dumps({"who": args.who, "memory_mib": memory, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
