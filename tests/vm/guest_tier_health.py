# SPDX-License-Identifier: Apache-2.0
"""The service beside a tier that becomes slow in three ways; in modelled time.

usage: guest_tier_health.py --hotset PATH --tierd PATH --interval SECONDS --cpu-limit SHARE FAULT...

Prints one JSON object: an event that came too early ("": none), and for each way the guest seconds
until the service said so and until it took that back, and the tiers' figures in between. With the
fault `placement` fast memory becomes slower than slow memory, where a program with hot pages in
slow memory begins; the object has their share in fast memory, second by second, until fast memory
is as usual again, and after.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import guest_kmod as lab
from card_window import Window

from tierd.control.protocol import Client

CONFIG = """
[targets]
match = {{ exe = "{exe}" }}
[sources]
order = ["{source}"]
[tier_health]
enabled = true
interval = "{interval}s"
cpu_limit = "{cpu_limit}"
"""
SOCKET = Path("/run/tierd/control.sock")
USUAL_PROBES = 12
"""Intervals before the first fault."""
MOST_S = 600
USUAL = {"latency_ps": 430_000, "bandwidth": 20_000}
DRAM = {"latency_ps": 118_000, "bandwidth": 100_000}
STAYS_S = 20
"""How long a program runs while fast memory is slow."""
FAULTS: dict[str, tuple[dict[str, int], list[str]]] = {
    "slower": ({"latency_ps": 860_000, "bandwidth": 10_000}, ["bandwidth", "latency"]),
    "latency": ({"latency_ps": 860_000}, ["latency"]),
    "bandwidth": ({"bandwidth": 10_000}, ["bandwidth"]),
    "stalls": ({"every": 1000, "delay_ps": 50_000_000}, ["stalls"]),
}
"""What changes, and the symptoms it has."""


class Events:
    """The service's lines about nodes."""

    def __init__(self, service: subprocess.Popen[str]) -> None:
        self.waiting: queue.Queue[tuple[float, str]] = queue.Queue()
        self._lines = service.stderr
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._lines is not None
        for line in self._lines:
            if "event=node_" in line:
                print(line, end="", file=sys.stderr)
            if "event=node_" in line and "event=node_probed" not in line and "excluded" not in line:
                self.waiting.put((time.monotonic(), line.strip()))

    def next(self, seconds: float) -> tuple[float, str]:
        """The next one and when it came; "" where none does."""
        try:
            return self.waiting.get(timeout=seconds)
        except queue.Empty:
            return time.monotonic(), ""


def begun(service: subprocess.Popen[str]) -> tuple[Window, Events]:
    """The modelled machine, whose counting begins, and the service's events, once it answers."""
    events = Events(service)
    while not SOCKET.exists():
        assert service.poll() is None
        time.sleep(0.1)
    window = Window()
    window.lab("START")
    return window, events


def fault(window: Window, events: Events, name: str, pid: int) -> dict[str, Any]:
    """What becomes of one fault, which begins now and ends once it was seen; pid: of a target."""
    change, symptoms = FAULTS[name]
    begun = time.monotonic()
    window.set_speed(1, **{**USUAL, **change})
    said, slow, status, explained = "-", [], {}, []
    # A fault may begin in the middle of a measurement.
    while said and slow != symptoms:
        seen, said = events.next(MOST_S)
        with Client(SOCKET) as client:
            status = client.ask("status")
            explained = client.ask("explain", pid=pid).get("slow_nodes", [])
        slow = [each for node in status["slow_nodes"] for each in node["symptoms"]]
    ended = time.monotonic()
    window.set_speed(1, **USUAL)
    gone, took_back = events.next(MOST_S)
    return {
        "seen_s": seen - begun,
        "said": said,
        "slow_nodes": status["slow_nodes"],
        "explained": explained,
        "tiers": [[tier["name"], tier["latency_ns"]] for tier in status["tiers"]],
        "gone_s": gone - ended,
        "took_back": took_back,
    }


def placement(window: Window, events: Events, hotset: list[str]) -> dict[str, Any]:
    """Where hot pages go that begin in slow memory, while fast memory is slower, and after."""
    window.set_speed(0, **{**DRAM, "latency_ps": 5 * DRAM["latency_ps"]})
    _, said = events.next(MOST_S)
    begin = ["--fast-node", "0", "--slow-node", "1", "--interval", "1", "--scattered"]
    begin += ["--rate", "20000"]
    with subprocess.Popen([*hotset, *begin], stdout=subprocess.PIPE, text=True) as work:
        assert work.stdout is not None
        shares = [json.loads(work.stdout.readline())["fast_share"] for _ in range(STAYS_S)]
        window.set_speed(0, **DRAM)
        _, took_back = events.next(MOST_S)
        while shares[-1] < 0.9 and len(shares) < MOST_S:
            shares.append(json.loads(work.stdout.readline())["fast_share"])
        work.kill()
    return {"said": said, "took_back": took_back, "shares": shares, "stays": STAYS_S}


def main() -> int:
    """Print the findings; the service's exit status."""
    parser = argparse.ArgumentParser()
    for name in ("hotset", "tierd"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--interval", type=float, required=True)
    parser.add_argument("--cpu-limit", required=True)
    parser.add_argument("faults", nargs="+", choices=(*FAULTS, "placement"))
    args = parser.parse_args()
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    folder = Path(tempfile.mkdtemp())
    moves = "placement" in args.faults
    settings = {"exe": "hotset", "interval": args.interval, "cpu_limit": args.cpu_limit}
    (folder / "tierd.toml").write_text(
        CONFIG.format(source="scan" if moves else "damon", **settings)
    )
    load = [args.hotset, "--seconds", "100000", "--rate", "2000", "--size", "64M", "--no-check"]
    with (
        lab.module() if moves else contextlib.nullcontext(),
        lab.tlbtick() if moves else contextlib.nullcontext(),
        subprocess.Popen(load, stdout=subprocess.DEVNULL) as hotset,
        subprocess.Popen(
            [args.tierd, "run", "--config", str(folder / "tierd.toml"), "--log-level", "debug"],
            stderr=subprocess.PIPE,
            text=True,
        ) as service,
    ):
        window, events = begun(service)
        _, early = events.next(USUAL_PROBES * args.interval)
        found: dict[str, Any] = {"early": early}
        for name in args.faults:
            if name == "placement":
                found[name] = placement(window, events, load)
            else:
                found[name] = fault(window, events, name, hotset.pid)
        window.lab("STOP")
        hotset.kill()
        service.terminate()
        service.wait()
    print(json.dumps(found))
    return service.returncode


if __name__ == "__main__":
    sys.exit(main())
